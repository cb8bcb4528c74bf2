package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// DeadLetters are the routes for records that no consumer can process, for
// consumers in any language:
//
//	POST /v1/groups/{group}/nack    give a record back, or up
//	GET  /v1/dlq/{topic}            look into a dead-letter topic
//	POST /v1/dlq/{topic}/redrive    send its records back
//
// Numbers of 64 bits are JSON strings in answers, and numbers or strings in
// requests: a browser's numbers end at 2^53.
type DeadLetters struct {
	// Coordinator returns nil until the broker is ready.
	Coordinator func() *coordinator.Coordinator
	// Nacked, when set, counts: a record of a topic was given back, or up.
	Nacked func(topic string, dead bool)
	// Redriven, when set, counts records that were sent back from a topic.
	Redriven func(topic string, records int)
}

// Register adds the routes, and MoonMQ's name for readiness. Call it before Serve.
func (d *DeadLetters) Register(s *Server) {
	s.mux.HandleFunc("GET /health", s.ready)
	origins := http.NewCrossOriginProtection()
	protect := func(h http.HandlerFunc) http.Handler { return byItsName(origins.Handler(h)) }
	s.Handle("POST /v1/groups/{group}/nack", protect(d.nack))
	s.Handle("GET /v1/dlq/{topic}", protect(d.list))
	s.Handle("POST /v1/dlq/{topic}/redrive", protect(d.redrive))
}

// bodyBytes bounds a request's body: a reason is a sentence, not a file.
const bodyBytes = 64 << 10

// reasonBytes bounds a reason, as MoonMQ does. A longer one is cut and not refused: the
// record would be stuck for what somebody wrote into an exception.
const reasonBytes = 1024

func cutReason(s string) string {
	if len(s) <= reasonBytes {
		return s
	}
	n := reasonBytes
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// wide is a 64-bit number: a string in answers, either in requests.
type wide int64

func (w wide) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, strconv.FormatInt(int64(w), 10)), nil
}

func (w *wide) UnmarshalJSON(b []byte) error {
	text := string(b)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not a number of 64 bits", text)
	}
	*w = wide(n)
	return nil
}

// nackRequest gives one record back. Member and generation are the consumer's own
// if its group is live; an idle group takes it from anyone.
type nackRequest struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"` // from 0, as in Kafka
	Offset     *wide  `json:"offset"`    // the record's own
	Reason     string `json:"reason"`
	Member     string `json:"member"`
	Instance   string `json:"instance"` // of a static member
	Generation *int32 `json:"generation"`
}

// nackAnswer says what became of the record. Unless it is dead, the consumer seeks
// to next_offset.
type nackAnswer struct {
	Dead     bool   `json:"dead_lettered"`
	Attempts int32  `json:"attempts"`
	DLQ      string `json:"dlq_topic,omitempty"`
	Next     wide   `json:"next_offset"` // the group's committed offset now
}

func (d *DeadLetters) nack(w http.ResponseWriter, r *http.Request) {
	var in nackRequest
	c, ok := d.begin(w, r, &in)
	if !ok {
		return
	}
	if in.Topic == "" || in.Offset == nil {
		refuse(w, http.StatusBadRequest, errors.New("topic, partition and offset are needed"))
		return
	}
	t, ok := c.Catalog().Topic(in.Topic)
	if !ok || !t.Has(in.Partition) || t.Internal {
		refuse(w, http.StatusNotFound, fmt.Errorf("no partition %s-%d", in.Topic, in.Partition))
		return
	}
	caller := group.Caller{Member: in.Member, Instance: in.Instance, Generation: -1}
	if in.Generation != nil {
		caller.Generation = *in.Generation
	}
	result, err := c.NackRecord(coordinator.Nack{
		Group: r.PathValue("group"), Caller: caller, Topic: t, Partition: in.Partition,
		Offset: model.Offset(*in.Offset), Reason: cutReason(in.Reason),
	})(r.Context())
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	if d.Nacked != nil {
		d.Nacked(t.Name, result.Dead)
	}
	answer(w, http.StatusOK, nackAnswer{result.Dead, result.Attempts, result.Topic, wide(result.Next)})
}

// begin reads the body; false means that the answer is written.
func (d *DeadLetters) begin(w http.ResponseWriter, r *http.Request, into any) (*coordinator.Coordinator, bool) {
	c := d.Coordinator()
	if c == nil {
		refuse(w, http.StatusServiceUnavailable, errors.New("the broker is starting"))
		return nil, false
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		refuse(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
		return nil, false
	}
	return c, true
}

// statuses map domain errors to HTTP; the first match wins.
var statuses = []struct {
	is     error
	status int
}{
	{coordinator.ErrNoRecord, http.StatusUnprocessableEntity},
	{coordinator.ErrControlRecord, http.StatusUnprocessableEntity},
	{coordinator.ErrAborted, http.StatusUnprocessableEntity},
	{deadletter.ErrTopicName, http.StatusUnprocessableEntity},
	{catalog.ErrUnknownTopic, http.StatusNotFound},
	{group.ErrInvalidGroupID, http.StatusBadRequest},
	{group.ErrGroupNotFound, http.StatusConflict},
	{group.ErrUnknownMember, http.StatusConflict},
	{group.ErrFencedInstance, http.StatusConflict},
	{group.ErrIllegalGeneration, http.StatusConflict},
	{group.ErrRebalanceInProgress, http.StatusConflict},
	{storage.ErrStorageFull, http.StatusInsufficientStorage},
	{context.Canceled, http.StatusServiceUnavailable},
}

func statusOf(err error) int {
	for _, s := range statuses {
		if errors.Is(err, s.is) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, struct {
		Error string `json:"error"`
	}{err.Error()})
}
