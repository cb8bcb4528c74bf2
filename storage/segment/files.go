package segment

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Files bounds the number of open log files of an engine.
type Files struct {
	fs    vfs.FS
	limit int
	tails atomic.Int64 // of all segments, see tail
	names names
	// failed is told of a failed sync of a file that was closed to make room for
	// another one: whoever needed the room cannot know what that means.
	failed func(*SyncError)

	mu struct {
		sync.Mutex
		open []*Segment // in no order; hand is where the search for a victim goes on
		hand int
	}
}

// NewFiles returns a cache of at most limit open files, more only when more are
// pinned at once.
func NewFiles(fs vfs.FS, limit int) *Files {
	return &Files{fs: fs, limit: max(limit, 1), failed: func(*SyncError) {}}
}

// OnSyncError sets what is called, under a segment's lock, when the sync of a file
// fails that is being closed. Set it before the first Acquire.
func (c *Files) OnSyncError(failed func(*SyncError)) { c.failed = failed }

// Open is the number of open files.
func (c *Files) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.open)
}

// admit enters a segment whose file has been opened, and closes another one when
// there are too many.
func (c *Files) admit(s *Segment) error {
	c.mu.Lock()
	s.slot = len(c.mu.open)
	c.mu.open = append(c.mu.open, s)
	var victim *Segment
	if len(c.mu.open) > c.limit {
		victim = c.chooseLocked(s)
	}
	c.mu.Unlock()
	if victim == nil {
		return nil
	}
	defer victim.handle.Unlock()
	return victim.closeLocked()
}

// chooseLocked looks for an unpinned file that was not used since the hand passed
// it last, and returns it with its handle locked; nil when all are in use.
func (c *Files) chooseLocked(not *Segment) *Segment {
	for range 2 * len(c.mu.open) {
		c.mu.hand = (c.mu.hand + 1) % len(c.mu.open)
		s := c.mu.open[c.mu.hand]
		// The opener holds its own handle; trying keeps two openers from waiting for
		// each other.
		if s == not || !s.handle.TryLock() {
			continue
		}
		switch {
		case s.handle.pins > 0 || s.handle.file == nil:
		case s.handle.used:
			s.handle.used = false
		default:
			return s
		}
		s.handle.Unlock()
	}
	return nil
}

func (c *Files) forget(s *Segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.mu.open) - 1
	if s.slot > last || c.mu.open[s.slot] != s {
		return
	}
	c.mu.open[s.slot] = c.mu.open[last]
	c.mu.open[s.slot].slot = s.slot
	c.mu.open[last] = nil
	c.mu.open = c.mu.open[:last]
}

// ErrRemoved says that the segment's files are gone. Whoever wanted to read it holds
// an old list of segments.
var ErrRemoved = errors.New("segment removed")

// pin is Acquire without the tail.
func (s *Segment) pin() (vfs.File, error) {
	s.handle.Lock()
	defer s.handle.Unlock()
	if s.handle.removed {
		return nil, ErrRemoved
	}
	if s.handle.file == nil {
		if err := s.openLocked(); err != nil {
			return nil, err
		}
	}
	s.handle.pins++
	s.handle.used = true
	return s.handle.file, nil
}

