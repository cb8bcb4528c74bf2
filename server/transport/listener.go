package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime/pprof"
	"time"
)

// Listener is one bound address and the protocol spoken there. Fill the
// exported fields, then call Server.Listen.
type Listener struct {
	Name       string      // as configured, such as PLAINTEXT; labels metrics and log lines
	Bind       string      // host:port; host "" or a wildcard binds every address, port 0 any free one
	Advertised string      // host:port clients are told to use; "" derives it for each connection
	Protocol   Protocol    // what is spoken
	TLS        *tls.Config // nil: plain text

	// Gate, when set, is asked before the limits and may refuse a client with a
	// reason, "" lets it in. Farewell, when set, says what a refused client is
	// sent before the close, for Gate's reasons and the limits' (LimitConnections,
	// LimitPerIP); a TLS client gets nothing. Both are called on the accept
	// goroutine and must not block.
	Gate     func(client netip.Addr) (reason string)
	Farewell func(client netip.Addr, reason string) []byte

	sockets     []net.Listener // at least one; all have the same port
	readLabels  context.Context
	writeLabels context.Context
}

// Addr returns the bound address, with the port the system chose for port 0.
func (l *Listener) Addr() net.Addr { return l.sockets[0].Addr() }

// Listen binds l's address, see Bind; connections queue up in the system until
// Serve.
func (s *Server) Listen(l *Listener) error {
	sockets, err := Bind(l.Name, l.Bind)
	if err != nil {
		return err
	}
	return s.ListenOn(l, sockets...)
}

// ListenOn is Listen with sockets the caller made, at least one: in-process
// ones, or those inherited from a supervisor.
func (s *Server) ListenOn(l *Listener, sockets ...net.Listener) error {
	l.sockets = sockets
	labels := func(role string) context.Context {
		return pprof.WithLabels(context.Background(), pprof.Labels("goroutine", role, "listener", l.Name))
	}
	l.readLabels, l.writeLabels = labels("connection read"), labels("connection write")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return errors.Join(ErrShutdown, l.close())
	}
	s.mu.listeners = append(s.mu.listeners, l)
	return nil
}

// close releases the sockets.
func (l *Listener) close() error {
	var errs []error
	for _, socket := range l.sockets {
		errs = append(errs, socket.Close())
	}
	return errors.Join(errs...)
}

// Serve starts to accept on every bound listener. Call it once.
func (s *Server) Serve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.listeners {
		for _, socket := range l.sockets {
			s.accept.Go(func() { s.acceptLoop(l, socket) })
		}
	}
}

// acceptLoop ends when the listener is closed. Other errors, such as too many
// open files, pass: it tries again with growing pauses.
func (s *Server) acceptLoop(l *Listener, from net.Listener) {
	const shortestPause, longestPause = 5 * time.Millisecond, time.Second
	pause := shortestPause
	pace := s.pace()
	for {
		socket, err := from.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if report := s.options.Events.Accept; report != nil {
				report(l, err, pause)
			}
			s.sleep(pause)
			pause = min(2*pause, longestPause)
			continue
		}
		pause = shortestPause
		s.open(l, socket)
		s.sleep(pace())
	}
}

// pace returns a function that says, after each accept, how long to wait before
// the next, so that MaxConnectionRate is kept over any second.
func (s *Server) pace() func() time.Duration {
	var earliest time.Time // of the next accept, had they been evenly spread
	return func() time.Duration {
		rate := s.limits.Load().MaxConnectionRate
		if rate <= 0 {
			return 0
		}
		now := time.Now()
		if behind := now.Add(-time.Second); earliest.Before(behind) {
			earliest = behind // what was not used up is kept for a second
		}
		earliest = earliest.Add(time.Second / time.Duration(rate))
		return max(0, earliest.Sub(now))
	}
}

// sleep returns early when the server begins to shut down.
func (s *Server) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-s.drained.Done():
	}
}

// open starts the goroutines of a new connection, or refuses it.
func (s *Server) open(l *Listener, socket net.Conn) {
	c := newConn(s, l, socket)
	if refusal := s.admit(c); refusal != "" {
		s.stats.Refused.Add(1)
		if report := s.options.Events.Refused; report != nil {
			report(l, socket.RemoteAddr(), refusal)
		}
		l.sendOff(c, refusal)
		return
	}
	s.stats.Accepted.Add(1)
	go c.run()
}

// farewellTime is how long a refused socket stays open for its client to read
// why: a close with unread bytes would be a reset that overtakes the words.
const farewellTime = 250 * time.Millisecond

// sendOff closes a refused connection, with a few words if the protocol has any.
// They fit the empty send buffer of a new socket, so the write does not block.
func (l *Listener) sendOff(c *Conn, reason string) {
	var words []byte
	if l.Farewell != nil && l.TLS == nil {
		words = l.Farewell(c.ip, reason)
	}
	half, ok := c.socket.(interface{ CloseWrite() error })
	if len(words) == 0 || !ok {
		c.socket.Close()
		return
	}
	c.socket.SetDeadline(time.Now().Add(farewellTime))
	if _, err := c.socket.Write(words); err != nil || half.CloseWrite() != nil {
		c.socket.Close()
		return
	}
	time.AfterFunc(farewellTime, func() { c.socket.Close() })
}
