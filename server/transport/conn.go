package transport

import "net"

// Conn is one accepted connection, as a protocol sees it.
type Conn struct {
	socket   net.Conn
	listener *Listener
	id       uint64
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
