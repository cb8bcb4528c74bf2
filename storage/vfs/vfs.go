package vfs

import (
	"errors"
	"io"
	"time"
	"unsafe"
)

// FS is a tree of files below one root. Missing names give errors for which
// errors.Is(err, fs.ErrNotExist) holds.
type FS interface {
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenDirect opens an existing file for writing past the page cache, where the
	// system can: a write goes straight to the disk, and Sync has only the disk's own
	// cache left to empty. In return every WriteAt must have an offset and a length
	// that are multiples of Block, and memory from Aligned. Writev and ReadAt are not
	// for such a file; readers use Open.
	OpenDirect(name string) (File, error)
	// Create makes an empty file, or empties the one that is there, and opens it
	// for reading and writing. The name is durable after SyncDir.
	Create(name string) (File, error)
	// MkdirAll makes a directory and its missing parents.
	MkdirAll(name string) error
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// RemoveAll deletes a whole subtree; a missing one is no error.
	RemoveAll(name string) error
	// Rename moves a file or directory, replacing a file of the new name.
	Rename(oldName, newName string) error
	// ReadDir lists a directory sorted by name.
	ReadDir(name string) ([]Info, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
	// Free says how many bytes may still be written and how large the volume is.
	Free() (free, total int64, err error)
	// Lock takes an exclusive lock that lasts until Close or the end of the
	// process. When somebody else holds it the error is a *LockedError.
	Lock(name string) (io.Closer, error)
}

// File is an open file. It has no cursor: every access names its position.
type File interface {
	// ReadAt is io.ReaderAt.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes all of p or returns an error. It may extend the file.
	WriteAt(p []byte, off int64) (int, error)
	// Writev writes the buffers one after the other, all of them or returns an
	// error; n counts the bytes that were handed over before it. The buffers are
	// read, never kept. The slice of buffers is left as it was.
	Writev(bufs [][]byte, off int64) (n int64, err error)
	// Sync makes the file's bytes and length durable (fdatasync). After an error
	// nobody knows what is durable: the caller must not try again.
	Sync() error
	// StartWriteback asks the system to begin to write a range of the file to the disk,
	// and does not wait for it. It is advice: nothing is durable for it, and what
	// goes wrong is the next Sync's to say.
	StartWriteback(off, n int64)
	// Truncate sets the length; new bytes are zero.
	Truncate(size int64) error
	// Allocate makes the file at least size bytes long, the new bytes zero and
	// their blocks written, so that later overwrites change no metadata and their
	// Sync is one write. It does not sync.
	Allocate(size int64) error
	// Size is the length in bytes.
	Size() (int64, error)
	// Close releases the handle; it does not sync.
	Close() error
	// Name is the name the file was opened under, relative to the root.
	Name() string
	// Fd is the descriptor for sendfile. ok is false for files not of the operating
	// system. It is valid until Close.
	Fd() (fd uintptr, ok bool)
}

// Block is the alignment of direct writes: a multiple of every disk's sector.
const Block = 4096

// Aligned returns n zero bytes that begin at a multiple of Block.
func Aligned(n int) []byte {
	b := make([]byte, n+Block)
	from := misaligned(b[:Block])
	return b[from : from+n : from+n]
}

// misaligned is how many bytes of b come before a multiple of Block.
func misaligned(b []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % Block)
}

// Info describes a file or directory.
type Info struct {
	Name    string // last element of the path
	Size    int64  // bytes; 0 for directories
	Dir     bool
	ModTime time.Time // zero in Memory
}

var errClosed = errors.New("file is closed")

// total is the number of bytes in bufs.
func total(bufs [][]byte) (n int64) {
	for _, b := range bufs {
		n += int64(len(b))
	}
	return n
}

// WriteFile replaces a small file atomically: it writes name+".tmp", syncs it,
// renames it over name and syncs the directory dir that holds both. After a
// crash the file is the old one or the new one, whole.
func WriteFile(fs FS, dir, name string, content []byte) error {
	path := dir + "/" + name
	if err := writeSynced(fs, path+".tmp", content); err != nil {
		return err
	}
	if err := fs.Rename(path+".tmp", path); err != nil {
		return err
	}
	return fs.SyncDir(dir)
}

func writeSynced(fs FS, name string, content []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// ReadFile reads a whole file of at most limit bytes.
func ReadFile(fs FS, name string, limit int64) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, &TooLargeError{Name: name, Size: size, Limit: limit}
	}
	content := make([]byte, size)
	if _, err := f.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content, nil
}
