package storage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/invariant"
	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// TxnMode says what a transactional data batch may do to the partition's
// transaction of its producer.
type TxnMode = producer.TxnMode

const (
	// TxnNone: for batches without the transactional bit, and for markers.
	TxnNone = producer.TxnNone
	// TxnContinue: only if this (producer, epoch) has an open transaction here
	// already; else ErrTxnNotOpen.
	TxnContinue = producer.TxnContinue
	// TxnOpen: open one if there is none. The caller has enrolled the partition
	// with the coordinator and holds what keeps the transaction from ending.
	TxnOpen = producer.TxnOpen
)

// Append is one batch for one partition.
type Append struct {
	Partition *Partition
	// Batch is validated. Its base offset and leader epoch are patched in place;
	// its bytes belong to the engine until the Pending is done.
	Batch batch.View
	// LeaderEpoch is what the caller believes in. model.NoLeaderEpoch and 0 are not
	// checked.
	LeaderEpoch model.LeaderEpoch
	Txn         TxnMode
	Strict      bool // transactions v2: a producer unknown here starts at sequence 0, a marker has a newer epoch
	Internal    bool // coordinator facts and markers
	Frees       bool // a fact by which space comes free: taken however little there is
}

// Append fixes the order of all batches as one journal entry and returns; after a
// crash all of them exist or none does. Every item is checked before anything
// changes: one refusal (*AppendError) refuses the whole call and leaves no trace.
// A partition may occur several times, with at most one batch that names a producer.
// Safe for concurrent use. The caller waits for the Pending before it tells anyone.
func (e *Engine) Append(appends ...Append) (*Pending, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	if len(appends) == 0 {
		return &Pending{}, nil
	}
	if err := e.space.admit(appends); err != nil {
		e.jobs.after(jobSpace, spaceRetry)
		return nil, err
	}
	var room [1]staged
	items := room[:]
	if n := len(appends); n > 1 {
		pooled := takeStaged(n)
		defer pooled.giveBack()
		items = pooled.items[:n]
	}
	now := e.nowMillis()
	locks := lockAppends(appends)
	defer locks.unlock()
	for i := range appends {
		before := items[:i]
		if locks.distinct {
			before = nil
		}
		if err := e.stage(&items[i], &appends[i], before, now); err != nil {
			return nil, &AppendError{Index: i, Partition: appends[i].Partition.tp, Err: err}
		}
	}
	if len(items) == 1 && items[0].Duplicate {
		return e.duplicate(&items[0]), nil
	}
	if i, err := e.write(items); err != nil {
		return nil, &AppendError{Index: i, Partition: items[i].p.tp, Err: err}
	}
	pending, err := e.enqueue(items)
	if err != nil {
		e.unwrite(items)
		return nil, err
	}
	e.commit(items, now)
	return pending, nil
}

// appendLocks is held append locks.
type appendLocks struct {
	one      *Partition // the usual call, without an allocation
	many     []*Partition
	distinct bool // no partition occurs twice
}

// lockAppends takes the append locks in ascending order of seq, each once.
func lockAppends(appends []Append) appendLocks {
	if len(appends) == 1 {
		appends[0].Partition.mu.Lock()
		return appendLocks{one: appends[0].Partition, distinct: true}
	}
	ps := make([]*Partition, 0, len(appends))
	for i := range appends {
		ps = append(ps, appends[i].Partition)
	}
	slices.SortFunc(ps, func(a, b *Partition) int { return cmp.Compare(a.seq, b.seq) })
	ps = slices.Compact(ps)
	for _, p := range ps {
		p.mu.Lock()
	}
	return appendLocks{many: ps, distinct: len(ps) == len(appends)}
}

func (l appendLocks) unlock() {
	if l.one != nil {
		l.one.mu.Unlock()
	}
	for _, p := range l.many {
		p.mu.Unlock()
	}
}

// staged is one item on its way: everything that will be true of it once nothing
// can refuse it any more.
type staged struct {
	effect
	batch   batch.View
	h       batch.Header
	pos     int64
	roll    bool // segment is new
	written bool
	named   bool // this or an earlier item for the partition names a producer
	state   producer.Batch
	plan    producer.Plan
	after   tail // where the partition's next item goes
}

// manyStaged is the items of a call with several, used again: a request for a
// thousand partitions needs half a megabyte of them for some microseconds.
type manyStaged struct{ items []staged }

