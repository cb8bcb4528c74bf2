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
		var sent int
		var failure error
		c.armWrite()
		err := c.raw.Write(func(socket uintptr) (done bool) {
			at := pos
			sent, failure = syscall.Sendfile(int(socket), int(fd), &at, int(min(n, sendfileChunk)))
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
		switch {
		case err != nil:
			return err
		case errors.Is(failure, syscall.EINVAL), errors.Is(failure, syscall.ENOSYS):
			return c.copyRegion(f, pos, n) // a file system without it
		case failure != nil:
			return failure
		}
		pos += int64(sent)
		n -= int64(sent)
	}
	return nil
}
