package transport

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeemq/perigee/server/quota"
)

// Limits are on how many connections there are; SetLimits changes them while the
// server runs. The zero value of a field means its default.
type Limits struct {
	// MaxConnections is the most open connections, over all listeners; further
	// ones are closed at once. Each costs two goroutines and about 20 kB.
	// Default: no limit of ours, the system's file descriptors are one.
	MaxConnections int
	// MaxConnectionsPerIP is the same for one client address. Default: no limit;
	// negative: only addresses in PerIPOverrides may connect.
	MaxConnectionsPerIP int
	// PerIPOverrides replaces MaxConnectionsPerIP for single addresses.
	PerIPOverrides map[netip.Addr]int
	// MaxConnectionRate is how many connections a second are accepted, on each
	// listener; the others wait in the system's queue. Default: no limit.
	MaxConnectionRate int
}

// Options are the limits of all connections of a Server. The zero value of a
// field means its default.
type Options struct {
	Limits
	// MaxFrameBytes is the largest body of a frame; a longer one closes the
	// connection. Default 100 MiB, Kafka's socket.request.max.bytes.
	MaxFrameBytes int32
	// Memory is reserved for a frame before its body is read. Default: a budget
	// of 512 MiB for this server.
	Memory *quota.Memory
	// MaxQueuedReplies is how many requests of one connection may wait for their
	// answer before no more are read from it. Clients keep 5 in flight by
	// default; librdkafka can be told to send without limit. Default 64.
	MaxQueuedReplies int
	// IdleTimeout closes a connection on which nothing was asked or answered for
	// so long, and one that stops in the middle of a frame. Default 10 minutes,
	// Kafka's connections.max.idle.ms; negative: never.
	IdleTimeout time.Duration
	// WriteTimeout closes a connection whose client takes no byte of an answer
	// for so long. Default 30 seconds.
	WriteTimeout time.Duration
	// HandshakeTimeout is how long a client may take for its TLS handshake.
	// Default 10 seconds.
	HandshakeTimeout time.Duration
	// HTTPHint is a sentence for somebody who sends HTTP to one of our ports,
	// such as where the console is.
	HTTPHint string
	// Events are called on the goroutine of the event and must not block.
	Events Events
}

// Events tell the server's log and metrics what happens to connections. Nil
// functions are skipped.
type Events struct {
	Opened  func(c *Conn)
	Closed  func(c *Conn, reason error)                         // nil: the client closed it
	Refused func(l *Listener, remote net.Addr, reason string)   // a limit; nothing was read
	Foreign func(c *Conn, spoken string)                        // "HTTP" or "TLS" instead of our protocol
	Accept  func(l *Listener, err error, retryIn time.Duration) // accept failed, usually for want of descriptors
	Crashed func(c *Conn, panicked any, stack []byte)           // a bug of ours; the connection is closed
}

const (
	defaultMaxFrameBytes    = 100 << 20
	defaultMemoryBytes      = 512 << 20
	defaultMaxQueuedReplies = 64
	defaultIdleTimeout      = 10 * time.Minute
	defaultWriteTimeout     = 30 * time.Second
	defaultHandshakeTimeout = 10 * time.Second
)

// Server owns listeners and their connections. Listen binds, Serve accepts,
// Shutdown ends both; all may be called from any goroutine.
type Server struct {
	gathering atomic.Int32 // connections in writeGathered

	options Options // but for Limits
	limits  atomic.Pointer[Limits]
	stats   Stats

	drained context.Context // ends when Shutdown begins
	drain   context.CancelFunc

	stop   context.CancelCauseFunc // ends every connection
	ctx    context.Context
	ids    atomic.Uint64
	accept sync.WaitGroup // accept goroutines
	served sync.WaitGroup // connections' read goroutines; each waits for its writer

	mu struct {
		sync.Mutex
		listeners []*Listener
		conns     map[*Conn]struct{}
		perIP     map[netip.Addr]int
		closed    bool
	}
}

// Stats count since the start of the process.
type Stats struct {
	Accepted, Refused, Closed atomic.Int64
	BytesIn, BytesOut         atomic.Int64
}

// NewServer returns a server without listeners.
func NewServer(o Options) *Server {
	if o.MaxFrameBytes <= 0 {
		o.MaxFrameBytes = defaultMaxFrameBytes
	}
	if o.Memory == nil {
		o.Memory = quota.NewMemory(defaultMemoryBytes)
	}
	if o.MaxQueuedReplies <= 0 {
		o.MaxQueuedReplies = defaultMaxQueuedReplies
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = defaultHandshakeTimeout
	}
	s := &Server{options: o}
	s.SetLimits(o.Limits)
	s.drained, s.drain = context.WithCancel(context.Background())
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.mu.conns = make(map[*Conn]struct{})
	s.mu.perIP = make(map[netip.Addr]int)
	return s
}

// SetLimits replaces the limits. Connections that are open stay, however many.
func (s *Server) SetLimits(l Limits) { s.limits.Store(&l) }

// Stats returns the counters, which keep counting.
func (s *Server) Stats() *Stats { return &s.stats }

// Connections returns how many are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

// ConnectionsOf returns how many are open that came through a listener.
func (s *Server) ConnectionsOf(l *Listener) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		if c.listener == l {
			n++
		}
	}
	return n
}

// ErrShutdown is the reason given to connections and replies that Shutdown cuts
// short.
var ErrShutdown = errors.New("broker is shutting down")

// Shutdown stops accepting and reading, lets queued replies finish until ctx
// ends, then cuts what is left and waits for every goroutine. It returns ctx's
// error when something was cut. Calling it again is harmless.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.mu.closed = true
	listeners := s.mu.listeners
	for c := range s.mu.conns {
		c.stopReading()
	}
	s.mu.Unlock()
	s.drain()
	for _, l := range listeners {
		l.close() // its errors change nothing: no more clients come
	}
	s.accept.Wait()

	finished := make(chan struct{})
	var cut error
	go func() { s.served.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-ctx.Done():
		cut = context.Cause(ctx)
	}
	s.stop(ErrShutdown)
	s.mu.Lock()
	for c := range s.mu.conns {
		c.socket.Close()
	}
	s.mu.Unlock()
	<-finished
	return cut
}

// Why a limit refused a connection.
const (
	LimitConnections = "max.connections"
	LimitPerIP       = "max.connections.per.ip"
)

// perIP returns how many connections one address may have.
func (l *Limits) perIP(ip netip.Addr) int {
	if own, ok := l.PerIPOverrides[ip]; ok {
		return own
	}
	if inProcess := !ip.IsValid(); inProcess || l.MaxConnectionsPerIP == 0 {
		return math.MaxInt
	}
	return max(0, l.MaxConnectionsPerIP)
}

// admit registers a connection or says why not.
func (s *Server) admit(c *Conn) (refusal string) {
	var gated string
	if c.listener.Gate != nil {
		gated = c.listener.Gate(c.ip)
	}
	limits := s.limits.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return "shutting down"
	case gated != "":
		return gated
	case limits.MaxConnections > 0 && len(s.mu.conns) >= limits.MaxConnections:
		return LimitConnections
	case s.mu.perIP[c.ip] >= limits.perIP(c.ip):
		return LimitPerIP
	}
	s.mu.conns[c] = struct{}{}
	s.mu.perIP[c.ip]++
	s.served.Add(1)
	return ""
}

// forget removes a connection that admit let in.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	if s.mu.perIP[c.ip]--; s.mu.perIP[c.ip] <= 0 {
		delete(s.mu.perIP, c.ip)
	}
	s.mu.Unlock()
	s.served.Done()
}
