package vfs

import (
	"errors"
	"io"
	iofs "io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
)

// Memory is a file system in memory that knows what was synced. It keeps two
// states of everything: the one a program sees, and the one that survives.
//
//	file   pages now ─────► pages synced     Sync copies the dirty ones over
//	dir    entries now ───► entries synced   SyncDir applies the pending changes
//
// Crash makes a new file system out of the second, with whatever part of the
// difference a real disk might have written by itself.
type Memory struct {
	mu struct {
		sync.Mutex
		root    *node
		pending []change // of directory entries, not yet synced, in order
		locks   map[string]bool
		total   int64 // bytes the files may be long together; math.MaxInt64 for no limit
	}
}

const (
	memoryPage   = 4096
	memorySector = 512
)

type page [memoryPage]byte

// node is a file or a directory.
type node struct {
	entries, synced map[string]*node // directories only

	pages, syncedPages []*page // nil pages are zero; a page in syncedPages is never written again
	size, syncedSize   int64
	dirty              map[int]struct{} // pages that may differ from the synced ones
}

func newDir() *node { return &node{entries: map[string]*node{}, synced: map[string]*node{}} }

func (n *node) dir() bool { return n.entries != nil }

// change is one operation on directory entries: child leaves one name, takes
// another, or both at once.
type change struct {
	fromDir, toDir   *node
	fromName, toName string
	child            *node
}

func (c change) touches(d *node) bool { return c.fromDir == d || c.toDir == d }

// apply does the change to the entries chosen by which.
func (c change) apply(which func(*node) map[string]*node) {
	if c.fromDir != nil && which(c.fromDir)[c.fromName] == c.child {
		delete(which(c.fromDir), c.fromName)
	}
	if c.toDir != nil {
		which(c.toDir)[c.toName] = c.child
	}
}

func now(n *node) map[string]*node    { return n.entries }
func synced(n *node) map[string]*node { return n.synced }

// NewMemory returns an empty file system.
func NewMemory() *Memory {
	m := &Memory{}
	m.mu.root = newDir()
	m.mu.locks = map[string]bool{}
	m.mu.total = math.MaxInt64
	return m
}

// SetTotal makes the volume this many bytes large. A write beyond it fails with
// ENOSPC.
func (m *Memory) SetTotal(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.total = bytes
}

func pathError(op, name string, err error) error {
	return &iofs.PathError{Op: op, Path: name, Err: err}
}

// find walks to a name; nil when it does not exist.
func (m *Memory) find(name string) *node {
	n := m.mu.root
	for _, part := range strings.Split(path.Clean(name), "/") {
		if part == "." {
			continue
		}
		if n = n.entries[part]; n == nil {
			return nil
		}
	}
	return n
}

func (m *Memory) parent(op, name string) (dir *node, base string, err error) {
	dir = m.find(path.Dir(path.Clean(name)))
	if dir == nil || !dir.dir() {
		return nil, "", pathError(op, name, iofs.ErrNotExist)
	}
	return dir, path.Base(path.Clean(name)), nil
}

func (m *Memory) change(c change) {
	c.apply(now)
	m.mu.pending = append(m.mu.pending, c)
}

// Open implements FS.
func (m *Memory) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return nil, pathError("open", name, iofs.ErrNotExist)
	}
	if n.dir() {
		return nil, pathError("open", name, errIsDirectory)
	}
	return &memoryFile{m: m, n: n, name: name}, nil
}

// OpenDirect implements FS. It holds the caller to the rules.
func (m *Memory) OpenDirect(name string) (File, error) {
	f, err := m.Open(name)
	if err != nil {
		return nil, err
	}
	f.(*memoryFile).direct = true
	return f, nil
}

// Create implements FS.
func (m *Memory) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("create", name)
	if err != nil {
		return nil, err
	}
	n := dir.entries[base]
	switch {
	case n == nil:
		n = &node{dirty: map[int]struct{}{}}
		m.change(change{toDir: dir, toName: base, child: n})
	case n.dir():
		return nil, pathError("create", name, errIsDirectory)
	default:
		n.truncate(0)
	}
	return &memoryFile{m: m, n: n, name: name}, nil
}

