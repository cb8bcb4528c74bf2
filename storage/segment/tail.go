package segment

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/storage/vfs"
)

// tail is the end of a log that is not in its file yet. Small batches gather here
// and are written in one piece when there are tailBytes of them, or when somebody
// wants the file: a reader, a checkpoint. Nothing durable depends on it, because the
// journal has the same bytes until a checkpoint has synced the file.
//
//	file │ batches │              what Acquire gives has everything
//	tail           │ b │ b │ room
//	               from
//
// Its lock is taken before that of the handle and held over the write, so that
// bytes leave in their order.
type tail struct {
	sync.Mutex
	b *[tailBytes]byte // nil: empty
	n int
	// from is where b stands in the file, nowhere when it is empty. It may be read
	// without the lock: what was written before the reader looked is then either
	// announced here or in the file.
	from atomic.Int64
	// reach is how far this process has written to the file; it may have tried only.
	reach int64
	// leaving is how far the file was sent to the disk, nowhere before the first write.
	leaving int64
}

const (
	// tailBytes is four pages: a sixteenth of the calls of small batches, and little
	// enough for thousands of partitions.
	tailBytes = 16 << 10
	// maxTails bounds the memory of all tails to 32 MiB. Batches of further segments
	// are written at once.
	maxTails = 2048

	nowhere = math.MaxInt64
)

var tailBuffers = sync.Pool{New: func() any { return new([tailBytes]byte) }}

// keepLocked puts a batch into the tail; false when it does not fit or would leave a
// gap.
func (s *Segment) keepLocked(b []byte, pos int64) bool {
	t := &s.tail
	if len(b) > tailBytes-t.n || t.b == nil && !s.openTailLocked(pos) || pos != t.from.Load()+int64(t.n) {
		return false
	}
	t.n += copy(t.b[t.n:], b)
	return true
}

// openTailLocked begins an empty tail at a position.
func (s *Segment) openTailLocked(pos int64) bool {
	if !s.opened.Load() {
		return false // the first write opens the file, so that what can go wrong does so early
	}
	if s.files.tails.Add(1) > maxTails {
		s.files.tails.Add(-1)
		return false
	}
	s.tail.b = tailBuffers.Get().(*[tailBytes]byte)
	s.tail.from.Store(pos)
	return true
}

// Flush puts everything written so far into the file, without syncing it. After an
// error nothing is lost.
func (s *Segment) Flush() error {
	if s.tail.from.Load() == nowhere {
		return nil
	}
	s.tail.Lock()
	defer s.tail.Unlock()
	return s.flushLocked()
}

func (s *Segment) flushLocked() error {
	t := &s.tail
	if t.b == nil {
		return nil
	}
	if err := s.writeThrough(t.b[:t.n], t.from.Load()); err != nil {
		return err
	}
	s.dropTailLocked()
	return nil
}

func (s *Segment) dropTailLocked() {
	t := &s.tail
	if t.b == nil {
		return
	}
	tailBuffers.Put(t.b)
	s.files.tails.Add(-1)
	t.b, t.n = nil, 0
	t.from.Store(nowhere)
}

// cutTailLocked removes what the tail has behind a position and returns how much
// that was.
func (s *Segment) cutTailLocked(size int64) (cut int64) {
	t := &s.tail
	if t.b == nil {
		return 0
	}
	cut = min(max(0, t.from.Load()+int64(t.n)-size), int64(t.n))
	if t.n -= int(cut); t.n == 0 {
		s.dropTailLocked()
	}
	return cut
}

// writeThrough writes to the file. The tail is locked.
func (s *Segment) writeThrough(b []byte, pos int64) error {
	f, err := s.pin()
	if err != nil {
		return err
	}
	defer s.Release()
	s.tail.reach = max(s.tail.reach, pos+int64(len(b)))
	_, err = f.WriteAt(b, pos)
	s.dirty.Store(true)
	if err == nil {
		s.leaveLocked(f, pos, pos+int64(len(b)))
	}
	return err
}

// leaveBytes is what may gather in the page cache before the disk gets it. Left
// alone, the system keeps it until a sync wants all of it at once, or until it gives
// the disk gigabytes in the middle of something else.
const leaveBytes = 256 << 10

// leaveLocked sends what was written on its way to the disk, a good piece at a time.
func (s *Segment) leaveLocked(f vfs.File, pos, end int64) {
	t := &s.tail
	if t.leaving > pos { // the first write of this process, or one again after Undo
		t.leaving = pos
	}
	if end-t.leaving >= leaveBytes {
		f.StartWriteback(t.leaving, end-t.leaving)
		t.leaving = end
	}
}

// Write puts bytes at a position without making them part of the segment; Append
// does that. After an error Undo. The bytes may be in memory until
// somebody acquires or syncs the file.
func (s *Segment) Write(b []byte, pos int64) error {
	s.tail.Lock()
	defer s.tail.Unlock()
	if s.keepLocked(b, pos) {
		return nil
	}
	if err := s.flushLocked(); err != nil {
		return err
	}
	if s.keepLocked(b, pos) {
		return nil
	}
	return s.writeThrough(b, pos)
}

// Acquire opens the log file if it is not open and pins it: it stays usable until
// Release. Everything written so far stands in it. A file that does not exist is
// created when the segment is empty.
func (s *Segment) Acquire() (vfs.File, error) {
	if err := s.Flush(); err != nil {
		return nil, err
	}
	return s.pin()
}
