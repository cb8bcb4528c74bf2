package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
)

// retire gives up old segments of every partition whose policy has delete.
func (e *Engine) retire(ctx context.Context, _ uint64) error {
	var errs []error
	for _, p := range e.all() {
		if ctx.Err() != nil {
			break
		}
		if p.Config().Delete && p.Err() == nil {
			errs = append(errs, p.retire(ctx))
		}
	}
	return errors.Join(errs...)
}

// retire chooses, raises the start past what was chosen, and drops it.
func (p *Partition) retire(ctx context.Context) error {
	p.rollMisdated()
	segments := p.segments()
	x := chooseExpired(describeSegments(segments), p.Config(), p.Bounds().High, p.e.nowMillis())
	if x.segments == 0 {
		return nil
	}
	if x.segments == len(segments) {
		// Appends may have come since; then the segment is not all expired.
		if !p.roll(segments[len(segments)-1], x.end) {
			return nil
		}
	}
	pending, _, err := p.raiseStart(x.end)
	if err == nil {
		err = pending.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("retention of %s: %w", p.Name(), err)
	}
	p.dropBelowStart(x.reason)
	return nil
}

// rollMisdated rolls the active segment once it has reached its age if it holds
// records from the future: how old they are is known only from the next segment.
func (p *Partition) rollMisdated() {
	segments := p.segments()
	if len(segments) == 0 {
		return
	}
	c, now, last := p.Config(), p.e.nowMillis(), segments[len(segments)-1]
	if m := last.Meta(); int64(m.MaxTimestamp) > now && p.aged(last, &c, now) {
		p.roll(last, m.Next)
	}
}

// expired is a run of segments from the oldest on that retention gives up.
type expired struct {
	segments int
	end      model.Offset // the start when they are gone
	reason   string
}

// chooseExpired decides by age and by size. Whole segments go, oldest first, and
// none that reaches beyond High. The active one is among them only when it and
// everything before it is past its age: it is rolled first.
func chooseExpired(segments []segment.Meta, c PartitionConfig, high model.Offset, now int64) expired {
	aged, excess := chooseAged(segments, c.RetentionAge, high, now), chooseExcess(segments, c.RetentionBytes, high)
	if excess.segments > aged.segments {
		return excess
	}
	return aged
}

func chooseAged(segments []segment.Meta, age time.Duration, high model.Offset, now int64) expired {
	x := expired{reason: "retention time"}
	if age <= 0 {
		return x
	}
	for i, m := range segments {
		end := endOf(segments, i)
		if m.Size == 0 || end > high || now-youngest(segments, i, now) <= age.Milliseconds() {
			break
		}
		x.segments, x.end = i+1, end
	}
	return x
}

func chooseExcess(segments []segment.Meta, limit int64, high model.Offset) expired {
	x := expired{reason: "retention size"}
	if limit <= 0 {
		return x
	}
	excess := -limit
	for _, m := range segments {
		excess += m.Size
	}
	for i, m := range segments[:max(len(segments)-1, 0)] {
		if excess -= m.Size; excess < 0 || endOf(segments, i) > high {
			break
		}
		x.segments, x.end = i+1, endOf(segments, i)
	}
	return x
}

// endOf is where the offsets of a segment end: compaction may have removed the
// last ones.
func endOf(segments []segment.Meta, i int) model.Offset {
	if i+1 < len(segments) {
		return segments[i+1].Base
	}
	return segments[i].Next
}

// youngest is the time of a segment's youngest record, in Unix milliseconds: the
// largest timestamp. A producer whose clock runs ahead would keep its records for
// ever, so while that lies in the future the time counts at which the segment after it
// was begun. Only then: that time is our clock's, which may have been wrong too.
// Records without timestamps are as old as the last append.
func youngest(segments []segment.Meta, i int, now int64) int64 {
	m := segments[i]
	t, last := int64(m.MaxTimestamp), m.Touched
	if i+1 < len(segments) && segments[i+1].Created > 0 {
		last = max(m.Created, segments[i+1].Created)
	}
	switch {
	case t < 0:
		return last
	case t > now && i+1 < len(segments) && segments[i+1].Created > 0:
		return min(t, last)
	}
	return t
}

func describeSegments(segments []*segment.Segment) []segment.Meta {
	metas := make([]segment.Meta, len(segments))
	for i, s := range segments {
		metas[i] = s.Meta()
	}
	return metas
}

// roll seals the active segment and begins an empty one without waiting for an
// append, so that a partition nobody writes to can be retired and compacted. It
// does nothing, and says false, unless the active segment is still the given one
// and still ends at end.
func (p *Partition) roll(active *segment.Segment, end model.Offset) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Err() != nil || p.mu.active != active || active.Size() == 0 || active.Meta().Next != end {
		return false
	}
	next := p.newSegment(segment.Meta{ID: segment.ID{Base: end}, Created: p.e.nowMillis()})
	active.Seal()
	p.addSegment(next)
	p.mu.active = next
	p.e.rolled(p, end)
	return true
}
