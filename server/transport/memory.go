package transport

import (
	"context"
	"net"
	"sync"
)

// MemoryListener is a listener inside the process: what Dial returns is the
// other end of what Accept returns. The embeddable broker and tests use it;
// nothing in it leaves a synctest bubble.
type MemoryListener struct {
	address MemoryAddr
	pending chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// MemoryAddr is the address of both ends of an in-process connection.
type MemoryAddr string

// Network returns "memory".
func (MemoryAddr) Network() string { return "memory" }

func (a MemoryAddr) String() string { return string(a) }

// ListenMemory returns a listener with an address of the form host:port, which
// clients may be told but nobody resolves.
func ListenMemory(address string) *MemoryListener {
	return &MemoryListener{address: MemoryAddr(address), pending: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects; it waits until the connection is accepted.
func (l *MemoryListener) Dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.pending <- memoryConn{theirs, l.address}:
		return memoryConn{ours, l.address}, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: l.address, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *MemoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.pending:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *MemoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *MemoryListener) Addr() net.Addr { return l.address }

type memoryConn struct {
	net.Conn
	address MemoryAddr
}

func (c memoryConn) LocalAddr() net.Addr  { return c.address }
func (c memoryConn) RemoteAddr() net.Addr { return c.address }
