package transport

import (
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// foreign recognises another protocol by the first four bytes. As a frame
// length each of them would be above 350 MB.
func foreign(first []byte) string {
	switch s := string(first); {
	case s == "GET " || s == "POST" || s == "HEAD" || s == "PUT " || s == "OPTI" || s == "DELE" || s == "CONN":
		return "HTTP"
	case strings.HasPrefix(s, "\x16\x03"):
		return "TLS"
	}
	return ""
}

// turnAway answers somebody who speaks another protocol in that protocol, as
// far as one message goes, and returns the reason for closing.
func (c *Conn) turnAway(spoken string) error {
	if report := c.server.options.Events.Foreign; report != nil {
		report(c, spoken)
	}
	c.socket.SetDeadline(time.Now().Add(time.Second))
	switch spoken {
	case "HTTP":
		text := fmt.Sprintf("This port speaks %s, not HTTP. %s\n", c.listener.Protocol.Name(), c.server.options.HTTPHint)
		fmt.Fprintf(c.socket, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	case "TLS":
		// A fatal alert, protocol_version: the client's library reports that the
		// server has no TLS instead of waiting for a handshake.
		c.socket.Write([]byte{0x15, 3, 1, 0, 2, 2, 70})
	}
	// Unread bytes would turn the close into a reset that overtakes the answer.
	if half, ok := c.socket.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		io.CopyN(io.Discard, c.in, 64<<10)
	}
	return fmt.Errorf("client speaks %s: %w", spoken, net.ErrClosed)
}
