package storage

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/perigeemq/perigee/storage/segment"
	"github.com/perigeemq/perigee/storage/vfs"
)

// Slice is a counted reference to whole batches of one segment file. The file
// stays until Release, whatever retention, compaction or deletion do.
type Slice struct {
	segment  *segment.Segment
	file     vfs.File
	pos      int64
	n        int
	released atomic.Bool
}

// Len is its size in bytes.
func (s *Slice) Len() int { return s.n }

// Region is where the bytes stand, for sendfile. Good until Release.
func (s *Slice) Region() (f vfs.File, pos int64, n int) { return s.file, s.pos, s.n }

// Bytes reads them into memory of the caller's own.
func (s *Slice) Bytes() ([]byte, error) {
	b := make([]byte, s.n)
	if _, err := s.file.ReadAt(b, s.pos); err != nil {
		if errors.Is(err, io.EOF) {
			err = &CorruptionError{File: s.segment.Path(), Offset: s.pos, Reason: "the file ends early"}
		}
		return nil, err
	}
	return b, nil
}

// Release gives the reference back. Twice is harmless.
func (s *Slice) Release() {
	if !s.released.Swap(true) {
		s.segment.Release()
	}
}
