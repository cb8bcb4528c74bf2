package storage

import "github.com/perigeemq/perigee/storage/vfs"

// Slice is a counted reference to whole batches of one segment file. The file
// stays until Release, whatever retention, compaction or deletion do.
type Slice struct{ n int }

// Len is its size in bytes.
func (s *Slice) Len() int { return s.n }

// Region is where the bytes stand, for sendfile. Good until Release.
func (s *Slice) Region() (f vfs.File, pos int64, n int) { return nil, 0, 0 }

// Bytes reads them.
func (s *Slice) Bytes() ([]byte, error) { return nil, ErrClosed }

// Release gives the reference back. Twice is harmless.
func (s *Slice) Release() {}
