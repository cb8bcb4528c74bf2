package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/transport"
)

// A handler runs on the connection's read goroutine, in arrival order, and must
// not block: it does what fixes an order, such as an append or a join, and
// returns the rest as a reply. A nil reply sends nothing (Produce with acks=0).
type handler func(s *session, r *request) reply

// A reply runs on the connection's write goroutine, in request order, and may
// block; ctx ends with the connection. The version of the response is set by
// the caller. A nil response sends nothing.
type reply func(ctx context.Context) kmsg.Response

// now is the reply of an answer that is ready.
func now(resp kmsg.Response) reply {
	return func(context.Context) kmsg.Response { return resp }
}

// request is one decoded request.
//
// Strings in body are copies; byte fields (records, member metadata,
// assignments) alias the frame, which lives until the reply is written. Who
// keeps them longer copies them or retains the frame.
type request struct {
	key, version int16
	correlation  int32
	clientID     string // "" when the client sent none
	body         kmsg.Request
	frame        *transport.Frame
}

// api is a row of THE table.
type api struct {
	key      int16
	min, max int16 // versions we advertise and serve
	name     string
	handle   handler
}

// table has one row for each API we serve, by key. ApiVersions answers, metric
// labels, the compatibility page and tests are derived from it. A row is added
// together with its handler.
var table = []api{}

// apiFor returns the row of a key, or nil.
func apiFor(key int16) *api {
	if key < 0 || int(key) >= len(byKey) {
		return nil
	}
	return byKey[key]
}

// byKey indexes table by API key; absent keys are nil.
var byKey []*api

func init() {
	for i := range table {
		a := &table[i]
		for int(a.key) >= len(byKey) {
			byKey = append(byKey, nil)
		}
		byKey[a.key] = a
	}
}
