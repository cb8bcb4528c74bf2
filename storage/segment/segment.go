package segment

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// Segment is one log file and its index.
type Segment struct {
	id      ID
	dir     string   // of the partition, relative to the data directory
	parents []string // directories on the way to it, innermost first
	files   *Files
	every   int // bytes of log per index entry

	size    atomic.Int64
	dirty   atomic.Bool // bytes of the file that no Sync has covered
	opened  atomic.Bool // the file has been, by this process
	sealed  atomic.Bool // nothing will be appended any more
	newName atomic.Bool // a file whose directory entry no Sync has covered
	naming  sync.Mutex  // held while it is synced

	handle struct {
		sync.Mutex
		file    vfs.File // nil: not open
		pins    int
		used    bool // since the search for a victim came by
		removed bool
	}
	slot int // in Files; guarded by its lock

	tail  tail
	meta  guardedMeta
	index index
}

// Meta is what is known of a segment without reading it. It stands in checkpoints.
type Meta struct {
	ID
	Size int64
	// Next is the offset behind the last batch; the base when there is none. After
	// compaction it may be below the base of the following segment.
	Next model.Offset
	// MaxTimestamp is the largest timestamp of any batch, model.NoTimestamp when there
	// is none, and MaxTimestampBase the base offset of the first batch that has it.
	MaxTimestamp     model.Timestamp
	MaxTimestampBase model.Offset
	// Created is when the first batch was appended, Unix milliseconds by our clock.
	Created int64
	// Touched is when the last batch was appended, or when the segment was read back
	// from a checkpoint, which does not have it.
	Touched int64
}

type guardedMeta struct {
	sync.Mutex
	m Meta
}

// New describes a segment; it does not touch the disk. Meta.Size 0 means that
// nothing has been appended and the file may not exist. parents are the
// directories whose entries lead to the file, innermost (dir itself) first.
func New(files *Files, dir string, parents []string, m Meta, indexInterval int) *Segment {
	s := &Segment{id: m.ID, dir: dir, parents: parents, files: files, every: indexInterval}
	if m.Size == 0 {
		m.Next, m.MaxTimestamp, m.MaxTimestampBase = m.Base, model.NoTimestamp, model.NoOffset
	}
	s.meta.m = m
	s.size.Store(m.Size)
	s.tail.from.Store(nowhere)
	s.tail.leaving = nowhere
	s.index.from, s.index.bound = m.Size, m.MaxTimestamp // nothing in front of it is indexed yet
	return s
}

// ID names the segment within its partition.
func (s *Segment) ID() ID { return s.id }

// Base is the first offset the segment is for.
func (s *Segment) Base() model.Offset { return s.id.Base }

// Size is the length of the log in bytes.
func (s *Segment) Size() int64 { return s.size.Load() }

// Meta is a snapshot.
func (s *Segment) Meta() Meta {
	s.meta.Lock()
	defer s.meta.Unlock()
	m := s.meta.m
	m.Size = s.size.Load()
	return m
}

// Seal says that nothing will be appended any more.
func (s *Segment) Seal() { s.sealed.Store(true) }

// Sealed reports whether Seal has been called.
func (s *Segment) Sealed() bool { return s.sealed.Load() }

// MarkNew says that the file's name may not be durable, though the file is there:
// it was made by a run that has crashed.
func (s *Segment) MarkNew() {
	s.files.names.made(s.parents)
	s.newName.Store(true)
}

// Path is the log file's name relative to the data directory.
func (s *Segment) Path() string { return s.path(s.id.LogName()) }

func (s *Segment) path(name string) string { return s.dir + "/" + name }

// Dirty reports whether there are bytes, or a name, no Sync has covered.
func (s *Segment) Dirty() bool {
	// In this order: bytes on their way from the tail to the file are dirty before they
	// leave the tail.
	return s.tail.from.Load() != nowhere || s.dirty.Load() || s.newName.Load()
}

// Read fills b with what stands at a position.
func (s *Segment) Read(b []byte, pos int64) error {
	f, err := s.Acquire()
	if err != nil {
		return err
	}
	defer s.Release()
	if _, err := f.ReadAt(b, pos); err != nil {
		if errors.Is(err, io.EOF) {
			return s.corrupt(pos, "the file ends early")
		}
		return err
	}
	return nil
}

// Append enters a batch that Write has put at the end. now is Unix milliseconds.
func (s *Segment) Append(h *batch.Header, now int64) {
	pos := s.size.Load()
	s.index.add(s.id.Base, h, pos, s.every)
	s.meta.Lock()
	s.meta.m.add(h, pos, now)
	s.meta.Unlock()
	s.size.Store(pos + int64(h.Len))
}

func (m *Meta) add(h *batch.Header, pos, now int64) {
	if pos == 0 {
		m.Created = now
	}
	if h.MaxTimestamp > m.MaxTimestamp {
		m.MaxTimestamp, m.MaxTimestampBase = h.MaxTimestamp, h.BaseOffset
	}
	m.Next, m.Touched = h.NextOffset(), now
}

// Undo removes what Write put behind the segment's size. It opens the file only if
// something got there.
func (s *Segment) Undo() error {
	s.tail.Lock()
	defer s.tail.Unlock()
	size := s.size.Load()
	s.cutTailLocked(size)
	if s.tail.reach <= size {
		return nil
	}
	f, err := s.pin()
	if err != nil {
		return err
	}
	defer s.Release()
	s.dirty.Store(true)
	if err := f.Truncate(size); err != nil {
		return err
	}
	s.tail.reach = size
	return nil
}

// Cut removes what the file has behind the segment's size: what a crash left of
// appends that were never acknowledged.
func (s *Segment) Cut() (cut int64, err error) {
	s.tail.Lock()
	defer s.tail.Unlock()
	cut = s.cutTailLocked(s.size.Load())
	f, err := s.pin()
	if err != nil {
		return 0, err
	}
	defer s.Release()
	size, err := f.Size()
	if err != nil || size <= s.size.Load() {
		return cut, err
	}
	s.dirty.Store(true)
	return cut + size - s.size.Load(), f.Truncate(s.size.Load())
}

// IndexBytes is the larger of the two tables as Kafka counts them: what
// segment.index.bytes limits.
func (s *Segment) IndexBytes() int { return s.index.bytes() }

// Fits reports whether an offset can be indexed relative to the base.
func (s *Segment) Fits(last model.Offset) bool { return int64(last-s.id.Base) <= 1<<31-1 }
