package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/perigeemq/perigee/storage/model"
)

// A snapshot, big endian, inside the checkpoint of its partition (which has the
// version and the checksum):
//
//	entries 4 │ { id 8 │ epoch 2 │ coordinator 4 │ transaction first 8 │ timestamp 8 │ touched 8 │
//	            batches 1 │ { base 4 │ last 4 │ first offset 8 │ last offset 8 │ timestamp 8 } … } …
//	aborted 4 │ { id 8 │ first 8 │ last 8 │ stable 8 } …
//
// Entries ascend by id, so that equal tables have equal bytes. The open
// transactions follow from the entries.
const (
	entryBytes   = 8 + 2 + 4 + 8 + 8 + 8 + 1
	writtenBytes = 4 + 4 + 8 + 8 + 8
	abortedBytes = 4 * 8
)

var errSnapshot = errors.New("producer snapshot")

// AppendTo appends the table's snapshot to b.
func (t *Table) AppendTo(b []byte) []byte {
	be := binary.BigEndian
	b = slices.Grow(b, 8+len(t.entries)*(entryBytes+writtenBytes)+len(t.aborted)*abortedBytes)
	b = be.AppendUint32(b, uint32(len(t.entries)))
	for _, id := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[id]
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint16(b, uint16(e.epoch))
		b = be.AppendUint32(b, uint32(e.coordinator))
		b = be.AppendUint64(b, uint64(e.txnFirst))
		b = be.AppendUint64(b, uint64(e.timestamp))
		b = be.AppendUint64(b, uint64(e.touched))
		b = append(b, e.count)
		for _, w := range e.batches[:e.count] {
			b = be.AppendUint32(b, uint32(w.base))
			b = be.AppendUint32(b, uint32(w.last))
			b = be.AppendUint64(b, uint64(w.firstOff))
			b = be.AppendUint64(b, uint64(w.lastOff))
			b = be.AppendUint64(b, uint64(w.timestamp))
		}
	}
	b = be.AppendUint32(b, uint32(len(t.aborted)))
	for _, a := range t.aborted {
		b = be.AppendUint64(b, uint64(a.ProducerID))
		b = be.AppendUint64(b, uint64(a.First))
		b = be.AppendUint64(b, uint64(a.Last))
		b = be.AppendUint64(b, uint64(a.Stable))
	}
	return b
}

// Decode reads a snapshot and returns the bytes behind it.
func Decode(b []byte) (*Table, []byte, error) {
	r := reader{b: b}
	t := &Table{}
	n := r.count(entryBytes)
	if n > 0 {
		t.entries = make(map[model.ProducerID]*entry, n)
	}
	for range n {
		id := model.ProducerID(r.uint64())
		e := &entry{
			epoch:       model.ProducerEpoch(r.uint16()),
			coordinator: int32(r.uint32()),
			txnFirst:    model.Offset(r.uint64()),
			timestamp:   model.Timestamp(r.uint64()),
			touched:     int64(r.uint64()),
			count:       r.uint8(),
		}
		if e.count > remembered {
			return nil, nil, fmt.Errorf("%w: producer %d has %d batches", errSnapshot, id, e.count)
		}
		for i := range e.count {
			e.batches[i] = written{
				base: model.Sequence(r.uint32()), last: model.Sequence(r.uint32()),
				firstOff: model.Offset(r.uint64()), lastOff: model.Offset(r.uint64()),
				timestamp: model.Timestamp(r.uint64()),
			}
		}
		if t.entries[id] != nil {
			return nil, nil, fmt.Errorf("%w: producer %d twice", errSnapshot, id)
		}
		t.entries[id] = e
		if e.txnFirst != model.NoOffset {
			t.open = append(t.open, openTxn{first: e.txnFirst, id: id})
		}
	}
	slices.SortFunc(t.open, func(a, b openTxn) int { return int(min(max(a.first-b.first, -1), 1)) })
	n = r.count(abortedBytes)
	t.aborted = make([]Aborted, n)
	for i := range t.aborted {
		t.aborted[i] = Aborted{
			ProducerID: model.ProducerID(r.uint64()),
			First:      model.Offset(r.uint64()), Last: model.Offset(r.uint64()), Stable: model.Offset(r.uint64()),
		}
	}
	if r.short {
		return nil, nil, fmt.Errorf("%w: cut off", errSnapshot)
	}
	return t, r.b, nil
}

// reader hands out numbers and remembers having run out of bytes.
type reader struct {
	b     []byte
	short bool
}

var zeros [8]byte

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.b, r.short = nil, true
		return zeros[:n]
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) uint8() uint8   { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// count reads a number of elements of at least size bytes each, 0 when so many
// cannot be there.
func (r *reader) count(size int) int {
	n := int64(r.uint32())
	if n*int64(size) > int64(len(r.b)) {
		r.short = true
		return 0
	}
	return int(n)
}