var stagedPool = sync.Pool{New: func() any { return &manyStaged{} }}

func takeStaged(n int) *manyStaged {
	m := stagedPool.Get().(*manyStaged)
	m.items = slices.Grow(m.items[:0], n)[:n]
	return m
}

func (m *manyStaged) giveBack() {
	clear(m.items)
	stagedPool.Put(m)
}

// stage checks an item and decides where it goes: s is empty before, and after an
// error worth nothing. before are the items of the same call that may be for the same
// partition. It changes nothing else.
func (e *Engine) stage(s *staged, a *Append, before []staged, now int64) error {
	p := a.Partition
	if err := p.Err(); err != nil {
		return err
	}
	if a.LeaderEpoch > 0 && a.LeaderEpoch != e.identity.Incarnation {
		return fmt.Errorf("%w: %d, this is %d", ErrStaleLeaderEpoch, a.LeaderEpoch, e.identity.Incarnation)
	}
	s.batch, s.h = a.Batch, a.Batch.Header()
	s.p, s.start, s.LogStart, s.LogAppendTime = p, model.NoOffset, p.mu.start, model.NoTimestamp
	if s.h.Attributes.TimestampType() == batch.LogAppendTime {
		s.LogAppendTime = s.h.MaxTimestamp
	}
	at := p.tailLocked()
	for i := len(before) - 1; i >= 0; i-- {
		if before[i].p == p {
			at = before[i].after
			break
		}
	}
	s.Base, s.Last = at.next, at.next+model.Offset(s.h.LastOffsetDelta)
	s.h.BaseOffset, s.h.LeaderEpoch = s.Base, e.identity.Incarnation
	s.plan = at.plan
	if s.h.ProducerID != model.NoProducerID {
		if at.named {
			return fmt.Errorf("%w: a second producer's batch for one partition in one call", ErrInvalidTxnState)
		}
		done, err := s.checkProducer(a)
		if done {
			s.after, s.after.named = at, true
		}
		if done || err != nil {
			return err
		}
	} else if s.h.Attributes.IsControl() {
		return fmt.Errorf("%w: a control batch without producer", ErrInvalidTxnState)
	}
	s.named = s.named || at.named
	s.firstOpen, s.aborted = s.plan.FirstOpen, s.plan.Aborted
	s.placeLocked(at, now)
	s.after = tail{next: s.Last + 1, segment: s.segment, pos: s.end, plan: s.plan, named: s.named}
	return nil
}

// tail is where a partition's next batch goes.
type tail struct {
	next    model.Offset
	segment *segment.Segment
	pos     int64
	plan    producer.Plan
	named   bool
}

func (p *Partition) tailLocked() tail {
	t := tail{
		next:    model.Offset(p.end.Load()),
		segment: p.mu.active,
		plan:    producer.Plan{FirstOpen: p.mu.producers.FirstOpen(), Aborted: p.mu.producers.Aborted()},
	}
	if t.segment != nil {
		t.pos = t.segment.Size()
	}
	return t
}

// checkProducer asks the producer table; done means that the batch is a duplicate
// and its original has been found.
func (s *staged) checkProducer(a *Append) (done bool, err error) {
	if s.state, err = describe(&s.h, s.batch); err != nil {
		return false, err
	}
	table := &s.p.mu.producers
	s.named = true
	if s.state.Marker {
		if !a.Internal {
			return false, fmt.Errorf("%w: a control batch from outside", ErrInvalidTxnState)
		}
		if err := table.CheckMarker(&s.state, a.Strict); err != nil {
			return false, err
		}
	} else {
		original, found, err := table.CheckData(&s.state, a.Txn, a.Strict)
		if err != nil {
			return false, err
		}
		if found {
			s.Base, s.Last, s.Duplicate = original.First, original.Last, true
			if s.LogAppendTime != model.NoTimestamp {
				s.LogAppendTime = original.Timestamp
			}
			return true, nil
		}
	}
	s.plan = table.Plan(&s.state)
	return false, nil
}