func (s *Segment) openLocked() error {
	f, err := s.files.fs.Open(s.path(s.id.LogName()))
	if errors.Is(err, fs.ErrNotExist) && s.size.Load() == 0 {
		f, err = s.create()
	} else if errors.Is(err, fs.ErrNotExist) {
		err = &CorruptionError{File: s.Path(), Reason: "the file is missing"}
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	// In this order: the tail begins before its bytes are counted.
	want := s.size.Load()
	if want = min(want, s.tail.from.Load()); err == nil && size < want {
		err = &CorruptionError{File: f.Name(), Offset: size, Reason: "the file ends early"}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.handle.file = f
	s.opened.Store(true)
	return s.files.admit(s)
}

// create makes the partition's directory too: it exists from the first append on.
// The new names are durable after SyncDirs.
func (s *Segment) create() (vfs.File, error) {
	s.dirty.Store(true)
	f, err := s.files.fs.Create(s.path(s.id.LogName()))
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.files.fs.MkdirAll(s.dir); err == nil {
			f, err = s.files.fs.Create(s.path(s.id.LogName()))
		}
	}
	s.MarkNew() // now: a sync that begins from here on covers the names
	return f, err
}

// Release undoes one Acquire.
func (s *Segment) Release() {
	s.handle.Lock()
	defer s.handle.Unlock()
	s.handle.pins--
}

// closeLocked closes the file. The handle's lock is held, nobody has it pinned.
func (s *Segment) closeLocked() error {
	f := s.handle.file
	if f == nil {
		return nil
	}
	s.handle.file = nil
	s.files.forget(s)
	if size := s.size.Load(); s.sealed.Load() && s.index.saved.Load() == size {
		s.index.reset(size, s.Meta().MaxTimestamp)
	}
	var err error
	if s.dirty.Load() {
		if err = f.Sync(); err != nil {
			failed := &SyncError{File: f.Name(), Err: err}
			s.files.failed(failed) // before the segment looks clean to a checkpoint
			err = failed
		}
		// Only now, and nobody has written meanwhile: a checkpoint that saw a clean
		// segment would not wait for this sync.
		s.dirty.Store(false)
	}
	return errors.Join(err, f.Close())
}

// Close closes the file if nobody has it pinned.
func (s *Segment) Close() error {
	s.handle.Lock()
	defer s.handle.Unlock()
	if s.handle.pins > 0 {
		return nil
	}
	return s.closeLocked()
}

// Remove deletes the files of a segment that is no longer part of its partition;
// false while somebody has it pinned.
func (s *Segment) Remove() (bool, error) {
	s.tail.Lock()
	defer s.tail.Unlock()
	s.handle.Lock()
	defer s.handle.Unlock()
	if s.handle.pins > 0 {
		return false, nil
	}
	s.dropTailLocked()
	s.dirty.Store(false) // there is nothing left to sync
	if err := s.closeLocked(); err != nil {
		return false, err
	}
	for _, name := range []string{s.id.LogName(), s.id.IndexName()} {
		if err := s.files.fs.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	s.handle.removed = true
	return true, nil
}

// Sync makes what was appended before the call durable, the file's name too. It
// does nothing when nothing was appended since the last one.
func (s *Segment) Sync() (synced bool, err error) {
	if err := s.Flush(); err != nil {
		return false, err
	}
	if !s.dirty.Swap(false) {
		// The bytes may have been synced when the file was closed for another one.
		return false, s.syncName()
	}
	f, err := s.pin()
	if err != nil {
		return false, err
	}
	defer s.Release()
	if err := f.Sync(); err != nil {
		return false, &SyncError{File: f.Name(), Err: err}
	}
	return true, s.syncName()
}

// syncName makes the directory entries on the way to a new file durable.
func (s *Segment) syncName() error {
	// Whoever comes second waits: an entry of the journal must not refer to a file
	// whose name is still on its way to the disk.
	s.naming.Lock()
	defer s.naming.Unlock()
	if !s.newName.Load() {
		return nil
	}
	for _, dir := range s.parents {
		if err := s.files.names.sync(dir, s.files.fs.SyncDir); err != nil {
			return &SyncError{File: dir, Err: err}
		}
	}
	s.newName.Store(false)
	return nil
}

// SyncError says that a sync failed: nobody knows what is durable, and asking
// again would be answered by a page cache that has forgotten.
type SyncError struct {
	File string // or directory
	Err  error  // names it too
}

func (e *SyncError) Error() string { return "segment: " + e.Err.Error() }
func (e *SyncError) Unwrap() error { return e.Err }

// reference is the log file as the journal syncs it: with its name.
type reference struct {
	vfs.File
	s *Segment
}

func (r reference) Sync() error {
	if err := r.File.Sync(); err != nil {
		return err
	}
	return r.s.syncName()
}

// Reference is an acquired file whose Sync makes the file's name durable too.
func (s *Segment) Reference(f vfs.File) vfs.File { return reference{File: f, s: s} }
