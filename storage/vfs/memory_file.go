package vfs

import (
	"io"
	"math"
	"sync/atomic"
	"syscall"
)

// memoryFile is an open handle. It stays usable when the name is gone.
type memoryFile struct {
	m      *Memory
	n      *node
	name   string
	direct bool // see FS.OpenDirect
	closed atomic.Bool
}

func (f *memoryFile) Name() string        { return f.name }
func (f *memoryFile) Fd() (uintptr, bool) { return 0, false }

// Close implements File. Twice is an error, as it is on a disk.
func (f *memoryFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, errClosed)
	}
	return nil
}

// enter takes the lock of an open file.
func (f *memoryFile) enter(op string) error {
	if f.closed.Load() {
		return pathError(op, f.name, errClosed)
	}
	f.m.mu.Lock()
	return nil
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.enter("read"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	want := len(p)
	p = p[:max(0, min(int64(want), f.n.size-off))]
	for done := 0; done < len(p); {
		at := off + int64(done)
		part := p[done:min(len(p), done+memoryPage-int(at%memoryPage))]
		if pg := f.n.page(at); pg != nil {
			copy(part, pg[at%memoryPage:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	if len(p) < want {
		return len(p), io.EOF
	}
	return len(p), nil
}

func (n *node) page(off int64) *page {
	if i := off / memoryPage; i < int64(len(n.pages)) {
		return n.pages[i]
	}
	return nil
}

func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	if f.direct && (off%Block != 0 || len(p)%Block != 0 || misaligned(p) != 0) {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	n, err := f.Writev([][]byte{p}, off)
	return int(n), err
}

func (f *memoryFile) Writev(bufs [][]byte, off int64) (int64, error) {
	if err := f.enter("write"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	room, err := f.room(off + total(bufs))
	var done int64
	for _, b := range bufs {
		b = b[:max(0, min(int64(len(b)), room-off-done))]
		f.n.write(b, off+done)
		done += int64(len(b))
	}
	if err != nil {
		err = pathError("write", f.name, err)
	}
	return done, err
}

// room is how far a file that wants to end at an offset may be written.
func (f *memoryFile) room(end int64) (int64, error) {
	grow := end - f.n.size
	if grow <= 0 || f.m.mu.total == math.MaxInt64 {
		return end, nil
	}
	if free := max(0, f.m.mu.total-f.m.mu.root.used()); grow > free {
		return f.n.size + free, syscall.ENOSPC
	}
	return end, nil
}

func (n *node) write(p []byte, off int64) {
	n.size = max(n.size, off+int64(len(p)))
	for len(p) > 0 {
		done := copy(n.writable(int(off / memoryPage))[off%memoryPage:], p)
		p, off = p[done:], off+int64(done)
	}
}

// writable returns a page that may be changed: not one that is synced.
func (n *node) writable(i int) *page {
	for len(n.pages) <= i {
		n.pages = append(n.pages, nil)
	}
	if _, dirty := n.dirty[i]; dirty && n.pages[i] != nil {
		return n.pages[i]
	}
	fresh := new(page)
	if n.pages[i] != nil {
		*fresh = *n.pages[i]
	}
	n.pages[i] = fresh
	n.dirty[i] = struct{}{}
	return fresh
}

func (f *memoryFile) Sync() error {
	if err := f.enter("sync"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	n := f.n
	for len(n.syncedPages) < len(n.pages) {
		n.syncedPages = append(n.syncedPages, nil)
	}
	n.syncedPages = n.syncedPages[:len(n.pages)]
	for i := range n.dirty {
		if i < len(n.pages) {
			n.syncedPages[i] = n.pages[i]
		}
	}
	clear(n.dirty)
	n.syncedSize = n.size
	return nil
}

// dropDirty does what Linux does to the pages of a file whose sync has failed: they
// count as clean, can still be read, and are never written.
func (f *memoryFile) dropDirty() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	clear(f.n.dirty)
}

func (f *memoryFile) Truncate(size int64) error {
	if err := f.enter("truncate"); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	if _, err := f.room(size); err != nil {
		return pathError("truncate", f.name, err)
	}
	f.n.truncate(size)
	return nil
}

func (n *node) truncate(size int64) {
	if size < n.size {
		keep := int((size + memoryPage - 1) / memoryPage)
		if keep < len(n.pages) {
			clear(n.pages[keep:])
			for i := keep; i < len(n.pages); i++ {
				n.dirty[i] = struct{}{}
			}
		}
		if rest := size % memoryPage; rest > 0 && n.page(size) != nil {
			clear(n.writable(int(size / memoryPage))[rest:])
		}
	}
	n.size = size
}

// StartWriteback does nothing: what is not synced is lost in a crash at any time.
func (f *memoryFile) StartWriteback(int64, int64) {}

func (f *memoryFile) Allocate(size int64) error {
	if now, err := f.Size(); err != nil || now >= size {
		return err
	}
	return f.Truncate(size)
}

func (f *memoryFile) Size() (int64, error) {
	if err := f.enter("stat"); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return f.n.size, nil
}
