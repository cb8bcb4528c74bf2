package storage

import (
	"fmt"
	"slices"

	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
)

// DeleteRecords raises Start to before, model.NoOffset meaning High, and returns
// the new Start. Done when durable; then segments that lie below it are dropped.
// An offset beyond High is ErrOffsetOutOfRange, one at or below Start changes
// nothing. It works while appends are refused for lack of space.
func (p *Partition) DeleteRecords(before model.Offset) (*Pending, model.Offset, error) {
	high := p.Bounds().High
	if before == model.NoOffset {
		before = high
	}
	if before < 0 || before > high {
		return nil, 0, fmt.Errorf("%w: delete before %d of %s, which ends at %d", ErrOffsetOutOfRange, before, p.Name(), high)
	}
	pending, start, err := p.raiseStart(before)
	if err != nil {
		return nil, 0, err
	}
	p.e.later(func() {
		<-pending.Done()
		p.dropBelowStart("delete records")
	})
	return pending, start, nil
}

// raiseStart journals a new start; it becomes visible when it is durable. The
// caller has made sure that it is not beyond High.
func (p *Partition) raiseStart(start model.Offset) (*Pending, model.Offset, error) {
	if err := p.e.usable(); err != nil {
		return nil, 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Err(); err != nil {
		return nil, 0, err
	}
	if start <= p.mu.start {
		return p.e.Barrier(), p.mu.start, nil
	}
	t := p.tailLocked()
	pending := &Pending{}
	pending.one[0] = effect{p: p, start: start, firstOpen: t.plan.FirstOpen, aborted: t.plan.Aborted}
	pending.effects = pending.one[:]
	queued, err := p.e.journal.Enqueue(&journal.Entry{
		Items: []journal.Item{{Kind: journal.KindSetStart, Partition: p.tp, Offset: start}},
		Done:  pending.settle,
	})
	if err != nil {
		return nil, 0, p.e.journalError(err)
	}
	pending.group = queued.Group
	p.setStartLocked(start)
	return pending, start, nil
}

// setStartLocked enters a start that the journal has.
func (p *Partition) setStartLocked(start model.Offset) {
	p.mu.start = start
	p.mu.producers.Prune(start)
	history := (*p.epochs.Load()).from(start)
	p.epochs.Store(&history)
}

// dropBelowStart takes the segments out of the list that lie below the visible
// start, and gives their files up. The active segment stays.
func (p *Partition) dropBelowStart(reason string) {
	p.vis.Lock()
	n := belowStart(p.vis.segments, p.vis.start)
	dropped := p.vis.segments[:n]
	p.vis.segments = p.vis.segments[n:]
	start := p.vis.start
	p.vis.Unlock()
	if n == 0 {
		return
	}
	d := SegmentsDropped{Job: p.e.jobs.id(), Partition: p.tp, Reason: reason, Segments: n, Start: start}
	for _, s := range dropped {
		d.Bytes += s.Size()
	}
	p.e.discard(dropped, nil, p.Config().FileDeleteDelay)
	p.e.o.Events.segmentsDropped(d)
}

// belowStart counts the sealed segments that have nothing at or above the start.
func belowStart(segments []*segment.Segment, start model.Offset) (n int) {
	for n+1 < len(segments) && segments[n].Sealed() && segments[n+1].Base() <= start {
		n++
	}
	return n
}

// replaceSegments puts one segment, or none, in the place of a run of sealed ones,
// as compaction does. The new one is complete; its file need not be synced. Readers
// that hold an old one keep it. false: the list has changed meanwhile, or the
// partition is dead; the caller throws its work away.
//
// A crash before the next checkpoint brings the old ones back, and recovery removes
// the file of the new one.
func (p *Partition) replaceSegments(old []*segment.Segment, replacement *segment.Segment) bool {
	p.vis.Lock()
	i := slices.Index(p.vis.segments, old[0])
	if p.Err() != nil || i < 0 || i+len(old) >= len(p.vis.segments) || !slices.Equal(p.vis.segments[i:i+len(old)], old) {
		p.vis.Unlock()
		return false
	}
	next := slices.Clone(p.vis.segments[:i])
	if replacement != nil {
		replacement.Seal()
		next = append(next, replacement)
	}
	p.vis.segments = append(next, p.vis.segments[i+len(old):]...)
	p.vis.hints = hints{}
	p.vis.Unlock()
	p.e.discard(old, nil, p.Config().FileDeleteDelay)
	return true
}