// describe is what the producer table needs of a batch, whose base offset stands
// in the header.
func describe(h *batch.Header, v batch.View) (producer.Batch, error) {
	b := producer.Batch{
		ID: h.ProducerID, Epoch: h.ProducerEpoch,
		BaseSequence: h.BaseSequence, LastSequence: v.LastSequence(),
		First: h.BaseOffset, Last: h.LastOffset(), Timestamp: h.MaxTimestamp,
		Transactional: h.Attributes.IsTransactional(),
	}
	if h.Attributes.IsControl() {
		m, err := v.Marker()
		if err != nil {
			return b, err
		}
		b.Marker, b.Abort, b.Coordinator = true, m.Type == batch.Abort, m.CoordinatorEpoch
	}
	return b, nil
}

// placeLocked chooses segment and position.
func (s *staged) placeLocked(at tail, now int64) {
	s.segment, s.pos = at.segment, at.pos
	if at.segment == nil || s.p.full(at, &s.h, now) {
		s.segment, s.pos, s.roll = s.p.newSegment(segment.Meta{ID: segment.ID{Base: s.Base}}), 0, true
	}
	s.end = s.pos + int64(s.h.Len)
}

// maxSegmentBytes is where index positions and Kafka's tools end.
const maxSegmentBytes = 1<<31 - 1

// full reports whether a batch must go into a new segment.
func (p *Partition) full(at tail, h *batch.Header, now int64) bool {
	if at.pos == 0 {
		return false
	}
	c := p.config.Load()
	return at.pos+int64(h.Len) > min(c.SegmentBytes, maxSegmentBytes) ||
		!at.segment.Fits(h.LastOffset()) ||
		at.segment.IndexBytes() >= c.SegmentIndexBytes ||
		p.aged(at.segment, c, now)
}

// aged reports whether a segment has reached its age. The jitter depends on the
// segment alone, so that asking again gives the same answer.
func (p *Partition) aged(s *segment.Segment, c *PartitionConfig, now int64) bool {
	age := c.SegmentAge.Milliseconds()
	if j := c.SegmentJitter.Milliseconds(); j > 0 {
		mixed := (uint64(s.Base()) + p.seq + 1) * 0x9e3779b97f4a7c15
		age -= int64(mixed>>1) % (j + 1)
	}
	return s.Size() > 0 && now-s.Meta().Created >= age
}

func (p *Partition) newSegment(m segment.Meta) *segment.Segment {
	return segment.New(p.e.files, p.dir, p.parents, m, p.config.Load().IndexIntervalBytes)
}

// write patches the batches and puts them into their segments, in the order of
// the call. After an error everything is as before; i is the item that failed.
func (e *Engine) write(items []staged) (i int, err error) {
	for i := range items {
		s := &items[i]
		if s.Duplicate {
			continue
		}
		s.batch.SetBaseOffset(s.Base)
		s.batch.SetLeaderEpoch(e.identity.Incarnation)
		s.written = true
		if err := s.segment.Write(s.batch.Bytes(), s.pos); err != nil {
			e.unwrite(items)
			return i, e.writeError(s.p, err)
		}
	}
	return 0, nil
}

// unwrite cuts off what write put behind the segments' ends. A segment that cannot
// be cut takes its partition out of service: what follows would be read as log by
// whoever rebuilds the partition from its files.
func (e *Engine) unwrite(items []staged) {
	for i := len(items) - 1; i >= 0; i-- {
		s := &items[i]
		switch {
		case !s.written:
		case s.roll:
			s.p.withoutSegment(s.segment)
			if _, err := s.segment.Remove(); err != nil {
				s.p.offline(fmt.Errorf("undo append: %w", err))
			}
		default:
			if err := s.segment.Undo(); err != nil {
				s.p.offline(fmt.Errorf("undo append: %w", err))
			}
		}
	}
}

func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// writeError sorts what the file system said of a segment: no space is everybody's
// trouble and passes, as no descriptor for another file is; a failed sync is the end;
// anything else is this partition's.
func (e *Engine) writeError(p *Partition, err error) error {
	if noSpace(err) {
		e.space.exhausted()
		return fmt.Errorf("%w: %w", ErrStorageFull, err)
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("%w: %w", ErrStorageFull, err)
	}
	if failed, ok := errors.AsType[*segment.SyncError](err); ok {
		return e.poisonThen(failed, e.later)
	}
	return p.offline(fmt.Errorf("use segment: %w", err))
}

