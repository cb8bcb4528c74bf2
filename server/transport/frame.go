package transport

import (
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/server/quota"
)

// Frames come from one of two pools: requests of consumers and admins fit the
// small class, produce requests of the usual client settings (batches of up to
// 1 MiB and their envelope) the large one. A bigger frame is allocated and left
// to the collector: a pool would hold memory for a size that may never come
// again.
const (
	smallFrame = 8 << 10
	largeFrame = 1<<20 + 64<<10
)

var (
	smallFrames = sync.Pool{New: func() any { return &Frame{store: make([]byte, smallFrame)} }}
	largeFrames = sync.Pool{New: func() any { return &Frame{store: make([]byte, largeFrame)} }}
)

// Frame is one request in memory, reference-counted because several users alias
// its bytes: the decoded request, the partitions it was appended to, the
// journal until the entry that holds it is durable.
//
// The connection holds one reference from before Serve until the reply's last
// byte is written (or the reply was nil or failed). Whoever aliases Body longer
// calls Retain, and Release when done.
type Frame struct {
	Body []byte // the bytes after the length; valid while a reference is held

	store     []byte      // what Body is cut from; its length names the pool class
	ready     func() bool // see ReadyWhen
	refs      atomic.Int32
	abandoned atomic.Bool
	budget    *quota.Memory // gets Body's bytes back at the last Release; nil for frames made outside a connection
	reserved  int64
}

// NewFrame returns a frame with a body of n bytes, whose content is undefined,
// and one reference. It reserves nothing; tests and in-process callers use it.
func NewFrame(n int) *Frame {
	var f *Frame
	switch {
	case n <= smallFrame:
		f = smallFrames.Get().(*Frame)
	case n <= largeFrame:
		f = largeFrames.Get().(*Frame)
	default:
		f = &Frame{store: make([]byte, n)}
	}
	f.Body = f.store[:n]
	f.refs.Store(1)
	return f
}

// Retain adds a reference.
func (f *Frame) Retain() { f.refs.Add(1) }

// Abandon says that somebody may still read the bytes although nobody will
// tell when: the memory is left to the collector instead of the pool. A reply
// that gives up waiting for a sync calls it. References are still released.
func (f *Frame) Abandon() { f.abandoned.Store(true) }

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
	if f.budget != nil {
		f.budget.Release(f.reserved)
		f.budget, f.reserved = nil, 0
	}
	f.Body, f.ready = nil, nil
	if f.abandoned.Load() {
		return
	}
	scribble(f.store)
	switch len(f.store) {
	case smallFrame:
		smallFrames.Put(f)
	case largeFrame:
		largeFrames.Put(f)
	}
}
