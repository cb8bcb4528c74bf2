package transport

import (
	"context"
	"fmt"
	"io"
	"time"
)

// A Refuser is a Session that has a last word for a frame longer than
// Options.MaxFrameBytes. Its answer is sent after those in progress, then the
// connection is closed; the frame's body is not read.
type Refuser interface {
	Refuse(frameBytes uint32) Reply
}

// Context ends with the connection, its cause says why.
func (c *Conn) Context() context.Context { return c.ctx }

// Push hands the write goroutine a reply that answers no frame; it leaves between
// two answers. It waits while the writer is busy with earlier ones, so the
// client's reading speed bounds what is in memory. After nil the reply is run
// exactly once, as every reply is; after an error it is not. It must not block.
// Any goroutine may call Push, but not the connection's own two.
func (c *Conn) Push(ctx context.Context, r Reply) error {
	select {
	case c.pushes <- r:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.written:
		return errClosed
	}
}

// Offer is Push that gives up at once when the writer is busy. It may be called
// from any goroutine but the writer's.
func (c *Conn) Offer(r Reply) bool {
	select {
	case c.pushes <- r:
		return true
	default:
		return false
	}
}

// hungUp is why a connection was ended, and the last word; nil is none.
type hungUp struct {
	reason error
	last   Reply
}

// HangUp ends the connection for a reason of the protocol's: nothing more is
// read, what is queued is still answered, and last, unless nil, comes behind it.
// The first reason counts. last is not run if the client hung up first, so it must
// hold nothing. Any goroutine may call HangUp.
func (c *Conn) HangUp(reason error, last Reply) {
	c.hungUp.CompareAndSwap(nil, &hungUp{reason, last})
	c.stopReading()
}

// refuseFrame ends a connection whose next frame is too long, after the
// session's last word if it has one.
func (c *Conn) refuseFrame(n uint32) error {
	err := fmt.Errorf("frame of %d bytes announced, at most %d", n, c.server.options.MaxFrameBytes)
	if r, ok := c.session.(Refuser); ok {
		c.queue <- queued{reply: r.Refuse(n)}
		return fmt.Errorf("%w: %w", errLastReply, err)
	}
	return err
}

// lingerTime and lingerBytes bound what is read and thrown away from a client
// that was told why its connection ends.
const (
	lingerTime  = 250 * time.Millisecond
	lingerBytes = 64 << 10
)

// linger lets the client read the last answer: closing a socket with unread
// bytes would be a reset, which may overtake it.
func (c *Conn) linger() {
	half, ok := c.socket.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.socket.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, c.in, lingerBytes)
}
