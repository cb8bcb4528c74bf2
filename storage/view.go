package storage

import (
	"errors"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// view is what one lock hold showed of a partition: bounds, segments and aborted
// transactions belong together.
type view struct {
	model.Bounds
	highAt   place
	aborted  []producer.Aborted
	segments []*segment.Segment
}

// view takes a snapshot for a reader.
func (p *Partition) view() (*view, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	p.vis.Lock()
	defer p.vis.Unlock()
	return &view{
		Bounds: p.vis.boundsLocked(p), highAt: p.vis.highAt,
		aborted: p.vis.aborted, segments: p.vis.segments,
	}, nil
}

// segmentFor is the index of the segment an offset belongs to, -1 when it lies in
// front of the first.
func (v *view) segmentFor(o model.Offset) int {
	lo, hi := 0, len(v.segments)
	for lo < hi {
		mid := (lo + hi) / 2
		if v.segments[mid].Base() <= o {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// hints remember where readers will go on, so that reading in order never
// searches: after a read, the offset behind it and its position. There are a few
// per partition, for as many readers at different places; more of them fall back
// on the index.
type hints struct {
	at   [8]hint
	next int
}

type hint struct {
	offset model.Offset
	place  place
}

// hint returns the position of the batch that begins at an offset, if it is known.
func (p *Partition) hint(o model.Offset) (place, bool) {
	p.vis.Lock()
	defer p.vis.Unlock()
	for i := range p.vis.hints.at {
		if h := &p.vis.hints.at[i]; h.offset == o && h.place.segment != nil {
			return h.place, true
		}
	}
	return place{}, false
}

// remember enters a hint; from is the one it takes the place of, if that is there.
func (p *Partition) remember(from, o model.Offset, at place) {
	p.vis.Lock()
	defer p.vis.Unlock()
	free := -1
	for i := range p.vis.hints.at {
		switch h := &p.vis.hints.at[i]; {
		case h.place.segment == nil:
			free = i
		case h.offset == o:
			h.place = at
			return
		case h.offset == from:
			free = i
		}
	}
	if free < 0 {
		free = p.vis.hints.next
		p.vis.hints.next = (free + 1) % len(p.vis.hints.at)
	}
	p.vis.hints.at[free] = hint{offset: o, place: at}
}

// located is where a read begins.
type located struct {
	n   int // segment
	pos int64
}

// locate finds the first batch that reaches an offset in front of stop; false when
// there is none, because compaction has removed what was there.
func (p *Partition) locate(v *view, from, stop model.Offset) (located, bool, error) {
	if h, ok := p.hint(from); ok {
		if n := v.segmentFor(from); n >= 0 && v.segments[n] == h.segment {
			return located{n: n, pos: h.pos}, true, nil
		}
	}
	for n := max(v.segmentFor(from), 0); n < len(v.segments) && v.segments[n].Base() < stop; n++ {
		end, _, err := p.visibleEnd(v, n, stop)
		if err != nil {
			return located{}, false, err
		}
		found, ok, err := v.segments[n].Locate(from, end)
		if err != nil || ok {
			return located{n: n, pos: found.Pos}, ok, err
		}
	}
	return located{}, false, nil
}

// visibleEnd is the position in segment n where offset stop begins, or the end of
// the segment when stop lies behind it; next is the offset there. Stop is High or
// Stable or between them and the start.
func (p *Partition) visibleEnd(v *view, n int, stop model.Offset) (pos int64, next model.Offset, err error) {
	s := v.segments[n]
	if n+1 < len(v.segments) && v.segments[n+1].Base() <= stop {
		return s.Size(), v.segments[n+1].Base(), nil
	}
	durable := s.Size()
	if v.highAt.segment == s {
		durable = v.highAt.pos
	}
	if stop >= v.High {
		return durable, v.High, nil
	}
	if h, ok := p.hint(stop); ok && h.segment == s {
		return h.pos, stop, nil
	}
	found, ok, err := s.Locate(stop, durable)
	if err != nil {
		return 0, 0, err
	}
	if !ok {
		return durable, v.High, nil
	}
	p.remember(stop, stop, place{s, found.Pos})
	return found.Pos, stop, nil
}

// retryRemoved runs a read again when a segment it was about to open has been
// removed meanwhile: the next view does not have it any more.
func retryRemoved[T any](read func() (T, bool, error)) (T, bool, error) {
	for range 8 {
		t, ok, err := read()
		if !errors.Is(err, segment.ErrRemoved) {
			return t, ok, err
		}
	}
	return read()
}
