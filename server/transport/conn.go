package transport

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"sync/atomic"
	"syscall"
	"time"
)

// readAhead is the buffer small requests are read into: one read of the socket
// fetches the length, the body and perhaps the next requests. The rest of a
// larger body goes straight into its frame.
const readAhead = 4 << 10

// Conn is one accepted connection, as a protocol sees it.
type Conn struct {
	server   *Server
	listener *Listener
	socket   net.Conn
	tcp      syscall.RawConn // of a TCP socket, else nil
	raw      syscall.RawConn // tcp if it is plain, for sendfile
	ip       netip.Addr      // zero for in-process connections
	id       uint64

	ctx    context.Context
	cancel context.CancelCauseFunc

	session Session
	in      *bufio.Reader
	queue   chan queued
	// outstanding counts frames from Serve to the last byte of their answer; a
	// connection with any is not idle.
	outstanding atomic.Int32
	lastActive  atomic.Int64 // when a frame came or an answer left, in Unix nanoseconds
	readArmed   bool         // the socket has a read deadline that has not passed; the read goroutine's
	writeBy     time.Time    // the socket's write deadline; the write goroutine's
	stopped     atomic.Bool  // stopReading was called
	hungUp      atomic.Pointer[hungUp]

	pushes  chan Reply    // from other goroutines straight to the writer, see Push
	written chan struct{} // closed when the write goroutine has ended

	out writer
}

// queued is a frame on its way from the read to the write goroutine.
type queued struct {
	reply Reply
	frame *Frame // nil for a pushed reply
}

// isReady reports whether the reply would not block; pushed ones may not.
func (q queued) isReady() bool { return q.frame == nil || q.frame.isReady() }

func newConn(s *Server, l *Listener, socket net.Conn) *Conn {
	c := &Conn{
		server:   s,
		listener: l,
		socket:   socket,
		id:       s.ids.Add(1),
		queue:    make(chan queued, s.options.MaxQueuedReplies),
		pushes:   make(chan Reply),
		written:  make(chan struct{}),
	}
	if at, err := netip.ParseAddrPort(socket.RemoteAddr().String()); err == nil {
		c.ip = at.Addr().Unmap()
	}
	if tcp, ok := socket.(*net.TCPConn); ok {
		c.tcp, _ = tcp.SyscallConn() // without it, regions are copied
	}
	if l.TLS == nil {
		c.raw = c.tcp
	} else {
		c.socket = tls.Server(socket, l.TLS)
	}
	c.in = bufio.NewReaderSize(c.socket, readAhead)
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	c.touch(time.Now())
	return c
}

// ID numbers the connections of this process from 1, for log lines.
func (c *Conn) ID() uint64 { return c.id }

// Listener returns the listener the connection came through.
func (c *Conn) Listener() *Listener { return c.listener }

// LocalAddr is the address the client connected to: with a wildcard bind, the
// one it can reach us at.
func (c *Conn) LocalAddr() net.Addr { return c.socket.LocalAddr() }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.socket.RemoteAddr() }

// TLS describes the client's side of a TLS connection; ok is false on a plain
// one. Valid once the first frame arrived.
func (c *Conn) TLS() (state tls.ConnectionState, ok bool) {
	t, ok := c.socket.(*tls.Conn)
	if !ok {
		return state, false
	}
	return t.ConnectionState(), true
}

// Draining is closed when the server begins to shut down: a reply that waits
// for something that may never come should answer now.
func (c *Conn) Draining() <-chan struct{} { return c.server.drained.Done() }

// UntilDrain returns a context that ends with ctx and when the server begins to
// shut down, for replies that wait by context. Call cancel when done.
func (c *Conn) UntilDrain(ctx context.Context) (until context.Context, cancel context.CancelFunc) {
	until, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.server.drained, func() { end(ErrShutdown) })
	return until, func() { stop(); end(nil) }
}

// run is the read goroutine.
func (c *Conn) run() {
	pprof.SetGoroutineLabels(c.listener.readLabels)
	reason := c.converse()
	c.cancel(errClosed)
	c.socket.Close()
	c.server.stats.Closed.Add(1)
	if report := c.server.options.Events.Closed; report != nil {
		report(c, reason)
	}
	c.server.forget(c)
}

// errClosed ends the context of a connection that is gone.
var errClosed = errors.New("connection closed")

// converse reads until the connection ends and returns why; nil means that the
// client closed it between two frames.
func (c *Conn) converse() error {
	if err := c.handshake(); err != nil {
		return fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	if report := c.server.options.Events.Opened; report != nil {
		report(c)
	}
	c.session = c.listener.Protocol.Open(c)
	go func() { defer close(c.written); c.writeReplies() }()

	err := c.readFrames()
	if hungUp := c.hungUp.Load(); hungUp != nil && errors.Is(err, ErrShutdown) {
		err = fmt.Errorf("%w: %w", errLastReply, hungUp.reason)
		if hungUp.last != nil {
			c.queue <- queued{reply: hungUp.last}
		}
	}
	if !errors.Is(err, errLastReply) && !errors.Is(err, ErrShutdown) {
		c.cancel(cmp.Or(err, errClosed)) // nobody waits for the answers; wake those that block
	}
	close(c.queue)
	<-c.written
	c.session.Close()
	if errors.Is(err, errLastReply) {
		c.linger()
	}

	switch first := context.Cause(c.ctx); { // whoever ended the connection knows why
	case errors.Is(first, errClosed):
		return nil
	case first != nil:
		return first
	}
	return err
}

// ErrHandshake ends a connection that did not become a TLS connection.
var ErrHandshake = errors.New("TLS handshake")

func (c *Conn) handshake() error {
	t, ok := c.socket.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.server.options.HandshakeTimeout)
	defer cancel()
	return t.HandshakeContext(ctx)
}

