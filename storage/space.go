package storage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeemq/perigee/storage/vfs"
)

// space refuses appends before the file system does, so that there is room left
// to end transactions, to delete and to take the checkpoint that frees journal
// files. It asks the file system once per a fraction of the reserve while all is
// well, and at every append while it is not; and now and then without any append,
// so that the state is true when nobody produces.
type space struct {
	fs      vfs.FS
	reserve int64
	events  *Events

	spent atomic.Int64 // bytes appended since the file system was asked
	low   atomic.Bool

	mu sync.Mutex // one asker at a time, until the change it made is told
}

// The file system is asked again after reserve/askEvery bytes of appends.
const askEvery = 8

// admit answers ErrStorageFull when an append would use the reserve and may not.
//
//	free space         clients   coordinator facts   calls with a marker, or that free space
//	above the reserve  yes       yes                 yes
//	above half of it   no        yes                 yes
//	below              no        no                  yes: they end what holds on to space
func (s *space) admit(appends []Append) error {
	if s.reserve == 0 {
		return nil
	}
	var n int64
	internal, ends := true, false
	for i := range appends {
		n += int64(appends[i].Batch.Len())
		internal = internal && appends[i].Internal
		ends = ends || appends[i].Frees || appends[i].Batch.IsControl()
	}
	if spent := s.spent.Add(n); !s.low.Load() && spent < s.reserve/askEvery {
		return nil
	}
	free, err := s.ask(n)
	if err != nil {
		return nil // what cannot be asked will say so itself when written to
	}
	if free-n >= s.reserve || internal && (ends || free-n >= s.reserve/2) {
		return nil
	}
	return fmt.Errorf("%w: %d bytes are free, %d are kept", ErrStorageFull, free, s.reserve)
}

// ask brings the state up to date for somebody who wants n bytes. The state is
// left a little above where it is entered, so that it does not change to and fro
// with every batch that comes close.
func (s *space) ask(n int64) (free int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, _, err = s.fs.Free()
	if err != nil {
		return 0, err
	}
	s.spent.Store(0)
	limit := s.reserve
	if s.low.Load() {
		limit += s.reserve / askEvery
	}
	low := free-n < limit
	switch {
	case s.low.Swap(low) == low:
	case low:
		s.events.storageFull(free)
	default:
		s.events.storageFree(free)
	}
	return free, nil
}

// exhausted says that a write met the end of the space: the next append asks.
func (s *space) exhausted() { s.spent.Store(s.reserve) }

// How often the file system is asked when nobody appends: rarely while all is
// well, soon again while it is not.
const (
	spaceInterval = 10 * time.Second
	spaceRetry    = time.Second
)

// checkSpace sees what appends do not: others that use the disk or leave it, and
// files of ours that went.
func (e *Engine) checkSpace(context.Context, uint64) error {
	if e.space.reserve == 0 {
		return nil
	}
	_, err := e.space.ask(0)
	if e.space.low.Load() {
		e.jobs.after(jobSpace, spaceRetry)
	}
	return err
}
