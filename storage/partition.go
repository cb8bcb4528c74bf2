package storage

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/storage/invariant"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// Partition is one log. All methods are safe for concurrent use.
//
// It is known in two views. mu guards the sequenced one: what appends have fixed,
// durable or not. vis guards the visible one, which follows it when the journal's
// syncs return. Readers never take mu.
type Partition struct {
	e       *Engine
	tp      model.TopicPartition
	dir     string // relative to the data directory
	parents []string
	seq     uint64 // append locks are taken in this order

	name   atomic.Pointer[string]
	config atomic.Pointer[PartitionConfig]
	epochs atomic.Pointer[epochs]
	end    atomic.Int64 // written under mu
	// cleaned is the first offset compaction has not looked at yet.
	cleaned atomic.Int64
	// counts is what Stats has last seen under mu.
	counts atomic.Pointer[producerCounts]
	// dead is why the partition cannot be used any more; set once.
	dead atomic.Pointer[error]

	mu struct {
		sync.Mutex
		start     model.Offset
		active    *segment.Segment // takes the appends; nil before the first one
		producers producer.Table
	}

	vis visible
}

// visible is what readers see: nothing in it can be undone by a crash.
type visible struct {
	sync.Mutex
	start, stable, high model.Offset
	// highAt is where high is, when it is inside a segment or at its end.
	highAt   place
	aborted  []producer.Aborted // replaced or appended to, never written to
	segments []*segment.Segment // by base; replaced, never changed. The last ones may begin at or behind high
	watchers []*Waiter
	hints    hints
}

// place is a position in a segment.
type place struct {
	segment *segment.Segment
	pos     int64
}

func newPartition(e *Engine, tp model.TopicPartition, seq uint64) *Partition {
	topic := topicsDirectory + "/" + tp.Topic.String()
	dir := fmt.Sprintf("%s/%d", topic, tp.Partition)
	p := &Partition{e: e, tp: tp, seq: seq, dir: dir, parents: []string{dir, topic, topicsDirectory, root}}
	c := PartitionConfig{}.withDefaults()
	name := tp.String()
	p.config.Store(&c)
	p.name.Store(&name)
	p.epochs.Store(&epochs{})
	return p
}

// ID is the partition's key.
func (p *Partition) ID() model.TopicPartition { return p.tp }

// Name is the topic's name, for messages only.
func (p *Partition) Name() string { return *p.name.Load() }

// SetConfig takes effect at once.
func (p *Partition) SetConfig(c PartitionConfig) {
	c = c.withDefaults()
	p.config.Store(&c)
}

// Config is the configuration in force, defaults filled in.
func (p *Partition) Config() PartitionConfig { return *p.config.Load() }

// Err is nil while the partition can be used, else ErrPartitionDeleted or
// ErrPartitionOffline with the reason.
func (p *Partition) Err() error {
	if err := p.dead.Load(); err != nil {
		return *err
	}
	return nil
}

// kill ends the partition's life: every later call gets err, waiters are woken.
func (p *Partition) kill(err error) {
	if !p.dead.CompareAndSwap(nil, &err) {
		return
	}
	p.vis.Lock()
	defer p.vis.Unlock()
	p.vis.wakeLocked()
}

// offline takes the partition out of service because of its files.
func (p *Partition) offline(cause error) error {
	err := fmt.Errorf("%w: %s: %w", ErrPartitionOffline, p.Name(), cause)
	if p.Err() == nil {
		p.kill(err)
		p.e.later(func() { p.e.o.Events.partitionOffline(p.tp, err) })
	}
	return err
}

// Bounds is one consistent view of the four positions.
func (p *Partition) Bounds() model.Bounds {
	p.vis.Lock()
	defer p.vis.Unlock()
	return p.vis.boundsLocked(p)
}

func (v *visible) boundsLocked(p *Partition) model.Bounds {
	b := model.Bounds{Start: v.start, Stable: max(v.stable, v.start), High: v.high}
	// The flusher may have got here before the appender has said where it ended.
	b.End = max(model.Offset(p.end.Load()), b.High)
	return b
}

// advance makes an effect visible. Effects arrive in the journal's order.
func (p *Partition) advance(f *effect) {
	p.vis.Lock()
	defer p.vis.Unlock()
	v := &p.vis
	if f.segment != nil {
		invariant.Check(f.Base >= v.high, "an append became visible out of order", int64(f.Base), int64(v.high))
		v.high, v.highAt = f.Last+1, place{f.segment, f.end}
	}
	if f.start != model.NoOffset {
		v.start = max(v.start, f.start)
	}
	v.stable = v.high
	if f.firstOpen != model.NoOffset {
		v.stable = min(v.stable, f.firstOpen)
	}
	v.aborted = f.aborted
	v.wakeLocked()
}

// addSegment makes a new segment known to readers. They do not look into it before
// high has got there.
func (p *Partition) addSegment(s *segment.Segment) {
	p.vis.Lock()
	defer p.vis.Unlock()
	n := len(p.vis.segments)
	p.vis.segments = append(p.vis.segments[:n:n], s)
}

// withoutSegment undoes addSegment of the last one.
func (p *Partition) withoutSegment(s *segment.Segment) {
	p.vis.Lock()
	defer p.vis.Unlock()
	if n := len(p.vis.segments); n > 0 && p.vis.segments[n-1] == s {
		p.vis.segments = p.vis.segments[: n-1 : n-1]
	}
}

// segments is the list as readers see it.
func (p *Partition) segments() []*segment.Segment {
	p.vis.Lock()
	defer p.vis.Unlock()
	return p.vis.segments
}

// Producers lists the producers known to the partition, by ascending id. It shows
// what is sequenced, which may be ahead of what is durable.
func (p *Partition) Producers() []producer.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.producers.States()
}

// PartitionStats is a snapshot for metrics and DescribeLogDirs.
type PartitionStats struct {
	Bytes      int64
	Segments   int
	DirtyRatio float64 // of the bytes compaction may look at, how many it has not; 0 unless compacted
	Producers  int
	OpenTxns   int
	Aborted    int
}

type producerCounts struct{ producers, openTxns, aborted int }

// Stats is a snapshot. It waits for no append, which may wait for a disk that does
// not answer: while one is under way the last three counts may be those of an
// earlier call.
func (p *Partition) Stats() PartitionStats {
	segments := p.segments()
	s := PartitionStats{Segments: len(segments)}
	for _, seg := range segments {
		s.Bytes += seg.Size()
	}
	if p.Config().Compact {
		s.DirtyRatio = dirtyRatio(segments, model.Offset(p.cleaned.Load()))
	}
	if p.mu.TryLock() {
		t := &p.mu.producers
		p.counts.Store(&producerCounts{t.Len(), t.Open(), len(t.Aborted())})
		p.mu.Unlock()
	}
	if c := p.counts.Load(); c != nil {
		s.Producers, s.OpenTxns, s.Aborted = c.producers, c.openTxns, c.aborted
	}
	return s
}

// dirtyRatio is the part of the sealed bytes that lies in segments compaction has
// not seen.
func dirtyRatio(segments []*segment.Segment, cleaned model.Offset) float64 {
	var dirty, all int64
	for _, s := range segments {
		if !s.Sealed() {
			break
		}
		all += s.Size()
		if s.Meta().Next > cleaned {
			dirty += s.Size()
		}
	}
	if all == 0 {
		return 0
	}
	return float64(dirty) / float64(all)
}
