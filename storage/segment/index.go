package segment

import (
	"sort"
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// index is the sparse tables of one segment. Entries describe log bytes from
// position from on; what lies in front of it has not been read since the engine
// was opened and is filled in when a search needs it.
type index struct {
	sync.RWMutex
	from    int64
	bound   model.Timestamp // no batch in front of from has a later one
	entry   int64           // position the last entry was made for
	offsets []offsetEntry
	times   []timeEntry
	max     model.Timestamp // largest so far, if times has an entry

	load  sync.Mutex   // one filler at a time; taken before the RWMutex
	saved atomic.Int64 // bytes of log the index file describes, as far as we know
}

type offsetEntry struct {
	offset   uint32 // of the batch, relative to the base
	position uint32 // where it begins
}

// timeEntry: batches before the one with this offset have no later timestamp.
type timeEntry struct {
	timestamp model.Timestamp
	offset    uint32
}

const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
)

func (x *index) bytes() int {
	x.RLock()
	defer x.RUnlock()
	return max(len(x.offsets)*offsetEntryBytes, len(x.times)*timeEntryBytes)
}

// add enters the batch at a position if enough log has passed since the last entry.
func (x *index) add(base model.Offset, h *batch.Header, pos int64, every int) {
	x.Lock()
	defer x.Unlock()
	x.addLocked(base, h, pos, every)
}

func (x *index) addLocked(base model.Offset, h *batch.Header, pos int64, every int) {
	if len(x.offsets) > 0 && pos-x.entry < int64(every) {
		x.max = max(x.max, h.MaxTimestamp)
		return
	}
	// What stands in front of this batch has timestamps up to max.
	if len(x.offsets) > 0 && (len(x.times) == 0 || x.max > x.times[len(x.times)-1].timestamp) {
		x.times = append(x.times, timeEntry{timestamp: x.max, offset: uint32(h.BaseOffset - base)})
	}
	if len(x.offsets) == 0 {
		x.max = h.MaxTimestamp
	}
	x.max = max(x.max, h.MaxTimestamp)
	x.offsets = append(x.offsets, offsetEntry{offset: uint32(h.BaseOffset - base), position: uint32(pos)})
	x.entry = pos
}

// floorOffset is the position of the last entry at or below a relative offset.
func (x *index) floorOffset(rel uint32) (pos int64, ok bool) {
	x.RLock()
	defer x.RUnlock()
	i := sort.Search(len(x.offsets), func(i int) bool { return x.offsets[i].offset > rel })
	if i == 0 {
		return 0, false
	}
	return int64(x.offsets[i-1].position), true
}

// floorPosition is the last entry's position at or below a position.
func (x *index) floorPosition(at int64) (pos int64, ok bool) {
	x.RLock()
	defer x.RUnlock()
	i := sort.Search(len(x.offsets), func(i int) bool { return int64(x.offsets[i].position) > at })
	if i == 0 {
		return 0, false
	}
	return int64(x.offsets[i-1].position), true
}

// floorTime is the relative offset in front of which every timestamp is below ts.
func (x *index) floorTime(ts model.Timestamp) (rel uint32, ok bool) {
	x.RLock()
	defer x.RUnlock()
	i := sort.Search(len(x.times), func(i int) bool { return x.times[i].timestamp >= ts })
	if i == 0 {
		return 0, false
	}
	return x.times[i-1].offset, true
}

// missing reports whether the front of the log is not described yet.
func (x *index) missing() bool {
	x.RLock()
	defer x.RUnlock()
	return x.from > 0
}

// prepend puts the complete index of the log's first from bytes in front.
func (x *index) prepend(front *index) {
	x.Lock()
	defer x.Unlock()
	times := front.times
	if len(x.offsets) > 0 {
		if len(front.offsets) > 0 {
			times = append(times, timeEntry{timestamp: front.max, offset: x.offsets[0].offset})
		}
		for _, t := range x.times {
			times = append(times, timeEntry{timestamp: max(t.timestamp, front.max), offset: t.offset})
		}
	} else {
		x.entry = front.entry
	}
	x.max = max(x.max, front.max)
	x.offsets = append(front.offsets, x.offsets...)
	x.times = times
	x.from = 0
}

// reset forgets everything, as if the log's size bytes, with timestamps up to bound,
// had not been read.
func (x *index) reset(size int64, bound model.Timestamp) {
	x.Lock()
	defer x.Unlock()
	x.offsets, x.times, x.entry, x.max, x.from, x.bound = nil, nil, 0, 0, size, bound
}

// fill completes the index from the index file and the log; it gives up when more
// than scanBytes of log would have to be read.
func (s *Segment) fill(scanBytes int64) error {
	x := &s.index
	x.load.Lock()
	defer x.load.Unlock()
	x.RLock()
	from, bound := x.from, x.bound
	x.RUnlock()
	if from == 0 {
		return nil
	}
	front, covered := s.readIndex(from)
	if from-covered > scanBytes {
		return nil
	}
	// The file does not say what stands behind its last entry. Too late a time only
	// makes a search begin earlier.
	front.max = bound
	err := s.Headers(covered, from, func(h *batch.Header, pos int64) bool {
		front.addLocked(s.id.Base, h, pos, s.every)
		return true
	})
	if err != nil {
		return err
	}
	x.prepend(front)
	return nil
}
