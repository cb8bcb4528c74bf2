package journal

import (
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/storage/vfs"
)

// prepareLoop is the preparer: it makes the next file while the current one fills,
// at the pace of its filling. Making it at once would put megabytes of zeros between
// a commit and the disk.
func (w *Writer) prepareLoop() {
	var f *file // on its way
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for !w.stoppingLocked() && (w.mu.next != nil || w.dueLocked() <= w.mu.made) {
			w.files.Wait()
		}
		if w.stoppingLocked() {
			break
		}
		w.mu.Unlock()
		var err error
		f, err = w.prepare(f)
		w.mu.Lock()
		switch {
		case err != nil:
			f, w.mu.made, w.mu.nextErr, w.mu.want = nil, 0, err, false
		case f.ready:
			w.mu.next, f, w.mu.made, w.mu.nextErr, w.mu.want = f, nil, 0, nil, false
		default:
			w.mu.made = float64(f.filled) / float64(f.size)
		}
		w.files.Broadcast()
	}
	for _, f := range []*file{f, w.mu.next} {
		if f != nil {
			// Nothing stands in it; the next Recover finds it free whatever Close says.
			_ = f.Close()
		}
	}
	w.mu.next = nil
}

// stoppingLocked says that no next file will be needed. Closing alone does not: what is
// queued must still be written.
func (w *Writer) stoppingLocked() bool {
	return errors.Is(w.mu.err, ErrPoisoned) || w.mu.closing && len(w.mu.queue) == 0 && w.mu.flushing == nil
}

// The next file is begun when an eighth of the current one is used and ready when
// three quarters are.
const (
	prepareFrom  = 1.0 / 8
	prepareUntil = 3.0 / 4
)

// dueLocked is how much of the next file should be ready by now, 0 to 1.
func (w *Writer) dueLocked() float64 {
	switch {
	case w.mu.want:
		return 1
	case w.mu.nextErr != nil:
		return 0 // until somebody needs it
	}
	used := float64(w.mu.consumed) / float64(w.mu.size)
	return max(0, min(1, (used-prepareFrom)/(prepareUntil-prepareFrom)))
}

// consumedLocked says how far the current file has been written.
func (w *Writer) consumedLocked(offset int64) {
	w.mu.consumed = offset
	if w.mu.next == nil && w.dueLocked() > w.mu.made {
		w.files.Broadcast()
	}
}

// wantFileLocked says that somebody cannot go on without the next file.
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

// How much of a file is filled in one step: what a disk writes in about the time of
// one sync, so that a commit behind it waits no longer than behind another commit; or
// more when the commit waits for the file itself.
const (
	fillBytes       = 256 << 10
	urgentFillBytes = 2 << 20
)

func (w *Writer) fillStep() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.want {
		return urgentFillBytes
	}
	return fillBytes
}

// prepare goes one step further with making a file, f, or begins one when it is
// nil: an old one under a new name, or a new one full of zeros. Once it is ready,
// its name and header are durable. After an error nothing of it is left.
func (w *Writer) prepare(f *file) (*file, error) {
	var err error
	if f == nil {
		f, err = w.obtain()
	} else {
		f.filled = min(f.filled+w.fillStep(), f.size)
		err = f.Allocate(f.filled)
	}
	if err == nil && f.filled == f.size {
		err = w.finishFile(f)
	}
	if err == nil {
		return f, nil
	}
	if f != nil {
		err = errors.Join(err, f.Close(), w.o.FS.Remove(f.Name()))
	}
	return nil, fmt.Errorf("prepare journal file: %w", err)
}

// obtain renames an old file, which is filled already, or creates an empty one.
func (w *Writer) obtain() (*file, error) {
	w.mu.Lock()
	f := &file{header: fileHeader{number: w.mu.nextNumber, salt: newSalt(), start: notStarted}, size: w.o.FileBytes}
	w.mu.nextNumber++
	var old string
	if n := len(w.mu.spares); n > 0 {
		old = w.mu.spares[n-1]
		w.mu.spares = w.mu.spares[:n-1]
		f.filled = f.size
		w.mu.stats.Recycled++
	} else {
		f.size = w.mu.nextBytes
		w.mu.nextBytes = min(fileGrowth*f.size, w.o.FileBytes)
	}
	w.mu.Unlock()

	path := w.dir + "/" + fileName(f.header.number)
	if err := w.place(old, path); err != nil {
		return nil, err
	}
	var err error
	f.File, err = w.openForWriting(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (w *Writer) place(old, path string) error {
	if old != "" {
		return w.o.FS.Rename(old, path)
	}
	created, err := w.o.FS.Create(path)
	if err != nil {
		return err
	}
	return created.Close()
}

// openForWriting opens a file past the page cache, unless the page cache is all
// that is waited for.
func (w *Writer) openForWriting(path string) (vfs.File, error) {
	if w.o.Durability == OS {
		return w.o.FS.Open(path)
	}
	return w.o.FS.OpenDirect(path)
}

// finishFile makes a filled file durable, as one that holds nothing yet.
func (w *Writer) finishFile(f *file) error {
	if _, err := f.WriteAt(f.header.encode(), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	f.ready = true
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

// GiveUpSpare removes a file that was kept to be used again, if there is one.
func (w *Writer) GiveUpSpare() (gave bool, err error) {
	w.mu.Lock()
	n := len(w.mu.spares)
	var path string
	if n > 0 {
		path = w.mu.spares[n-1]
		w.mu.spares = w.mu.spares[:n-1]
	}
	w.mu.Unlock()
	if n == 0 {
		return false, nil
	}
	if err := w.o.FS.Remove(path); err != nil {
		return false, fmt.Errorf("remove journal file: %w", err)
	}
	return true, nil
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
