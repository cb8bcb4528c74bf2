//go:build !linux

package transport

// Reset reports whether the connection has failed. Elsewhere it also sees a
// client's reset before a read or write meets it.
func (c *Conn) Reset() bool { return c.ctx.Err() != nil }
