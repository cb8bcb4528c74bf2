package transport

import (
	"encoding/binary"
	"syscall"
)

// tcpClosed is TCP_CLOSE of Linux's tcp_states.h: nothing can be sent or received
// any more.
const tcpClosed = 7

// Reset reports whether the client has torn the connection down. What it sent
// before is still read, but whoever sent it has given up on the answer, and may
// have asked somebody else since. A client that only closed its side for writing
// still waits, so it is not meant here.
func (c *Conn) Reset() bool {
	if c.ctx.Err() != nil {
		return true
	}
	if c.tcp == nil {
		return false
	}
	closed := false
	err := c.tcp.Control(func(fd uintptr) {
		// The first byte of tcp_info is the state.
		info, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], uint32(info))
		closed = err == nil && b[0] == tcpClosed
	})
	return closed || err != nil // a socket we have closed ourselves
}
