package journal

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/perigeemq/perigee/storage/vfs"
)

// flushLoop is the flusher. While it is busy with one group the next one gathers
// in the queue, so its own speed is the only batching there is.
func (w *Writer) flushLoop() {
	var spare []queued
	for {
		group, entries, ok := w.take(spare)
		if !ok {
			break
		}
		err := w.flush(entries)
		w.finish(group, entries, err)
		clear(entries)
		spare = entries[:0]
	}
	w.end()
}

// take waits for entries and swaps the queue for an empty one. ok is false when
// the Writer is closing and the queue empty, or when it is poisoned: then nothing
// can be queued any more.
func (w *Writer) take(empty []queued) (*Group, []queued, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.mu.queue) == 0 {
		if w.mu.closing || w.mu.err != nil {
			return nil, nil, false
		}
		w.work.Wait()
	}
	// Whoever can run does so first: what was just answered often asks again at once,
	// and an entry that comes now saves a sync. Nobody else: it costs nothing.
	w.mu.Unlock()
	runtime.Gosched()
	w.mu.Lock()
	entries, group := w.mu.queue, w.mu.open
	w.mu.queue, w.mu.open, w.mu.flushing = empty, nil, group
	return group, entries, true
}

// flush makes entries durable, in one write and one sync unless they do not fit
// into the current file. Hooks of what is durable have run when it returns; after
// an error finish runs the others.
func (w *Writer) flush(entries []queued) error {
	began := time.Now()
	segments, err := w.syncSegments(entries)
	if err != nil {
		return err
	}
	for rest := entries; len(rest) > 0; {
		n := w.fitting(rest)
		if n == 0 {
			if err := w.rotate(); err != nil {
				return err
			}
			n = max(1, w.fitting(rest))
		}
		if err := w.write(rest[:n]); err != nil {
			return err
		}
		w.complete(rest[:n])
		rest = rest[n:]
	}
	if w.o.OnGroup != nil {
		w.o.OnGroup(GroupStats{Entries: len(entries), Bytes: weight(entries), Segments: segments, Took: time.Since(began)})
	}
	return nil
}

func weight(entries []queued) (n int64) {
	for i := range entries {
		n += entries[i].bytes
	}
	return n
}

