package transport

import (
	"errors"
	"io"
	"syscall"
)

// sendfileChunk bounds one system call, so that the write deadline is renewed
// while a slow but living client takes a large region.
const sendfileChunk = 1 << 20

// sendRegion sends n bytes of f from pos. The kernel copies them from the page
// cache to the socket; the position is explicit, since several connections read
// one file at the same time.
func (c *Conn) sendRegion(f File, pos, n int64) error {
	fd, ok := f.Fd()
	if !ok || c.raw == nil {
		return c.copyRegion(f, pos, n)
	}
	for n > 0 {
		sent, err := c.sendSome(func(socket int) (int, error) {
			at := pos
			return syscall.Sendfile(socket, int(fd), &at, int(min(n, sendfileChunk)))
		})
		switch {
		case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS):
			return c.copyRegion(f, pos, n) // a file system without it
		case err != nil:
			return err
		}
		pos += int64(sent)
		n -= int64(sent)
	}
	return nil
}

// sendSome runs a system call that sends something once the socket takes it, and
// gives the client new time for that.
func (c *Conn) sendSome(call func(socket int) (int, error)) (sent int, err error) {
	c.armWrite()
	var failure error
	err = c.raw.Write(func(socket uintptr) (done bool) {
		sent, failure = call(int(socket))
		switch {
		case errors.Is(failure, syscall.EINTR):
			sent, failure = 0, nil
			return true
		case errors.Is(failure, syscall.EAGAIN):
			return false // wait until the socket takes more
		case failure == nil && sent == 0:
			failure = io.ErrUnexpectedEOF
		}
		return true
	})
	if err == nil {
		err = failure
	}
	return max(sent, 0), err
}
