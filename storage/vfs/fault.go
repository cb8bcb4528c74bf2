package vfs

import (
	"errors"
	"io"
	"path"
	"sync"
	"time"
)

// Op is a kind of operation of an FS or File.
type Op uint8

// The operations Fault sees. Writev counts as OpWrite; Size, Close, Free and Lock
// are not seen.
const (
	OpOpen Op = iota
	OpCreate
	OpMkdir
	OpRemove // RemoveAll too
	OpRename
	OpReadDir
	OpStat
	OpSyncDir
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpAllocate
	ops
)

func (o Op) String() string {
	return [ops]string{"open", "create", "mkdir", "remove", "rename", "readdir", "stat",
		"syncdir", "read", "write", "sync", "truncate", "allocate"}[o]
}

// changes says whether a disk is different after the operation.
func (o Op) changes() bool {
	return o != OpOpen && o != OpReadDir && o != OpStat && o != OpRead
}

// Event is one operation.
type Event struct {
	Op   Op
	Name string // with OpRename the old name
}

// Rule makes operations fail or dawdle.
type Rule struct {
	Op Op
	// Name is a pattern for the last element of the path, see path.Match. "" matches
	// every name.
	Name string
	// After is how many matching operations pass first, Times how many are then
	// affected; 0 means all.
	After, Times int
	// Delay is slept first.
	Delay time.Duration
	// Err is returned; nil lets the operation happen after the delay.
	Err error
	// Short, with OpWrite and Err, is how many bytes are written all the same.
	Short int
	// DropDirty, with OpSync and Err on a file of Memory, is what Linux does: what was
	// written since the last sync counts as clean, so that the next sync succeeds and
	// the bytes are lost.
	DropDirty bool
}

// ErrStopped is what every operation returns after StopAfter.
var ErrStopped = errors.New("the machine has stopped")

// Fault passes operations on to another FS, counts them and makes chosen ones
// fail. All methods may be called from any goroutine.
type Fault struct {
	fs FS
	mu struct {
		sync.Mutex
		rules   []*rule
		counts  [ops]int
		changes int
		running int         // operations on their way
		stopAt  int         // number of changes after which nothing works; negative for never
		hook    func(Event) // see AfterEach
	}
	idle sync.Cond // running is 0
}

type rule struct {
	Rule
	seen int
}

// NewFault wraps an FS. Without rules it only counts.
func NewFault(fs FS) *Fault {
	f := &Fault{fs: fs}
	f.mu.stopAt = -1
	f.idle.L = &f.mu
	return f
}

// Add adds a rule. Of several that match an operation the first one added
// decides; the others do not count it.
func (f *Fault) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.rules = append(f.mu.rules, &rule{Rule: r})
}

// Clear removes all rules.
func (f *Fault) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.rules = nil
}

// StopAfter lets n operations that change the disk happen, counted from now. All
// later operations of any kind fail with ErrStopped, as if the process had been
// killed: "crash anywhere" is a loop over n.
func (f *Fault) StopAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.stopAt = f.mu.changes + n
}

// Quiet waits until no operation is on its way. After StopAfter has struck nothing
// changes the disk any more when it returns, as when a process is gone.
func (f *Fault) Quiet() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.mu.running > 0 {
		f.idle.Wait()
	}
}

// Stopped says whether StopAfter has struck.
func (f *Fault) Stopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.stopAt >= 0 && f.mu.changes > f.mu.stopAt
}

// AfterEach sets a hook that is called after every operation that changed the
// disk, on the goroutine of the operation.
func (f *Fault) AfterEach(hook func(Event)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.hook = hook
}

// Count is how many operations of a kind were asked for, failed ones included.
func (f *Fault) Count(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.counts[op]
}

// Changes is how many operations that change the disk were asked for.
func (f *Fault) Changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.changes
}

// decide counts an operation and finds the rule for it.
func (f *Fault) decide(e Event) (Rule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.counts[e.Op]++
	f.mu.running++
	if e.Op.changes() {
		f.mu.changes++
	}
	if f.mu.stopAt >= 0 && f.mu.changes > f.mu.stopAt {
		return Rule{}, pathError(e.Op.String(), e.Name, ErrStopped)
	}
	for _, r := range f.mu.rules {
		if !r.matches(e) {
			continue
		}
		r.seen++
		if r.seen > r.After && (r.Times == 0 || r.seen <= r.After+r.Times) {
			return r.Rule, nil
		}
		break
	}
	return Rule{}, nil
}

func (r *rule) matches(e Event) bool {
	if r.Op != e.Op {
		return false
	}
	ok, err := path.Match(r.Name, path.Base(e.Name))
	return r.Name == "" || ok && err == nil
}