// MkdirAll implements FS.
func (m *Memory) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.mu.root
	for _, part := range strings.Split(path.Clean(name), "/") {
		if part == "." {
			continue
		}
		child := n.entries[part]
		switch {
		case child == nil:
			child = newDir()
			m.change(change{toDir: n, toName: part, child: child})
		case !child.dir():
			return pathError("mkdir", name, errNotDirectory)
		}
		n = child
	}
	return nil
}

// Remove implements FS.
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	if n == nil {
		return pathError("remove", name, iofs.ErrNotExist)
	}
	if n.dir() && len(n.entries) > 0 {
		return pathError("remove", name, errNotEmpty)
	}
	m.change(change{fromDir: dir, fromName: base, child: n})
	return nil
}

// RemoveAll implements FS. A crash may leave any part of the subtree.
func (m *Memory) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("remove", name)
	if err != nil || dir.entries[base] == nil {
		return nil
	}
	m.removeTree(dir, base)
	return nil
}

func (m *Memory) removeTree(dir *node, base string) {
	n := dir.entries[base]
	for _, child := range sortedNames(n.entries) {
		m.removeTree(n, child)
	}
	m.change(change{fromDir: dir, fromName: base, child: n})
}

// Rename implements FS.
func (m *Memory) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("rename", newName)
	if err != nil {
		return err
	}
	n := from.entries[oldBase]
	if n == nil {
		return pathError("rename", oldName, iofs.ErrNotExist)
	}
	switch there := to.entries[newBase]; {
	case there == n:
		return nil
	case there != nil && there.dir() && len(there.entries) > 0:
		return pathError("rename", newName, errNotEmpty)
	case there != nil && there.dir() != n.dir():
		return pathError("rename", newName, iofs.ErrExist)
	}
	m.change(change{fromDir: from, fromName: oldBase, toDir: to, toName: newBase, child: n})
	return nil
}

// ReadDir implements FS.
func (m *Memory) ReadDir(name string) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return nil, pathError("readdir", name, iofs.ErrNotExist)
	}
	if !n.dir() {
		return nil, pathError("readdir", name, errNotDirectory)
	}
	infos := make([]Info, 0, len(n.entries))
	for _, base := range sortedNames(n.entries) {
		infos = append(infos, n.entries[base].info(base))
	}
	return infos, nil
}

func sortedNames(entries map[string]*node) []string {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (n *node) info(base string) Info { return Info{Name: base, Size: n.size, Dir: n.dir()} }

// Stat implements FS.
func (m *Memory) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return Info{}, pathError("stat", name, iofs.ErrNotExist)
	}
	return n.info(path.Base(path.Clean(name))), nil
}

// SyncDir implements FS.
func (m *Memory) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || !n.dir() {
		return pathError("sync", name, iofs.ErrNotExist)
	}
	kept := m.mu.pending[:0]
	for _, c := range m.mu.pending {
		if c.touches(n) {
			c.apply(synced)
		} else {
			kept = append(kept, c)
		}
	}
	m.mu.pending = kept
	return nil
}

// Free implements FS.
func (m *Memory) Free() (free, total int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, m.mu.total-m.mu.root.used()), m.mu.total, nil
}

// used is the length of all files below a node.
func (n *node) used() int64 {
	sum := n.size
	for _, child := range n.entries {
		sum += child.used()
	}
	return sum
}

// Lock implements FS. A crash releases it, as the end of a process would.
func (m *Memory) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.locks[name] {
		return nil, &LockedError{Name: name}
	}
	m.mu.locks[name] = true
	return &memoryLock{m: m, name: name}, nil
}

type memoryLock struct {
	m    *Memory
	name string
	once sync.Once
}

func (l *memoryLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.mu.locks, l.name)
	})
	return nil
}

var (
	errIsDirectory  = errors.New("is a directory")
	errNotDirectory = errors.New("not a directory")
	errNotEmpty     = errors.New("directory not empty")
)
