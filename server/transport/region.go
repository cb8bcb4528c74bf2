package transport

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// copyChunk is how much of a region is copied at a time where sendfile cannot
// be used: over TLS, in process, from a file system in memory.
const copyChunk = 64 << 10

var chunkBuffers = sync.Pool{New: func() any { return new([copyChunk]byte) }}

// copyRegion sends a region through memory.
func (c *Conn) copyRegion(f File, pos, n int64) error {
	buffer := chunkBuffers.Get().(*[copyChunk]byte)
	defer chunkBuffers.Put(buffer)
	for n > 0 {
		chunk := buffer[:min(n, copyChunk)]
		if err := readRegion(f, chunk, pos); err != nil {
			return err
		}
		c.armWrite()
		if _, err := c.socket.Write(chunk); err != nil {
			return err
		}
		pos += int64(len(chunk))
		n -= int64(len(chunk))
	}
	return nil
}

// readRegion reads exactly len(b) bytes. A file that ends early was promised to
// be longer: the answer's length is on the wire already, so the connection has
// to go.
func readRegion(f File, b []byte, pos int64) error {
	n, err := f.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(b), pos, err)
}
