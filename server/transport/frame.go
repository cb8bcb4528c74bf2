package transport

import (
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/server/quota"
)

// frameClasses are the sizes frames are allocated in, so that released ones fit
// later requests: consumers and admins fit the first two, producers' batches of
// up to 1 MiB with their envelope the middle ones, requests with several full
// batches the last two. A bigger frame is allocated as it comes and left to the
// collector: a pool would hold memory for a size that may never come again.
var frameClasses = [...]int{4 << 10, 32 << 10, 256 << 10, 1<<20 + 64<<10, 4<<20 + 64<<10, 16<<20 + 64<<10}

// Small frames are pooled, large ones kept, up to so many: as many as a few
// producers have in flight at once.
var (
	framePools   [2]sync.Pool
	frameKeepers = [len(frameClasses)]keeper{2: {limit: 8}, 3: {limit: 8}, 4: {limit: 6}, 5: {limit: 6}}
)

// spareFrame returns a released frame of a class, or nil.
func spareFrame(class int) *Frame {
	if class >= len(framePools) {
		return frameKeepers[class].get()
	}
	f, _ := framePools[class].Get().(*Frame)
	return f
}

// giveBack keeps the frame's memory for a later one.
func (f *Frame) giveBack() {
	scribble(f.store)
	switch {
	case f.class < 0:
	case f.class >= len(framePools):
		frameKeepers[f.class].put(f)
	default:
		framePools[f.class].Put(f)
	}
}

// frameClass returns the index of the smallest class for n bytes, or none.
func frameClass(n int) (class int, ok bool) {
	for i, size := range frameClasses {
		if n <= size {
			return i, true
		}
	}
	return 0, false
}

// frameCost is the memory a frame of n bytes takes.
func frameCost(n int) int64 {
	if class, pooled := frameClass(n); pooled {
		return int64(frameClasses[class])
	}
	return int64(n)
}

// Frame is one request in memory, reference-counted because several users alias
// its bytes: the decoded request, the partitions it was appended to, the
// journal until the entry that holds it is durable.
//
// The connection holds one reference from before Serve until the reply's last
// byte is written (or the reply was nil or failed). Whoever aliases Body longer
// calls Retain, and Release when done; a reply that waits long for something else
// calls Unload.
type Frame struct {
	Body []byte // the bytes after the length; valid while a reference is held

	store     []byte      // what Body is cut from
	class     int         // of frameClasses; -1: not pooled
	ready     func() bool // see ReadyWhen
	refs      atomic.Int32
	abandoned atomic.Bool
	budget    *quota.Memory // gets the frame's memory back at the last Release; nil for frames made outside a connection
	reserved  int64
}

// NewFrame returns a frame with a body of n bytes, whose content is undefined,
// and one reference. It reserves nothing; tests and in-process callers use it.
func NewFrame(n int) *Frame {
	class, pooled := frameClass(n)
	if !pooled {
		f := &Frame{store: make([]byte, n), class: -1}
		f.take(n)
		return f
	}
	f := spareFrame(class)
	if f == nil {
		f = &Frame{store: make([]byte, frameClasses[class]), class: class}
	}
	f.take(n)
	return f
}

// take starts a frame's life.
func (f *Frame) take(n int) {
	f.Body = f.store[:n]
	f.refs.Store(1)
}

// Retain adds a reference.
func (f *Frame) Retain() { f.refs.Add(1) }

// Abandon says that somebody may still read the bytes although nobody will
// tell when: the memory is left to the collector instead of the pool. A reply
// that gives up waiting for a sync calls it. References are still released.
func (f *Frame) Abandon() { f.abandoned.Store(true) }

// Unload says that nobody will look at Body again although the reply is still to
// come and may be long in coming: the memory and its share of the budget go back
// now. Only the connection's goroutines call it, in Serve or in the reply. While
// somebody else holds a reference it does nothing.
func (f *Frame) Unload() {
	if f.Body == nil || f.refs.Load() != 1 {
		return
	}
	f.unreserve()
	if !f.abandoned.Load() {
		(&Frame{store: f.store, class: f.class}).giveBack()
	}
	f.Body, f.store = nil, nil
	f.Abandon() // the empty rest is nothing for the pool
}

// unreserve gives the frame's share of the budget back, once.
func (f *Frame) unreserve() {
	if f.budget != nil {
		f.budget.Release(f.reserved)
		f.budget, f.reserved = nil, 0
	}
}

// ReadyWhen lets the connection see whether the reply to this frame would block.
// As long as replies are ready, answers are collected and leave in one write.
// Session.Serve may call it; without it a reply counts as one that may block.
func (f *Frame) ReadyWhen(ready func() bool) { f.ready = ready }

func (f *Frame) isReady() bool { return f.ready != nil && f.ready() }

// Release drops a reference. The last one returns the memory; Body must not be
// touched afterwards.
func (f *Frame) Release() {
	switch refs := f.refs.Add(-1); {
	case refs > 0:
		return
	case refs < 0:
		panic("BUG: frame released more often than retained")
	}
	f.unreserve()
	f.Body, f.ready = nil, nil
	if f.abandoned.Load() {
		return
	}
	f.giveBack()
}
