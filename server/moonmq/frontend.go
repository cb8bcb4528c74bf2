package moonmq

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/perigeemq/perigee/coordinator"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/transport"
)

// Options connect the front end to the broker.
type Options struct {
	Coordinator *coordinator.Coordinator
	Access      *access.Directory
	Limits      config.MoonMQLimits
	DeadLetters config.DeadLetters
	Metrics     *Metrics // nil: counted and never shown
	Log         zerolog.Logger
	Now         func() time.Time // nil: time.Now
	Quotas      QuotaOptions
	// CertificateSHA256 returns the digest of the certificate the listener shows
	// now, for channel binding; nil without TLS. It is asked once a connection,
	// after the handshake.
	CertificateSHA256 func() []byte
	// VerifiesClients says that the TLS listener checks client certificates.
	VerifiesClients bool
}

// FrontEnd speaks MoonMQ on every connection handed to it.
type FrontEnd struct {
	coordinator *coordinator.Coordinator
	access      *access.Directory
	lockout     *access.Lockout
	limits      config.MoonMQLimits
	deadLetters config.DeadLetters
	quotas      *quotas
	sticky      sticky
	oversize    oversizeLog
	metrics     *Metrics
	log         zerolog.Logger
	now         func() time.Time
	certificate func() []byte
	verifies    bool

	mu struct {
		sync.Mutex
		sessions map[*session]struct{}
		closed   bool
	}
	kick  chan struct{} // a new session: the watcher looks again
	stop  chan struct{}
	ended chan struct{}
}

// New returns a front end whose watcher runs until Close.
func New(o Options) *FrontEnd {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	f := &FrontEnd{
		coordinator: o.Coordinator, access: o.Access, limits: o.Limits, deadLetters: o.DeadLetters,
		lockout: access.NewLockout(access.LockoutOptions{
			MaxFailures: o.Limits.AuthMaxFailures, Window: o.Limits.AuthFailureWindow, Ban: o.Limits.AuthBan,
		}),
		quotas:  newQuotas(o.Quotas),
		metrics: o.Metrics, log: o.Log, now: o.Now, certificate: o.CertificateSHA256, verifies: o.VerifiesClients,
		kick: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	f.mu.sessions = map[*session]struct{}{}
	go f.watch()
	return f
}

// Name implements transport.Protocol.
func (f *FrontEnd) Name() string { return "moonmq" }

// Open implements transport.Protocol.
func (f *FrontEnd) Open(c *transport.Conn) transport.Session {
	s := newSession(f, c)
	f.mu.Lock()
	f.mu.sessions[s] = struct{}{}
	f.mu.Unlock()
	f.metrics.opened()
	if _, encrypted := c.TLS(); encrypted {
		f.metrics.Handshake(true)
	}
	f.lookAgain()
	return s
}

// lookAgain wakes the watcher: a deadline may have come nearer.
func (f *FrontEnd) lookAgain() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// Gate is transport.Listener.Gate: banned addresses do not come in.
func (f *FrontEnd) Gate(client netip.Addr) string {
	if f.lockout.Banned(client.String(), f.now()) > 0 {
		return "banned"
	}
	return ""
}

// Farewell is transport.Listener.Farewell.
func (f *FrontEnd) Farewell(client netip.Addr, reason string) []byte {
	e := &wire.Error{Code: wire.RateLimited, Message: "server at capacity"}
	switch reason {
	case "banned":
		left := f.lockout.Banned(client.String(), f.now())
		e = &wire.Error{Code: wire.AuthFailed, Message: fmt.Sprintf("banned for %ds", seconds(left))}
	case transport.LimitPerIP:
		e.Message = "too many connections from this address"
	}
	return wire.Append(nil, wire.CorrelationID{}, e)
}

// seconds rounds up, as the original's clock does.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Drain tells every client that the server goes down and hangs up; call it
// before the transport's Shutdown.
func (f *FrontEnd) Drain() {
	for _, s := range f.sessions() {
		s.end(&wire.Error{Code: wire.Internal, Message: "server shutting down"})
	}
}

// Close ends the watcher. Sessions end with their connections.
func (f *FrontEnd) Close() {
	f.mu.Lock()
	closed := f.mu.closed
	f.mu.closed = true
	f.mu.Unlock()
	if !closed {
		close(f.stop)
	}
	<-f.ended
}

func (f *FrontEnd) sessions() []*session {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*session, 0, len(f.mu.sessions))
	for s := range f.mu.sessions {
		all = append(all, s)
	}
	return all
}

func (f *FrontEnd) forget(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.sessions, s)
}

// Connections is how many sessions are open.
func (f *FrontEnd) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.sessions)
}

// output is one frame as an answer.
func output(id wire.CorrelationID, m wire.Message) transport.Output {
	return transport.Output{Parts: []transport.Part{{Bytes: wire.Append(nil, id, m)}}}
}

// say is a reply that is ready.
func say(id wire.CorrelationID, m wire.Message) transport.Reply {
	return func(context.Context) (transport.Output, error) { return output(id, m), nil }
}
