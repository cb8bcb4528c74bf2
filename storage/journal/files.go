package journal

import (
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/storage/vfs"
)

// prepareLoop is the preparer: it makes the next file when one is wanted.
func (w *Writer) prepareLoop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for !w.mu.want && !w.stoppingLocked() {
			w.files.Wait()
		}
		if w.stoppingLocked() {
			break
		}
		w.mu.Unlock()
		f, err := w.prepare()
		w.mu.Lock()
		w.mu.next, w.mu.nextErr, w.mu.want = f, err, false
		w.files.Broadcast()
	}
	if w.mu.next != nil {
		// Nothing stands in it; the next Recover finds it free whatever Close says.
		_ = w.mu.next.Close()
		w.mu.next = nil
	}
}

// stoppingLocked says that no next file will be needed. Closing alone does not: what is
// queued must still be written.
func (w *Writer) stoppingLocked() bool {
	return errors.Is(w.mu.err, ErrPoisoned) || w.mu.closing && len(w.mu.queue) == 0 && w.mu.flushing == nil
}

func (w *Writer) wantFileLocked() {
	w.mu.want = true
	w.files.Broadcast()
}

// nextFile takes the prepared file, waiting for it when the preparer is behind.
func (w *Writer) nextFile() (*file, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.next == nil {
		w.wantFileLocked()
	}
	for w.mu.next == nil && w.mu.want {
		w.files.Wait()
	}
	f := w.mu.next
	if f == nil {
		return nil, w.mu.nextErr
	}
	w.mu.next = nil
	return f, nil
}

// prepare makes a file ready to be written: an old one under a new name, or a new
// one full of zeros. Name and header are durable when it returns.
func (w *Writer) prepare() (*file, error) {
	w.mu.Lock()
	h := fileHeader{number: w.mu.nextNumber, salt: newSalt(), start: notStarted}
	w.mu.nextNumber++
	var old string
	size := w.o.FileBytes
	if n := len(w.mu.spares); n > 0 {
		old = w.mu.spares[n-1]
		w.mu.spares = w.mu.spares[:n-1]
	} else {
		size = w.mu.nextBytes
		w.mu.nextBytes = min(fileGrowth*size, w.o.FileBytes)
	}
	w.mu.Unlock()

	path := w.dir + "/" + fileName(h.number)
	f, err := w.obtain(old, path)
	if err != nil {
		return nil, fmt.Errorf("prepare journal file: %w", err)
	}
	if err := w.ready(f, h, size); err != nil {
		return nil, fmt.Errorf("prepare journal file: %w", errors.Join(err, f.Close(), w.o.FS.Remove(path)))
	}
	if old != "" {
		w.mu.Lock()
		w.mu.stats.Recycled++
		w.mu.Unlock()
	}
	return &file{File: f, header: h, size: size}, nil
}

func (w *Writer) obtain(old, path string) (vfs.File, error) {
	if old == "" {
		return w.o.FS.Create(path)
	}
	if err := w.o.FS.Rename(old, path); err != nil {
		return nil, err
	}
	return w.o.FS.Open(path)
}

func (w *Writer) ready(f vfs.File, h fileHeader, size int64) error {
	if err := f.Allocate(size); err != nil {
		return err
	}
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return w.o.FS.SyncDir(w.dir)
}

// keepSpares keeps files of the right size to be used again, as many as wanted,
// and removes the others.
func (w *Writer) keepSpares(free []found) error {
	for _, f := range free {
		w.mu.Lock()
		keep := f.size == w.o.FileBytes && len(w.mu.spares) < w.o.Spares
		if keep {
			w.mu.spares = append(w.mu.spares, f.path)
		}
		w.mu.Unlock()
		if keep {
			continue
		}
		if err := w.o.FS.Remove(f.path); err != nil {
			return fmt.Errorf("remove journal file: %w", err)
		}
	}
	return nil
}

// Trim gives up the files whose entries all lie below a position. The caller has
// made sure, with a durable checkpoint, that nobody will replay them.
func (w *Writer) Trim(below LSN) error {
	w.mu.Lock()
	n := 0
	for n < len(w.mu.used)-1 && w.mu.used[n].end <= below {
		n++
	}
	old := w.mu.used[:n:n]
	w.mu.used = append([]span(nil), w.mu.used[n:]...)
	w.mu.Unlock()

	free := make([]found, 0, n)
	for _, s := range old {
		i, err := w.o.FS.Stat(s.path)
		if err != nil {
			return fmt.Errorf("trim journal: %w", err)
		}
		free = append(free, found{path: s.path, size: i.Size})
	}
	if err := w.keepSpares(free); err != nil {
		return fmt.Errorf("trim journal: %w", err)
	}
	return nil
}
