package transport

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
)

// Over the loopback interface sendfile is not the quick way. It hands the receiver
// references to pages, four kilobytes each, in 64 KiB steps with a wake-up each; who
// reads them copies from memory that is in nobody's cache. Copying large answers
// here, megabytes at a time, gives a consumer on the same machine a quarter more and
// takes less CPU time on both sides. See docs/performance.md.
const (
	gatherBytes = 2 << 20
	// maxGathering bounds the memory of connections that copy, some of which wait
	// for slow readers, to 16 MiB. The others use sendfile.
	maxGathering = 8
)

var gatherBuffers = sync.Pool{New: func() any { return new([gatherBytes]byte) }}

// gathers reports whether parts should go through writeGathered.
func (c *Conn) gathers(parts []Part) bool {
	return c.raw != nil && c.ip.IsLoopback() &&
		slices.ContainsFunc(parts, func(p Part) bool { return p.File != nil && p.Len > copyBelow })
}

// writeGathered writes parts through one buffer; false when too many connections
// do, and nothing was written.
func (c *Conn) writeGathered(parts []Part) (done bool, err error) {
	if c.server.gathering.Add(1) > maxGathering {
		c.server.gathering.Add(-1)
		return false, nil
	}
	defer c.server.gathering.Add(-1)
	b := gatherBuffers.Get().(*[gatherBytes]byte)
	defer gatherBuffers.Put(b)
	n := 0
	for _, p := range parts {
		for at, size := int64(0), p.size(); at < size; {
			room := b[n:min(int64(n)+size-at, gatherBytes)]
			if p.File == nil {
				copy(room, p.Bytes[at:])
			} else if err := readRegion(p.File, room, p.Pos+at); err != nil {
				return true, err
			}
			n, at = n+len(room), at+int64(len(room))
			if n == gatherBytes {
				if err := c.writeAll(b[:]); err != nil {
					return true, err
				}
				n = 0
			}
		}
	}
	return true, c.writeAll(b[:n])
}

func (c *Conn) writeAll(b []byte) error {
	for len(b) > 0 {
		n, err := c.sendSome(func(socket int) (int, error) { return syscall.Write(socket, b) })
		if err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		b = b[n:]
	}
	return nil
}