// enqueue fixes the order. Segments that are new become known to readers first,
// because the effects may become visible before this returns.
func (e *Engine) enqueue(items []staged) (*Pending, error) {
	pending := &Pending{}
	pending.effects = slices.Grow(pending.one[:0], len(items))
	for i := range items {
		pending.effects = append(pending.effects, items[i].effect)
	}
	entry := &pending.entry
	entry.Items, entry.Done = slices.Grow(pending.item[:0], len(items)), pending.settle
	for i := range items {
		s := &items[i]
		if s.Duplicate {
			pending.effects[i].p = nil
			continue
		}
		if s.roll {
			s.p.addSegment(s.segment)
		}
		item, pinned, err := e.item(s)
		if err != nil {
			pending.unpin()
			return nil, e.writeError(s.p, err)
		}
		pending.effects[i].pinned = pinned
		entry.Items = append(entry.Items, item)
	}
	queued, err := e.journal.Enqueue(entry)
	if err != nil {
		pending.unpin()
		return nil, e.journalError(err)
	}
	pending.group = queued.Group
	return pending, nil
}

func (p *Pending) unpin() {
	for i := range p.effects {
		if p.effects[i].pinned {
			p.effects[i].segment.Release()
		}
	}
}

// sumBytes is the size from which a batch's checksum is quicker put together than
// computed again.
const sumBytes = 16 << 10

// item is the journal's form of an append: with its bytes, or above the threshold
// with the segment that has them.
func (e *Engine) item(s *staged) (item journal.Item, pinned bool, err error) {
	item = journal.Item{
		Kind: journal.KindInline, Partition: s.p.tp, Offset: s.Base,
		SegmentBase: s.segment.Base(), Position: s.pos, Bytes: s.batch.Bytes(),
	}
	reference := s.h.Len >= e.o.ReferenceThreshold
	if reference || s.h.Len >= sumBytes {
		item.CRC, item.Summed = s.batch.Sum(), true
	}
	if !reference {
		return item, false, nil
	}
	f, err := s.segment.Acquire()
	if err != nil {
		return item, false, err
	}
	item.Kind, item.Bytes, item.Length = journal.KindReference, nil, uint32(s.h.Len)
	item.File = s.segment.Reference(f)
	e.checkpoints.unsaved.Add(int64(s.h.Len))
	return item, true, nil
}

// journalError translates why the journal did not take an entry.
func (e *Engine) journalError(err error) error {
	switch {
	case errors.Is(err, journal.ErrFull):
		e.space.exhausted()
		return fmt.Errorf("%w: %w", ErrStorageFull, err)
	case errors.Is(err, journal.ErrClosed):
		return ErrClosed
	}
	return err
}

// commit makes the sequenced view say what the journal has been told.
func (e *Engine) commit(items []staged, now int64) {
	for i := range items {
		if s := &items[i]; !s.Duplicate {
			invariant.Check(int64(s.Base) == s.p.end.Load(), "an append leaves a gap", int64(s.Base), s.p.end.Load())
			invariant.Check(s.pos == s.segment.Size(), "a batch is not behind the one before", s.pos, s.segment.Size())
			s.p.commitLocked(&s.h, s.segment, now)
			if s.h.ProducerID != model.NoProducerID {
				s.p.mu.producers.Apply(&s.state, s.plan, now)
			}
		}
	}
}

// commitLocked enters a batch whose bytes stand in a segment, which may be a new one.
func (p *Partition) commitLocked(h *batch.Header, s *segment.Segment, now int64) {
	if old := p.mu.active; old != s {
		if old != nil {
			old.Seal()
			p.e.rolled(p, h.BaseOffset)
		}
		p.mu.active = s
	}
	s.Append(h, now)
	p.end.Store(int64(h.NextOffset()))
	if known := *p.epochs.Load(); len(known) == 0 || known[len(known)-1].Epoch < h.LeaderEpoch {
		next := known.with(h.LeaderEpoch, h.BaseOffset)
		p.epochs.Store(&next)
	}
}

// duplicate answers for a batch that is there already: done when the original is.
func (e *Engine) duplicate(s *staged) *Pending {
	pending := &Pending{}
	if s.Last >= s.p.Bounds().High {
		pending.group = e.journal.Barrier()
	}
	s.effect.p = nil
	pending.effects = append(pending.one[:0], s.effect)
	return pending
}

// Barrier is done when everything sequenced so far is durable.
func (e *Engine) Barrier() *Pending { return &Pending{group: e.journal.Barrier()} }
