package journal

import (
	"fmt"

	"github.com/perigeemq/perigee/storage/vfs"
)

// buffer gathers what the flusher writes, so that it leaves in whole pages from
// aligned memory: the file is a direct one, see vfs.FS.OpenDirect. Between two
// flushes it keeps the page the last entry ended in, because the next flush writes
// that page again with more in it:
//
//	disk     │ page  │ page  │ last page: end of an entry, zeros │
//	buffer                   │ same                              │ room …
//	                         at                n
type buffer struct {
	b  []byte // from vfs.Aligned
	n  int    // bytes gathered
	at int64  // offset in the file of b[0], a multiple of pageBytes
}

// A buffer begins small, for brokers with little to write, and grows up to what a
// disk streams at its full speed in one write. What is more leaves in several.
const (
	firstBufferBytes = 64 << 10
	maxBufferBytes   = 1 << 20
)

// moveTo begins a file: what is gathered next stands at off, a page's start.
func (o *buffer) moveTo(off int64) { o.n, o.at = 0, off }

// offset is where the next byte goes.
func (o *buffer) offset() int64 { return o.at + int64(o.n) }

// reserve makes room for n bytes more, as far as a buffer may grow.
func (o *buffer) reserve(n int64) {
	size := max(len(o.b), firstBufferBytes)
	for int64(size) < int64(o.n)+n+pageBytes && size < maxBufferBytes {
		size *= 2
	}
	if size > len(o.b) {
		larger := vfs.Aligned(size)
		copy(larger, o.b[:o.n])
		o.b = larger
	}
}

// put gathers p, and writes to f when the buffer is full.
func (o *buffer) put(f vfs.File, p []byte) error {
	for {
		n := copy(o.b[o.n:], p)
		o.n += n
		if p = p[n:]; len(p) == 0 {
			return nil
		}
		if err := o.write(f, len(o.b)); err != nil {
			return err
		}
		o.n, o.at = 0, o.at+int64(len(o.b))
	}
}

// finish writes what is gathered, with zeros up to the end of the page.
func (o *buffer) finish(f vfs.File) error {
	end := (o.n + pageBytes - 1) &^ (pageBytes - 1)
	clear(o.b[o.n:end])
	if err := o.write(f, end); err != nil {
		return err
	}
	last := o.n &^ (pageBytes - 1)
	copy(o.b, o.b[last:o.n])
	o.n, o.at = o.n-last, o.at+int64(last)
	return nil
}

func (o *buffer) write(f vfs.File, n int) error {
	if n == 0 {
		return nil
	}
	if _, err := f.WriteAt(o.b[:n], o.at); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}
