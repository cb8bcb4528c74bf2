package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"time"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
)

// Files that are no longer part of the log must outlive two things: the
// checkpoints that name them, which a recovery would start from, and the readers
// that hold them.
//
//	in a list ──► obsolete ──► delay over ──► two checkpoints without them ──► nobody reads ──► removed
//
// Two, because recovery falls back on the one before a damaged newest one.

// obsolete is files on their way out.
type obsolete struct {
	segments []*segment.Segment
	dirs     []string // removed with everything in them once the segments are, innermost first
	due      time.Time
	listed   uint64 // the checkpoints up to this number may name them
}

// reaper holds the obsolete files.
type reaper struct {
	sync.Mutex
	queue []obsolete
}

// discard gives up files after a delay. The segments are in no list any more.
func (e *Engine) discard(segments []*segment.Segment, dirs []string, delay time.Duration) {
	o := obsolete{segments: segments, dirs: dirs, due: time.Now().Add(delay), listed: e.checkpoints.begun.Load()}
	e.reaper.Lock()
	e.reaper.queue = append(e.reaper.queue, o)
	e.reaper.Unlock()
	if e.jobs != nil {
		e.jobs.after(jobReap, delay)
	}
}

// reapRetry is how long a file that is still being read is left alone.
const reapRetry = time.Second

// reap removes what is due. It takes checkpoints first when those there are may name
// what it wants to remove.
func (e *Engine) reap(ctx context.Context, id uint64) error {
	due := e.takeDue()
	var listed uint64
	for _, o := range due {
		listed = max(listed, o.listed)
	}
	for len(due) > 0 && e.checkpoints.taken.Load() < listed+2 {
		if err := e.checkpoint(ctx, id); err != nil {
			e.putBack(due)
			return err
		}
	}
	var errs []error
	var left []obsolete
	for _, o := range due {
		done, err := e.remove(o)
		errs = append(errs, err)
		if !done {
			left = append(left, o)
		}
	}
	e.putBack(left)
	if e.space.low.Load() {
		e.jobs.kick(jobSpace)
	}
	return errors.Join(errs...)
}

func (e *Engine) takeDue() (due []obsolete) {
	e.reaper.Lock()
	defer e.reaper.Unlock()
	var later []obsolete
	for _, o := range e.reaper.queue {
		if time.Until(o.due) <= 0 {
			due = append(due, o)
		} else {
			later = append(later, o)
			e.jobs.after(jobReap, time.Until(o.due))
		}
	}
	e.reaper.queue = later
	return due
}

func (e *Engine) putBack(left []obsolete) {
	if len(left) == 0 {
		return
	}
	e.reaper.Lock()
	defer e.reaper.Unlock()
	for _, o := range left {
		o.due = time.Now().Add(reapRetry)
		e.reaper.queue = append(e.reaper.queue, o)
	}
	e.jobs.after(jobReap, reapRetry)
}

