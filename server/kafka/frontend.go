package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	wire "github.com/perigeemq/perigee/protocol/kafka"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/metrics"
	"github.com/perigeemq/perigee/server/transport"
)

// Options are what the front end stands on. All fields are required.
type Options struct {
	Coordinator *coordinator.Coordinator
	Config      *config.Broker
	Log         zerolog.Logger
	Metrics     *metrics.Kafka
}

// FrontEnd serves Kafka's protocol on every connection handed to it. It is
// shared by all sessions: its fields are set before the first connection and
// never change, but for what LogRequests sets.
//
// Handlers reach it through their session: s.coordinator, s.config, s.log.
type FrontEnd struct {
	coordinator *coordinator.Coordinator
	config      *config.Broker
	log         zerolog.Logger
	metrics     *metrics.Kafka
	fetches     *fetchSessions
	requests    atomic.Pointer[requestLog] // nil: none are logged
	complaints  complaints
}

// New returns a front end.
func New(o Options) *FrontEnd {
	return &FrontEnd{
		coordinator: o.Coordinator,
		config:      o.Config,
		log:         o.Log,
		metrics:     o.Metrics,
		fetches:     newFetchSessions(o.Config.Network.FetchSessions),
	}
}

// Name implements transport.Protocol.
func (*FrontEnd) Name() string { return "kafka" }

// Open implements transport.Protocol.
func (f *FrontEnd) Open(c *transport.Conn) transport.Session {
	return &session{FrontEnd: f, conn: c, principal: anonymous}
}

// FetchSessions returns how many incremental fetch sessions exist.
func (f *FrontEnd) FetchSessions() int { return f.fetches.count() }

// API keys that are treated specially outside their handlers.
const (
	keyJoinGroup   int16 = 11
	keySyncGroup   int16 = 14
	keyApiVersions int16 = 18
)

// Errors that end a connection: the client and we do not speak the same
// language, so nothing after the offending bytes can be trusted.
var (
	errUnknownAPI = errors.New("unknown api key or version")
	errMoonMQ     = errors.New("client speaks MoonMQ; its port is set by moonmq.listen")
)

// Serve implements transport.Session.
func (s *session) Serve(f *transport.Frame) (transport.Reply, error) {
	arrived := time.Now()
	h, body, err := wire.ParseHeader(f.Body)
	if looksLikeMoonMQ(h, f.Body) {
		return nil, errMoonMQ
	}
	a := apiFor(h.Key)
	known := a != nil && h.Version >= a.min && h.Version <= a.max
	switch {
	case h.Key == keyApiVersions && !known: // its header may be of a version we do not know either
		return s.answer(h, arrived, now(unsupportedApiVersions())), nil
	case err != nil:
		return nil, err
	case !known:
		s.metrics.Refused(h.Key)
		return nil, fmt.Errorf("%w: key %d version %d, from client %q, software %q %q",
			errUnknownAPI, h.Key, h.Version, h.ClientID, s.software, s.softwareVersion)
	}
	req, err := wire.DecodeRequest(h, body)
	if err != nil {
		s.metrics.Refused(h.Key)
		return nil, err
	}
	r := &request{arrived: arrived, key: h.Key, version: h.Version, correlation: h.Correlation, clientID: h.ClientID, body: req, frame: f}
	rep := a.handle(s, r)
	if rep == nil {
		return nil, r.hangup
	}
	return s.answer(h, arrived, rep), r.hangup
}

// Close implements transport.Session.
func (*session) Close() {}

// looksLikeMoonMQ tells a MoonMQ frame by what stands where Kafka has the high
// byte of the API key: an opcode, never 0; see that protocol's frame layout. A
// MoonMQ frame is at least an opcode and a 16-byte correlation id.
func looksLikeMoonMQ(h wire.Header, body []byte) bool {
	return len(body) >= 17 && h.Key>>8 > 0
}

// sender is a response that encodes itself, because its bytes are not all in
// memory.
type sender interface {
	send(correlation int32) (transport.Output, error)
}

// encoded is a response on its way: its bytes, and what the transport wants to know
// of them. It is used again, so that an answer allocates nothing here.
type encoded struct {
	buffer  []byte
	part    [1]transport.Part
	release func() // giveBack, made once
}

// encodings keeps them. Those that grew large are rare and left to the collector.
var encodings sync.Pool

const keepBuffer = 64 << 10

func takeEncoded() *encoded {
	if e, ok := encodings.Get().(*encoded); ok {
		return e
	}
	e := &encoded{}
	e.release = e.giveBack
	return e
}

func (e *encoded) giveBack() {
	if cap(e.buffer) <= keepBuffer {
		encodings.Put(e)
	}
}

// answer turns a handler's reply into one for the transport.
func (s *session) answer(h wire.Header, arrived time.Time, rep reply) transport.Reply {
	return func(ctx context.Context) (transport.Output, error) {
		if waitsForOthers(h.Key) {
			var cancel context.CancelFunc
			ctx, cancel = s.conn.UntilDrain(ctx)
			defer cancel()
		}
		resp := rep(ctx)
		if errors.Is(context.Cause(ctx), transport.ErrShutdown) && waitsForOthers(h.Key) {
			return transport.Output{}, transport.ErrShutdown
		}
		s.metrics.Answered(h.Key, time.Since(arrived))
		s.logRequest(h, arrived)
		if resp == nil {
			return transport.Output{}, nil
		}
		if encoder, ok := resp.(sender); ok {
			return encoder.send(h.Correlation)
		}
		return encode(h, resp), nil
	}
}

// waitsForOthers reports whether an answer may take until other members of a
// group do something. At a stop nobody does; the client is not told an error,
// which it might take for the group's, but finds the connection closed.
func waitsForOthers(key int16) bool { return key == keyJoinGroup || key == keySyncGroup }

// encode writes a response into pooled memory. The version is the request's,
// unless the answer is ApiVersions' for a version we do not know.
func encode(h wire.Header, resp kmsg.Response) transport.Output {
	if _, fallback := resp.(*unsupported); !fallback {
		resp.SetVersion(h.Version)
	}
	e := takeEncoded()
	e.buffer = wire.AppendResponse(e.buffer[:0], h.Correlation, resp)
	e.part[0].Bytes = e.buffer
	return transport.Output{Parts: e.part[:], Release: e.release}
}
