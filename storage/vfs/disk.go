package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gofrs/flock"
)

// Disk is the operating system's file system below one directory. Names cannot
// leave it, not even through symbolic links (see os.Root).
type Disk struct {
	root *os.Root
}

// OpenDisk opens the directory path, creating it when missing: for its owner alone,
// since records and the keys of passwords are in it. One that exists stays as it is.
// Close releases it; files opened before stay usable.
func OpenDisk(path string) (*Disk, error) {
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(path)), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Disk{root: root}, nil
}

// Close releases the root directory.
func (d *Disk) Close() error { return d.root.Close() }

// Open implements FS.
func (d *Disk) Open(name string) (File, error) { return d.open(name, os.O_RDWR) }

// Create implements FS.
func (d *Disk) Create(name string) (File, error) {
	return d.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// OpenDirect implements FS with O_DIRECT. A file system that does not have it, or
// asks for a wider alignment, gives an ordinary file.
func (d *Disk) OpenDirect(name string) (File, error) {
	if directFlag != 0 {
		f, err := d.open(name, os.O_RDWR|directFlag)
		if err == nil && aligns(f.(*diskFile).f) {
			return f, nil
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			return nil, err
		}
	}
	return d.Open(name)
}

func (d *Disk) open(name string, flags int) (File, error) {
	f, err := d.root.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &diskFile{f: f, name: name, pwritev: pwritev}, nil
}

// MkdirAll implements FS.
func (d *Disk) MkdirAll(name string) error { return d.root.MkdirAll(name, 0o755) }

// Remove implements FS.
func (d *Disk) Remove(name string) error { return d.root.Remove(name) }

// RemoveAll implements FS.
func (d *Disk) RemoveAll(name string) error { return d.root.RemoveAll(name) }

// Rename implements FS.
func (d *Disk) Rename(oldName, newName string) error { return d.root.Rename(oldName, newName) }

// ReadDir implements FS. Entries that vanish while the directory is read are
// left out.
func (d *Disk) ReadDir(name string) ([]Info, error) {
	dir, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	found, err := dir.Readdir(-1)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(found))
	for _, f := range found {
		infos = append(infos, info(f))
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

// Stat implements FS.
func (d *Disk) Stat(name string) (Info, error) {
	f, err := d.root.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return info(f), nil
}

func info(f os.FileInfo) Info {
	i := Info{Name: f.Name(), Dir: f.IsDir(), ModTime: f.ModTime()}
	if !i.Dir {
		i.Size = f.Size()
	}
	return i
}

// SyncDir implements FS.
func (d *Disk) SyncDir(name string) error {
	dir, err := d.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Free implements FS: what an unprivileged process may still write.
func (d *Disk) Free() (free, total int64, err error) { return volume(d.root.Name()) }

// Lock implements FS with flock(2), so that the lock cannot outlive its holder.
// The file keeps the holder's process id as text and is never removed: removing
// it would let two processes lock two different files of one name.
func (d *Disk) Lock(name string) (io.Closer, error) {
	path := filepath.Join(d.root.Name(), filepath.FromSlash(name))
	lock := flock.New(path)
	held, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if !held {
		return nil, &LockedError{Name: name, Holder: holder(path)}
	}
	if err := os.WriteFile(path, strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), lock.Close())
	}
	return lock, nil
}

func holder(path string) string {
	text, err := os.ReadFile(path)
	if err != nil || len(text) > 20 {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

type diskFile struct {
	f    *os.File
	name string
	// pwritev writes a prefix of the buffers, as the system call of that name does.
	// A field, so that a test can make it stingy.
	pwritev func(f *os.File, bufs [][]byte, off int64) (int, error)
}

func (d *diskFile) ReadAt(p []byte, off int64) (int, error)  { return d.f.ReadAt(p, off) }
func (d *diskFile) WriteAt(p []byte, off int64) (int, error) { return d.f.WriteAt(p, off) }
func (d *diskFile) Truncate(size int64) error                { return d.f.Truncate(size) }
func (d *diskFile) Close() error                             { return d.f.Close() }
func (d *diskFile) Name() string                             { return d.name }
func (d *diskFile) Fd() (uintptr, bool)                      { return d.f.Fd(), true }

func (d *diskFile) Size() (int64, error) {
	i, err := d.f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

func (d *diskFile) Sync() error {
	if err := datasync(d.f); err != nil {
		return &os.PathError{Op: "fdatasync", Path: d.name, Err: err}
	}
	return nil
}

func (d *diskFile) StartWriteback(off, n int64) { startWriteback(d.f, off, n) }

// maxVectors is Linux's IOV_MAX: the most buffers one system call takes.
const maxVectors = 1024

// Writev implements File. The kernel may take fewer buffers than offered and
// fewer bytes than that; the rest is offered again from where it stopped.
func (d *diskFile) Writev(bufs [][]byte, off int64) (written int64, err error) {
	var cut [][]byte // a copy of the buffers still to write, its first one possibly shortened
	for rest := bufs; ; {
		rest = skipEmpty(rest)
		if len(rest) == 0 {
			return written, nil
		}
		n, err := d.pwritev(d.f, rest[:min(len(rest), maxVectors)], off+written)
		if err != nil {
			return written, &os.PathError{Op: "pwritev", Path: d.name, Err: err}
		}
		if n <= 0 {
			return written, &os.PathError{Op: "pwritev", Path: d.name, Err: io.ErrShortWrite}
		}
		written += int64(n)
		for len(rest) > 0 && n >= len(rest[0]) {
			n -= len(rest[0])
			rest = rest[1:]
		}
		if n > 0 {
			cut = append(cut[:0], rest...)
			cut[0] = cut[0][n:]
			rest = cut
		}
	}
}

func skipEmpty(bufs [][]byte) [][]byte {
	for len(bufs) > 0 && len(bufs[0]) == 0 {
		bufs = bufs[1:]
	}
	return bufs
}

// zeros is written to give a file its blocks; aligned, because the file may be a
// direct one.
var zeros = func() []byte {
	from := misaligned(zeroBytes[:])
	return zeroBytes[from : from+1<<18]
}()

var zeroBytes [1<<18 + Block]byte

// Allocate implements File by writing zeros. fallocate(2) alone would be
// quicker here, but every first write into the blocks it reserves changes the
// file's extents, and the Sync after it must journal that: measured on ext4,
// 88 µs instead of 55 for 4 KiB. It is still asked first, for one contiguous
// extent and an early "no space".
func (d *diskFile) Allocate(size int64) error {
	from, err := d.Size()
	if err != nil {
		return err
	}
	if from >= size {
		return nil
	}
	if err := reserve(d.f, from, size-from); err != nil {
		return &os.PathError{Op: "fallocate", Path: d.name, Err: err}
	}
	var bufs [8][]byte
	for from < size {
		vector := bufs[:0]
		for n := from; n < size && len(vector) < cap(vector); n += int64(len(zeros)) {
			vector = append(vector, zeros[:min(size-n, int64(len(zeros)))])
		}
		n, err := d.Writev(vector, from)
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}