// remove deletes files; false when some are still in use or would not go.
func (e *Engine) remove(o obsolete) (done bool, err error) {
	done = true
	for _, s := range o.segments {
		removed, err := s.Remove()
		if err != nil {
			return false, err
		}
		done = done && removed
	}
	if !done {
		return false, nil
	}
	for i, dir := range o.dirs {
		if i > 0 {
			// The topic's directory goes with its last partition.
			_ = e.o.FS.Remove(dir)
			continue
		}
		if err := e.o.FS.RemoveAll(dir); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Delete makes the handles dead at once and wakes their waiters. Files go after
// FileDeleteDelay. Unknown partitions are skipped.
func (e *Engine) Delete(tps ...model.TopicPartition) error {
	if e.closed.Load() {
		return ErrClosed
	}
	for _, tp := range tps {
		k := e.withdraw(tp)
		if k == nil {
			continue
		}
		k.vis.Lock()
		segments := k.vis.segments
		k.vis.segments = nil
		k.vis.Unlock()
		if k.end.Load() == 0 {
			// It has held nothing, and so may be opened again: the topic is there, and was
			// only refused its growth. A directory that a failed append made stays until the
			// next start.
			continue
		}
		e.discard(segments, k.parents[:2], k.Config().FileDeleteDelay)
	}
	return nil
}

// Retain deletes everything on disk that keep does not want: what a crash left of
// topics whose deletion is a fact already. Call it once, after the catalog is known.
// In a repair the catalog may have lost facts too: then nothing is deleted but set
// aside.
func (e *Engine) Retain(keep func(model.TopicPartition) bool) error {
	var unwanted []model.TopicPartition
	for _, p := range e.all() {
		if !keep(p.tp) {
			unwanted = append(unwanted, p.tp)
		}
	}
	if e.o.Repair {
		return e.setAside(unwanted)
	}
	if err := e.Delete(unwanted...); err != nil {
		return err
	}
	return e.eachDirectory(func(tp model.TopicPartition) error {
		e.partitions.RLock()
		known := e.partitions.known[tp] != nil
		e.partitions.RUnlock()
		if !known && !keep(tp) && !e.reaperHas(tp) {
			e.discard(nil, newPartition(e, tp, 0).parents[:2], 0)
		}
		return nil
	})
}

// asideSuffix marks the directory of a partition that no topic has. Nothing looks into
// it, and it stays.
const asideSuffix = ".aside"

// setAside gives partitions up and keeps their files under another name.
func (e *Engine) setAside(tps []model.TopicPartition) error {
	for _, tp := range tps {
		k := e.withdraw(tp)
		if k == nil {
			continue
		}
		for _, s := range k.segments() {
			if err := errors.Join(s.Flush(), s.Close()); err != nil {
				return fmt.Errorf("set %s aside: %w", tp, err)
			}
		}
		aside := k.dir + asideSuffix
		for n := 2; ; n++ {
			if _, err := e.o.FS.Stat(aside); err != nil {
				break
			}
			aside = fmt.Sprint(k.dir, asideSuffix, n)
		}
		err := e.o.FS.Rename(k.dir, aside)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has held nothing
		}
		if err != nil {
			return fmt.Errorf("set %s aside: %w", tp, err)
		}
		e.o.Events.partitionRecovered(tp, "no topic has it; its files are set aside in "+aside)
	}
	return nil
}

// withdraw takes a partition out of the engine; nil when it is not there.
func (e *Engine) withdraw(tp model.TopicPartition) *known {
	e.partitions.Lock()
	k := e.partitions.known[tp]
	delete(e.partitions.known, tp)
	e.partitions.Unlock()
	if k == nil {
		return nil
	}
	k.mu.Lock() // behind the appends that are under way
	k.kill(ErrPartitionDeleted)
	k.mu.Unlock()
	return k
}

// reaperHas reports whether a partition's directory is on its way out already.
func (e *Engine) reaperHas(tp model.TopicPartition) bool {
	dir := newPartition(e, tp, 0).dir
	e.reaper.Lock()
	defer e.reaper.Unlock()
	for _, o := range e.reaper.queue {
		if len(o.dirs) > 0 && o.dirs[0] == dir {
			return true
		}
	}
	return false
}

// eachDirectory calls fn for every partition that has a directory.
func (e *Engine) eachDirectory(fn func(model.TopicPartition) error) error {
	topics, err := e.o.FS.ReadDir(topicsDirectory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, t := range topics {
		id, err := model.ParseTopicID(t.Name)
		if err != nil || !t.Dir {
			continue
		}
		partitions, err := e.o.FS.ReadDir(topicsDirectory + "/" + t.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went with its last partition just now
		}
		if err != nil {
			return err
		}
		for _, i := range partitions {
			n, err := strconv.ParseInt(i.Name, 10, 32)
			if err != nil || n < 0 || !i.Dir {
				continue
			}
			if err := fn(model.TopicPartition{Topic: id, Partition: int32(n)}); err != nil {
				return err
			}
		}
	}
	return nil
}