// do runs one operation under the rules. instead, when not nil, is what happens
// before a rule's error is returned.
func (f *Fault) do(e Event, operation func() error, instead func(Rule)) error {
	r, err := f.decide(e)
	defer f.finish()
	if err != nil {
		return err
	}
	if r.Delay > 0 {
		time.Sleep(r.Delay)
	}
	if r.Err != nil {
		if instead != nil {
			instead(r)
		}
		err = pathError(e.Op.String(), e.Name, r.Err)
	} else {
		err = operation()
	}
	f.mu.Lock()
	hook := f.mu.hook
	f.mu.Unlock()
	if hook != nil && e.Op.changes() {
		hook(e)
	}
	return err
}

func (f *Fault) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.running--; f.mu.running == 0 {
		f.idle.Broadcast()
	}
}

// Open implements FS.
func (f *Fault) Open(name string) (File, error) { return f.file(Event{OpOpen, name}, f.fs.Open) }

// OpenDirect implements FS.
func (f *Fault) OpenDirect(name string) (File, error) {
	return f.file(Event{OpOpen, name}, f.fs.OpenDirect)
}

// Create implements FS.
func (f *Fault) Create(name string) (File, error) { return f.file(Event{OpCreate, name}, f.fs.Create) }

func (f *Fault) file(e Event, open func(string) (File, error)) (File, error) {
	var file File
	err := f.do(e, func() (err error) {
		file, err = open(e.Name)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, f: f}, nil
}

// MkdirAll implements FS.
func (f *Fault) MkdirAll(name string) error {
	return f.do(Event{OpMkdir, name}, func() error { return f.fs.MkdirAll(name) }, nil)
}

// Remove implements FS.
func (f *Fault) Remove(name string) error {
	return f.do(Event{OpRemove, name}, func() error { return f.fs.Remove(name) }, nil)
}

// RemoveAll implements FS.
func (f *Fault) RemoveAll(name string) error {
	return f.do(Event{OpRemove, name}, func() error { return f.fs.RemoveAll(name) }, nil)
}

// Rename implements FS.
func (f *Fault) Rename(oldName, newName string) error {
	return f.do(Event{OpRename, oldName}, func() error { return f.fs.Rename(oldName, newName) }, nil)
}

// ReadDir implements FS.
func (f *Fault) ReadDir(name string) (infos []Info, err error) {
	err = f.do(Event{OpReadDir, name}, func() (err error) {
		infos, err = f.fs.ReadDir(name)
		return err
	}, nil)
	return infos, err
}

// Stat implements FS.
func (f *Fault) Stat(name string) (info Info, err error) {
	err = f.do(Event{OpStat, name}, func() (err error) {
		info, err = f.fs.Stat(name)
		return err
	}, nil)
	return info, err
}

// SyncDir implements FS.
func (f *Fault) SyncDir(name string) error {
	return f.do(Event{OpSyncDir, name}, func() error { return f.fs.SyncDir(name) }, nil)
}

// Free implements FS.
func (f *Fault) Free() (free, total int64, err error) { return f.fs.Free() }

// Lock implements FS.
func (f *Fault) Lock(name string) (io.Closer, error) { return f.fs.Lock(name) }

type faultFile struct {
	File
	f *Fault
}

func (f *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.f.do(Event{OpRead, f.Name()}, func() (err error) {
		n, err = f.File.ReadAt(p, off)
		return err
	}, nil)
	return n, err
}

func (f *faultFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.f.do(Event{OpWrite, f.Name()}, func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	}, func(r Rule) { n = int(f.short([][]byte{p}, off, int64(r.Short))) })
	return n, err
}

func (f *faultFile) Writev(bufs [][]byte, off int64) (n int64, err error) {
	err = f.f.do(Event{OpWrite, f.Name()}, func() (err error) {
		n, err = f.File.Writev(bufs, off)
		return err
	}, func(r Rule) { n = f.short(bufs, off, int64(r.Short)) })
	return n, err
}

// short writes the first limit bytes; by Writev, which takes any number of them
// for a direct file too.
func (f *faultFile) short(bufs [][]byte, off, limit int64) (n int64) {
	for _, b := range bufs {
		b = b[:min(int64(len(b)), limit-n)]
		done, err := f.File.Writev([][]byte{b}, off+n)
		if n += done; err != nil || n == limit {
			break
		}
	}
	return n
}

func (f *faultFile) Sync() error {
	return f.f.do(Event{OpSync, f.Name()}, f.File.Sync, func(r Rule) {
		if m, ok := f.File.(*memoryFile); ok && r.DropDirty {
			m.dropDirty()
		}
	})
}

func (f *faultFile) Truncate(size int64) error {
	return f.f.do(Event{OpTruncate, f.Name()}, func() error { return f.File.Truncate(size) }, nil)
}

func (f *faultFile) Allocate(size int64) error {
	return f.f.do(Event{OpAllocate, f.Name()}, func() error { return f.File.Allocate(size) }, nil)
}
