package storage

import (
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
)

// TimestampOffset is the answer to a search by time.
type TimestampOffset struct {
	Timestamp   model.Timestamp
	Offset      model.Offset
	LeaderEpoch model.LeaderEpoch
}

// OffsetForTimestamp finds the first visible record at or after ts; false when
// there is none.
func (p *Partition) OffsetForTimestamp(ts model.Timestamp, i model.Isolation) (t TimestampOffset, ok bool, err error) {
	t, ok, err = retryRemoved(func() (TimestampOffset, bool, error) {
		v, err := p.view()
		if err != nil {
			return TimestampOffset{}, false, err
		}
		stop := v.Visible(i)
		for n, s := range v.segments {
			if s.Base() >= stop {
				break
			}
			if s.Sealed() && s.Meta().MaxTimestamp < ts {
				continue
			}
			t, ok, err := p.timestampIn(v, n, ts, stop)
			if err != nil || ok {
				return t, ok, err
			}
		}
		return TimestampOffset{}, false, nil
	})
	return t, ok, p.distrust(err)
}

// timestampIn searches one segment. A batch may promise the time and not keep it
// below the start of the log, so the search goes on behind it.
func (p *Partition) timestampIn(v *view, n int, ts model.Timestamp, stop model.Offset) (TimestampOffset, bool, error) {
	s := v.segments[n]
	end, _, err := p.visibleEnd(v, n, stop)
	if err != nil {
		return TimestampOffset{}, false, err
	}
	found, ok, err := s.LocateTime(ts, end)
	for ok && err == nil {
		t, hit, failed := p.recordIn(s, found, func(r batch.Record) bool { return r.Timestamp >= ts && r.Offset >= v.Start })
		if hit || failed != nil {
			return t, hit, failed
		}
		found, ok, err = s.NextTime(ts, found, end)
	}
	return TimestampOffset{}, false, err
}

// recordIn reads a batch and finds the first record in it that is wanted.
func (p *Partition) recordIn(s *segment.Segment, at segment.Found, want func(batch.Record) bool) (TimestampOffset, bool, error) {
	b := make([]byte, at.Header.Len)
	if err := s.Read(b, at.Pos); err != nil {
		return TimestampOffset{}, false, err
	}
	v, _, err := batch.Parse(b)
	if err != nil {
		return TimestampOffset{}, false, &CorruptionError{File: s.Path(), Offset: at.Pos, Reason: err.Error()}
	}
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			return TimestampOffset{}, false, &CorruptionError{File: s.Path(), Offset: at.Pos, Reason: err.Error()}
		}
		if want(r) {
			return TimestampOffset{Timestamp: r.Timestamp, Offset: r.Offset, LeaderEpoch: v.LeaderEpoch()}, true, nil
		}
	}
	return TimestampOffset{}, false, nil
}

// MaxTimestamp finds the first visible record with the largest timestamp; false
// when there is no record.
func (p *Partition) MaxTimestamp(i model.Isolation) (t TimestampOffset, ok bool, err error) {
	t, ok, err = retryRemoved(func() (TimestampOffset, bool, error) {
		v, err := p.view()
		if err != nil {
			return TimestampOffset{}, false, err
		}
		best, ok, err := p.maxTimestampIn(v, v.Visible(i))
		if err != nil || !ok {
			return TimestampOffset{}, false, err
		}
		return p.recordIn(best.segment, best.found, func(r batch.Record) bool { return r.Timestamp == best.top && r.Offset >= v.Start })
	})
	return t, ok, p.distrust(err)
}

type maxFound struct {
	segment *segment.Segment
	found   segment.Found
	top     model.Timestamp // the largest of what is left of the batch
}

// maxTimestampIn looks into the headers only of segments that may hold a larger
// timestamp than those before.
func (p *Partition) maxTimestampIn(v *view, stop model.Offset) (best maxFound, ok bool, err error) {
	for n, s := range v.segments {
		if s.Base() >= stop {
			break
		}
		if ok && s.Meta().MaxTimestamp <= best.top {
			continue
		}
		end, _, err := p.visibleEnd(v, n, stop)
		if err != nil {
			return best, false, err
		}
		f, hit, err := s.MaxTime(v.Start, end)
		if err != nil {
			return best, false, err
		}
		found := maxFound{s, f, f.Header.MaxTimestamp}
		if hit && f.Header.BaseOffset < v.Start {
			found, hit, err = p.maxOfCut(v, s, f, end)
			if err != nil {
				return best, false, err
			}
		}
		if hit && (!ok || found.top > best.top) {
			best, ok = found, true
		}
	}
	return best, ok, nil
}

// maxOfCut decides when the largest timestamp belongs to a batch of which the start of
// the log has taken a part: to what is left of it, or to a batch behind it.
func (p *Partition) maxOfCut(v *view, s *segment.Segment, cut segment.Found, end int64) (best maxFound, ok bool, err error) {
	f, hit, err := s.MaxTime(cut.Header.NextOffset(), end)
	if err != nil {
		return best, false, err
	}
	if hit {
		best, ok = maxFound{s, f, f.Header.MaxTimestamp}, true
	}
	left := model.NoTimestamp
	_, _, err = p.recordIn(s, cut, func(r batch.Record) bool {
		if r.Offset >= v.Start {
			left = max(left, r.Timestamp)
		}
		return false
	})
	if left != model.NoTimestamp && (!ok || left >= best.top) {
		best, ok = maxFound{s, cut, left}, true
	}
	return best, ok, err
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch not above the one asked
// for, and the offset where it ends. Both are "none" for an epoch from the future.
func (p *Partition) EpochEnd(epoch model.LeaderEpoch) (model.LeaderEpoch, model.Offset) {
	return (*p.epochs.Load()).end(epoch, p.e.identity.Incarnation, p.Bounds().High)
}

// EpochAt is the leader epoch the record at an offset was appended under,
// model.NoLeaderEpoch when it is not known.
func (p *Partition) EpochAt(o model.Offset) model.LeaderEpoch { return (*p.epochs.Load()).at(o) }