// syncSegments makes the bytes durable that entries only refer to.
func (w *Writer) syncSegments(entries []queued) (int, error) {
	var files []vfs.File
	for i := range entries {
		for _, f := range entries[i].refs {
			if !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	if len(files) == 0 || w.o.Durability == OS {
		return 0, nil
	}
	errs := make([]error, len(files))
	var wg sync.WaitGroup
	for part := range min(w.o.SegmentSyncs, len(files)) {
		wg.Go(func() {
			for i := part; i < len(files); i += w.o.SegmentSyncs {
				if err := files[i].Sync(); err != nil {
					errs[i] = fmt.Errorf("sync segment %s: %w", files[i].Name(), err)
				}
			}
		})
	}
	wg.Wait()
	return len(files), errors.Join(errs...)
}

// fitting counts the entries that fit into the current file.
func (w *Writer) fitting(entries []queued) int {
	room := w.current.size - w.out.offset()
	for i := range entries {
		if room -= entries[i].bytes; room < 0 {
			return i
		}
	}
	return len(entries)
}

// write puts entries into the current file and syncs it.
func (w *Writer) write(entries []queued) error {
	size := weight(entries)
	w.out.reserve(size)
	if !w.current.started {
		w.out.moveTo(0)
		w.out.reserve(fileHeaderBytes + size)
		if err := w.out.put(w.current, w.current.header.encode()); err != nil {
			return err
		}
	}
	for i := range entries {
		e := entries[i].encoded
		e.place(entries[i].at, w.durable, w.current.header.salt)
		for _, b := range e.bufs {
			if err := w.out.put(w.current, b); err != nil {
				return err
			}
		}
	}
	if err := w.out.finish(w.current); err != nil {
		return err
	}
	if w.o.Durability == Fsync || slices.ContainsFunc(entries, func(q queued) bool { return q.sync }) {
		if err := w.sync(); err != nil {
			return err
		}
		w.durable = entries[len(entries)-1].at + LSN(entries[len(entries)-1].bytes)
	}
	w.current.started = true
	return nil
}

func (w *Writer) sync() error {
	if w.o.SyncDelay > 0 {
		time.Sleep(w.o.SyncDelay)
	}
	if err := w.current.Sync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	w.mu.Lock()
	w.mu.stats.Syncs++
	w.mu.Unlock()
	return nil
}

// complete runs the hooks of entries that are done.
func (w *Writer) complete(entries []queued) {
	for i := range entries {
		if done := entries[i].done; done != nil {
			done(nil)
		}
		entries[i].done = nil
	}
	last := entries[len(entries)-1]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.synced = last.at + LSN(last.bytes)
	w.mu.stats.Entries += int64(len(entries))
	w.mu.stats.Bytes += weight(entries)
	w.consumedLocked(w.out.offset())
}

// finish closes a group. After an error the Writer is poisoned, and what was
// queued meanwhile fails too.
func (w *Writer) finish(g *Group, entries []queued, err error) {
	if err != nil {
		w.poison(g, entries, err)
		return
	}
	w.mu.Lock()
	w.mu.bytes -= weight(entries)
	w.mu.flushing = nil
	w.mu.stats.Groups++
	w.room.Broadcast()
	w.mu.Unlock()
	close(g.done)
}

func (w *Writer) poison(g *Group, entries []queued, cause error) {
	err := fmt.Errorf("%w: %w", ErrPoisoned, cause)
	w.mu.Lock()
	w.mu.err = err
	later, laterGroup := w.mu.queue, w.mu.open
	w.mu.queue, w.mu.open, w.mu.flushing, w.mu.bytes = nil, nil, nil, 0
	w.room.Broadcast()
	w.files.Broadcast()
	w.mu.Unlock()
	for _, failed := range [][]queued{entries, later} {
		for i := range failed {
			if failed[i].done != nil {
				failed[i].done(err)
			}
		}
	}
	for _, g := range []*Group{g, laterGroup} {
		if g != nil {
			g.err = err
			close(g.done)
		}
	}
	if w.o.OnPoison != nil {
		w.o.OnPoison(err)
	}
}

// rotate goes on in the next file. The one before is synced first, also when
// entries are not: the next file's start says that this one is whole.
func (w *Writer) rotate() error {
	if w.o.Durability == OS {
		if err := w.sync(); err != nil {
			return err
		}
	}
	f, err := w.nextFile()
	if err != nil {
		return err
	}
	w.mu.Lock()
	f.header.start = w.mu.synced
	w.mu.Unlock()
	old := w.current
	w.use(f)
	if err := old.Close(); err != nil {
		return fmt.Errorf("close journal file: %w", err)
	}
	return nil
}

// use makes f the current file.
func (w *Writer) use(f *file) {
	w.current = f
	w.out.moveTo(fileHeaderBytes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.mu.used); n > 0 {
		w.mu.used[n-1].end = f.header.start
	}
	w.mu.used = append(w.mu.used, span{path: f.Name(), start: f.header.start})
	w.mu.limit = f.header.start + LSN(f.size-fileHeaderBytes)
	w.mu.size, w.mu.consumed = f.size, fileHeaderBytes
	w.mu.stats.Rotations++
}

// end runs on the flusher when it has nothing more to do.
func (w *Writer) end() {
	w.mu.Lock()
	poisoned := errors.Is(w.mu.err, ErrPoisoned)
	w.files.Broadcast()
	w.mu.Unlock()
	if !poisoned && w.o.Durability == OS {
		if err := w.sync(); err != nil {
			w.poison(nil, nil, err)
		}
	}
	if err := w.current.Close(); err != nil && !poisoned {
		w.poison(nil, nil, fmt.Errorf("close journal file: %w", err))
	}
}
