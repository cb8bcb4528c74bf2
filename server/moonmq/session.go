package moonmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
)

// state is how far a connection has come.
type state int8

const (
	stateNew state = iota
	stateGreeted
	stateAuthenticated
)

func (s state) String() string {
	return [...]string{"new", "greeted", "authenticated"}[s]
}

// session is one connection. The read goroutine owns it, but for the fields
// said to be shared.
type session struct {
	front *FrontEnd
	conn  *transport.Conn
	host  string // the client's address without port
	// certificate is the digest of what the client was shown; nil without TLS.
	certificate []byte

	state    state
	user     string           // "" until a login; open mode keeps it empty
	scram    *access.Exchange // between AUTH_SCRAM and AUTH_SCRAM_FINAL
	client   wire.IdentifyClient
	producer producer
	held     string           // the named producer this connection keeps alive; "" is none
	appended *storage.Pending // the newest append that may not be durable yet
	consumer *consumer        // nil until the first FETCH or SUBSCRIBE

	// Shared with the watcher.
	accepted  time.Time    // immutable
	lastFrame atomic.Int64 // when the last whole frame came, Unix nanoseconds
	busy      atomic.Bool  // a request is being worked on: no clock runs
	admitted  atomic.Int64 // when the handshake was over, Unix nanoseconds; 0: not yet
	ending    atomic.Bool  // a closing error is on its way
	nextBeat  time.Time    // the watcher's own
	// group is the one group the connection joined; nil if none. The delivery
	// goroutine reads it.
	group atomic.Pointer[membership]

	pending atomic.Int64 // bytes of answers to FETCH that wait for the ones before them to be written
}

func newSession(f *FrontEnd, c *transport.Conn) *session {
	s := &session{front: f, conn: c, accepted: f.now()}
	s.host = c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(s.host); err == nil {
		s.host = host
	}
	if f.certificate != nil {
		s.certificate = f.certificate()
	}
	s.touch()
	return s
}

// admit ends the handshake; other deadlines apply from here.
func (s *session) admit() {
	if s.admitted.CompareAndSwap(0, s.front.now().UnixNano()) {
		s.front.lookAgain()
	}
}

func (s *session) touch() { s.lastFrame.Store(s.front.now().UnixNano()) }

// request is one decoded frame.
type request struct {
	id    wire.CorrelationID
	body  wire.Message
	frame *transport.Frame // what byte fields of body alias
}

// fatal is an error that ends the connection, sent with the zero id.
type fatal struct{ message *wire.Error }

func (f fatal) Error() string { return f.message.Message }

// Unwrap gives the code to whoever labels the end of the connection.
func (f fatal) Unwrap() error { return f.message }

func fail(code wire.Code, message string) error { return &wire.Error{Code: code, Message: message} }

func failFatally(code wire.Code, message string) error {
	return fatal{&wire.Error{Code: code, Message: message}}
}

// errGoodbye ends a connection without a word.
var errGoodbye = fmt.Errorf("client said goodbye: %w", net.ErrClosed)

// answer is what a handler returns: a message now, or a function that the write
// goroutine runs and that may wait.
type answer struct {
	message wire.Message
	later   func(ctx context.Context) (wire.Message, error)
	ready   func() bool       // for later: whether it would not block
	frames  *frames           // several frames, for FETCH
	raw     *transport.Output // an answer with a Release of its own, for SUBSCRIBE
}

func now(m wire.Message) answer { return answer{message: m} }

// Serve implements transport.Session.
func (s *session) Serve(f *transport.Frame) (transport.Reply, error) {
	s.busy.Store(true)
	s.touch()
	defer func() {
		s.touch()
		s.busy.Store(false)
	}()
	if s.state == stateNew && looksLikeKafka(f.Body) {
		return nil, errKafka
	}
	frame, err := wire.ParseFrame(f.Body)
	if err != nil {
		return s.refuse(wire.CorrelationID{}, failFatally(wire.BadFrame, err.Error()))
	}
	s.front.metrics.received(frame.Op)
	if s.ending.Load() {
		return nil, nil
	}
	began := s.front.now()
	a, err := s.dispatch(frame, f)
	s.front.metrics.dispatched(frame.Op, s.front.now().Sub(began))
	if err != nil {
		return s.refuse(frame.ID, err)
	}
	return s.reply(frame.ID, f, a), nil
}

// errKafka ends a connection whose client would understand no answer of ours.
var errKafka = errors.New("client speaks Kafka; its port is set by listeners")

// looksLikeKafka recognises the header of a request: an API key below 256 and a small
// version. The key's high byte stands where an op does, and 0 is none.
func looksLikeKafka(body []byte) bool {
	const header, versionMost = 10, 32 // key, version, correlation id, length of the client's id
	return len(body) >= header && body[0] == 0 && body[1] > 0 && body[2] == 0 && body[3] <= versionMost
}

// refuse answers with an error, and ends the connection if it is a fatal one.
func (s *session) refuse(id wire.CorrelationID, err error) (transport.Reply, error) {
	var f fatal
	switch {
	case errors.Is(err, errGoodbye):
		return nil, err
	case errors.As(err, &f):
		s.ending.Store(true)
		return s.sending(say(wire.CorrelationID{}, f.message)), f
	}
	return s.sending(say(id, s.front.errorOf(err))), nil
}

// reply makes the transport's reply of an answer; nil if there is none.
func (s *session) reply(id wire.CorrelationID, f *transport.Frame, a answer) transport.Reply {
	switch {
	case a.raw != nil:
		return s.sending(func(context.Context) (transport.Output, error) { return *a.raw, nil })
	case a.frames != nil:
		return s.sending(a.frames.reply(s, id))
	case a.later != nil:
		if a.ready != nil {
			f.ReadyWhen(a.ready)
		}
		return s.sending(func(ctx context.Context) (transport.Output, error) {
			m, err := a.later(ctx)
			if err != nil {
				m = s.front.errorOf(err)
			}
			return output(id, m), nil
		})
	case a.message != nil:
		f.ReadyWhen(func() bool { return true })
		return s.sending(say(id, a.message))
	}
	return nil
}

// sending counts and times what leaves.
func (s *session) sending(r transport.Reply) transport.Reply {
	return func(ctx context.Context) (transport.Output, error) {
		o, err := r(ctx)
		s.front.metrics.sending(&o)
		return o, err
	}
}

// Refuse implements transport.Refuser.
func (s *session) Refuse(n uint32) transport.Reply {
	s.ending.Store(true)
	e := &wire.FrameSizeError{Length: n, Max: uint32(s.front.limits.MaxFrameBytes)}
	return s.sending(say(wire.CorrelationID{}, &wire.Error{Code: wire.FrameTooLarge, Message: e.Error()}))
}

// Close implements transport.Session: what belonged to the connection ends.
func (s *session) Close() {
	s.ending.Store(true)
	s.front.forget(s)
	s.stopPushing()
	s.leaveGroup()
	s.abandonTransaction()
	s.holdName("")
	s.front.metrics.closed(s.reason())
}

// reason labels the end of the connection in metrics.
func (s *session) reason() string {
	var e *wire.Error
	if cause := context.Cause(s.conn.Context()); errors.As(cause, &e) {
		return e.Code.String()
	}
	return "client"
}
