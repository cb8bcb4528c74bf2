package segment

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// chunkBytes is what a scan reads at once: enough for what lies between two index
// entries, little enough to be thrown away when batches are large.
const chunkBytes = 8 << 10

var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// Headers calls fn for the header of every batch from position pos, where one must
// begin, to position end, where one must end, until fn returns false. The header is
// good until fn returns. A *CorruptionError names the first one that cannot be.
func (s *Segment) Headers(pos, end int64, fn func(h *batch.Header, pos int64) bool) error {
	if pos >= end {
		return nil
	}
	f, err := s.Acquire()
	if err != nil {
		return err
	}
	defer s.Release()
	chunk := chunks.Get().(*[chunkBytes]byte)
	defer chunks.Put(chunk)
	have, at := chunk[:0], pos // what of the log is in memory, and where it begins
	next := s.id.Base
	for pos < end {
		if off := pos - at; off+batch.HeaderBytes > int64(len(have)) {
			n := min(end-pos, chunkBytes)
			if _, err := f.ReadAt(chunk[:n], pos); err != nil {
				if errors.Is(err, io.EOF) {
					return s.corrupt(pos, "the file ends early")
				}
				return err
			}
			have, at = chunk[:n], pos
		}
		h, err := batch.ParseHeader(have[pos-at:])
		switch {
		case err != nil:
			return s.corrupt(pos, err.Error())
		case int64(h.Len) > end-pos:
			return s.corrupt(pos, fmt.Sprintf("a batch of %d bytes, %d are left", h.Len, end-pos))
		case h.BaseOffset < next:
			return s.corrupt(pos, fmt.Sprintf("offset %d, at least %d expected", h.BaseOffset, next))
		}
		if !fn(&h, pos) {
			return nil
		}
		pos, next = pos+int64(h.Len), h.NextOffset()
	}
	return nil
}

func (s *Segment) corrupt(pos int64, reason string) error {
	return &CorruptionError{File: s.Path(), Offset: pos, Reason: reason}
}

// Found is a batch's place.
type Found struct {
	Pos    int64
	Header batch.Header
}

// Locate finds the first batch in front of position end that reaches offset o or
// lies beyond it; false when there is none.
func (s *Segment) Locate(o model.Offset, end int64) (Found, bool, error) {
	from, err := s.floor(func(x *index) (int64, bool) { return s.floorOf(x, o) })
	if err != nil {
		return Found{}, false, err
	}
	return s.find(from, end, func(h *batch.Header) bool { return h.LastOffset() >= o })
}

// LocateTime finds the first batch in front of position end with a timestamp at or
// after ts; false when there is none.
func (s *Segment) LocateTime(ts model.Timestamp, end int64) (Found, bool, error) {
	if err := s.fill(math.MaxInt64); err != nil {
		return Found{}, false, err
	}
	from := int64(0)
	if rel, ok := s.index.floorTime(ts); ok {
		from, _ = s.index.floorOffset(rel)
	}
	return s.find(from, end, func(h *batch.Header) bool { return h.MaxTimestamp >= ts })
}

// NextTime goes on behind what LocateTime found.
func (s *Segment) NextTime(ts model.Timestamp, at Found, end int64) (Found, bool, error) {
	return s.find(at.Pos+int64(at.Header.Len), end, func(h *batch.Header) bool { return h.MaxTimestamp >= ts })
}

// MaxTime finds the first batch in front of position end with the largest timestamp
// of those that reach offset start; false when there is none.
func (s *Segment) MaxTime(start model.Offset, end int64) (found Found, ok bool, err error) {
	from, err := s.floor(func(x *index) (int64, bool) { return s.floorOf(x, start) })
	if err != nil {
		return found, false, err
	}
	err = s.Headers(from, end, func(h *batch.Header, pos int64) bool {
		if h.LastOffset() >= start && (!ok || h.MaxTimestamp > found.Header.MaxTimestamp) {
			found, ok = Found{Pos: pos, Header: *h}, true
		}
		return true
	})
	return found, ok, err
}

// floorOf is the position to look for an offset from.
func (s *Segment) floorOf(x *index, o model.Offset) (int64, bool) {
	if o <= s.id.Base {
		return 0, true
	}
	return x.floorOffset(uint32(min(int64(o-s.id.Base), 1<<32-1)))
}

func (s *Segment) find(from, end int64, want func(*batch.Header) bool) (found Found, ok bool, err error) {
	err = s.Headers(from, end, func(h *batch.Header, pos int64) bool {
		if ok = want(h); ok {
			found = Found{Pos: pos, Header: *h}
		}
		return !ok
	})
	return found, ok, err
}

// Extent is a run of whole batches.
type Extent struct {
	End  int64        // position behind the last one
	Next model.Offset // offset behind the last one
}

// Measure returns the longest run of whole batches that begins at pos, is not
// longer than maxBytes, and ends in front of position end and offset stop. One
// batch is returned even if it is longer when minOne. The run is empty (End == pos)
// when not even one batch fits.
func (s *Segment) Measure(pos, maxBytes int64, minOne bool, end int64, stop model.Offset) (Extent, error) {
	reach := pos + maxBytes
	from, err := s.boundary(pos, min(reach, end-1), stop)
	if err != nil {
		return Extent{}, err
	}
	x := Extent{End: from, Next: model.NoOffset}
	first := from == pos
	err = s.Headers(from, end, func(h *batch.Header, at int64) bool {
		fits := at+int64(h.Len) <= reach || first && minOne
		if !fits || h.BaseOffset >= stop {
			if x.Next == model.NoOffset {
				x.Next = h.BaseOffset
			}
			return false
		}
		x, first = Extent{End: at + int64(h.Len), Next: h.NextOffset()}, false
		return true
	})
	return x, err
}

// boundary is where a batch begins that lies as far behind pos as the index can
// tell without passing position reach or offset stop; pos itself when it cannot.
func (s *Segment) boundary(pos, reach int64, stop model.Offset) (int64, error) {
	if reach-pos < int64(s.every) {
		return pos, nil
	}
	p, err := s.floor(func(x *index) (int64, bool) { return x.floorPosition(reach) })
	if err != nil {
		return 0, err
	}
	q, _ := s.index.floorOffset(uint32(min(max(int64(stop-s.id.Base), 0), 1<<32-1)))
	return max(pos, min(p, q)), nil
}

// floor asks the index for a position to start from, completing it first when the
// answer may lie in the part that has not been read; 0 when there is no entry.
func (s *Segment) floor(ask func(*index) (int64, bool)) (int64, error) {
	pos, ok := ask(&s.index)
	if ok || !s.index.missing() {
		return pos, nil
	}
	if err := s.fill(math.MaxInt64); err != nil {
		return 0, err
	}
	pos, _ = ask(&s.index)
	return pos, nil
}