// errLastReply marks an error of Session.Serve: what is queued is still
// answered before the connection is closed.
var errLastReply = errors.New("session ended")

// readFrames serves frames until the connection ends, in the order they came.
// Those that were read ahead of a failed write are not served: nobody is left who
// asks.
func (c *Conn) readFrames() error {
	first := true
	for {
		prefix, err := c.peekLength()
		if err != nil || prefix == nil {
			return err
		}
		if first {
			if spoken := foreign(prefix); spoken != "" {
				return c.turnAway(spoken)
			}
			first = false
		}
		n := int32(binary.BigEndian.Uint32(prefix))
		if n < 0 || n > c.server.options.MaxFrameBytes {
			return c.refuseFrame(uint32(n))
		}
		f, err := c.readFrame(int(n))
		if err != nil {
			return err
		}
		if failed := context.Cause(c.ctx); failed != nil {
			f.Release()
			return failed
		}
		if err := c.serve(f); err != nil {
			return fmt.Errorf("%w: %w", errLastReply, err)
		}
	}
}

// peekLength waits for the four bytes that open a frame. It returns nil bytes
// when the client closed the connection.
//
// The deadline is left as it is while it has not passed, since moving it for
// every frame costs as much as reading a small one. When it passes and the client
// was not idle for so long, it is moved by what is left.
func (c *Conn) peekLength() ([]byte, error) {
	for {
		if !c.readArmed {
			c.armRead()
		}
		prefix, err := c.in.Peek(4)
		switch {
		case err == nil:
			return prefix, nil
		case errors.Is(err, io.EOF) && len(prefix) == 0, errors.Is(err, syscall.ECONNRESET):
			return nil, nil
		case c.stopped.Load():
			return nil, ErrShutdown
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return nil, fmt.Errorf("read frame length: %w", err)
		case c.idleLeft() <= 0 && (len(prefix) > 0 || c.outstanding.Load() == 0):
			return nil, fmt.Errorf("idle for %v", c.server.options.IdleTimeout)
		}
		c.readArmed = false
	}
}

// readFrame reserves memory for n bytes and reads them.
func (c *Conn) readFrame(n int) (*Frame, error) {
	c.in.Discard(4) // buffered by Peek
	cost := frameCost(n)
	if err := c.server.options.Memory.Reserve(c.ctx, cost); err != nil {
		return nil, err
	}
	f := NewFrame(n)
	f.budget, f.reserved = c.server.options.Memory, cost
	if err := c.readBody(f.Body); err != nil {
		f.Release()
		if c.stopped.Load() {
			return nil, ErrShutdown
		}
		return nil, fmt.Errorf("read frame of %d bytes: %w", n, err)
	}
	c.server.stats.BytesIn.Add(int64(n) + 4)
	c.touch(time.Now())
	return f, nil
}

// bodyTimeout is how long a client may send nothing in the middle of a frame,
// whose memory is reserved: a few that claim large frames and stop could
// otherwise keep everybody's memory for the whole idle time.
const bodyTimeout = 30 * time.Second

// readBody fills b. Every piece that arrives gives the client more time.
func (c *Conn) readBody(b []byte) error {
	for len(b) > 0 {
		if c.in.Buffered() == 0 {
			c.armReadFor(bodyTimeout)
		}
		n, err := c.in.Read(b)
		b = b[n:]
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	return nil
}

// serve hands a frame to the session and queues the reply; it blocks while the
// queue is full. A panic is a bug of ours and costs this connection only.
func (c *Conn) serve(f *Frame) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f.Abandon() // what it was appended to may still read it
			f.Release()
			err = c.crashed(p)
		}
	}()
	reply, err := c.session.Serve(f)
	if reply == nil {
		f.Release()
		return err
	}
	c.outstanding.Add(1)
	c.queue <- queued{reply, f}
	return err
}

func (c *Conn) crashed(p any) error {
	if report := c.server.options.Events.Crashed; report != nil {
		report(c, p, debug.Stack())
	}
	return fmt.Errorf("internal error: %v", p)
}

// stopReading ends readFrames; what is queued is still answered.
func (c *Conn) stopReading() {
	c.stopped.Store(true)
	c.socket.SetReadDeadline(time.Unix(1, 0))
}

// armRead lets the client be silent for what is left of the idle time, or for all
// of it when nothing is: then it waits for an answer.
func (c *Conn) armRead() {
	left := c.idleLeft()
	if left <= 0 {
		left = c.server.options.IdleTimeout
	}
	c.armReadFor(left)
}

// armReadFor lets the client be silent for so long, from now, but not longer than
// the idle time.
func (c *Conn) armReadFor(limit time.Duration) {
	if idle := c.server.options.IdleTimeout; idle >= 0 {
		limit = min(limit, idle)
	}
	var deadline time.Time // none
	if limit < math.MaxInt64 {
		deadline = time.Now().Add(limit)
	}
	c.readArmed = true
	c.socket.SetReadDeadline(deadline)
	if c.stopped.Load() { // came in between: its deadline must win
		c.socket.SetReadDeadline(time.Unix(1, 0))
	}
}

func (c *Conn) touch(now time.Time) { c.lastActive.Store(now.UnixNano()) }

// idleLeft is how long the client may still be silent; what is not positive means
// that it was for too long.
func (c *Conn) idleLeft() time.Duration {
	idle := c.server.options.IdleTimeout
	if idle < 0 {
		return math.MaxInt64
	}
	return idle - time.Duration(time.Now().UnixNano()-c.lastActive.Load())
}
