package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/perigeemq/perigee/storage/model"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// View is one whole batch, parsed, in someone else's memory. It is a value: copy
// it freely. It aliases the bytes given to Parse and is good for exactly as long
// as they are: on the produce path until the request's frame is released, which
// is after the append's Pending is done; on a read until its Slice is released.
// Whoever holds a View for longer makes a copy first, with Clone.
//
// Only Parse, Trust and the functions that make batches return one, so its lengths can
// be relied upon. The zero View holds no batch: IsZero says so, and calling
// anything else on it panics.
type View struct{ b []byte }

// Parse reads the batch at the start of b and returns it with the bytes behind
// it. It checks the lengths, the magic, the counts, the codec's number and the
// checksum; it does not look at records, that is Validate's.
// Errors: those of ParseHeader, and ErrCodec.
func Parse(b []byte) (v View, rest []byte, err error) {
	if v, err = frame(b); err != nil {
		return View{}, b, err
	}
	if sum := v.checksum(); sum != v.CRC() {
		return View{}, b, fmt.Errorf("%w: checksum %08x, computed %08x", ErrCorrupt, v.CRC(), sum)
	}
	return v.followed(b)
}

// Trust is Parse without the checksum: for bytes that a checksum of the caller's,
// taken when the batch's own was known to be right, has just vouched for.
func Trust(b []byte) (v View, rest []byte, err error) {
	if v, err = frame(b); err != nil {
		return View{}, b, err
	}
	return v.followed(b)
}

// followed returns a batch at the start of b and the bytes behind it, if its codec
// is known.
func (v View) followed(b []byte) (View, []byte, error) {
	if c := v.Compression(); !c.valid() {
		return View{}, b, fmt.Errorf("%w: %d", ErrCodec, c)
	}
	return v, b[v.Len():], nil
}

// frame cuts a batch off by its length.
func frame(b []byte) (View, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return View{}, err
	}
	if h.Len > len(b) {
		return View{}, fmt.Errorf("%w: %d of %d bytes", ErrTruncated, len(b), h.Len)
	}
	return View{b: b[:h.Len:h.Len]}, nil
}

// IsZero reports whether the View holds no batch.
func (v View) IsZero() bool { return v.b == nil }

// Bytes are the whole batch. They alias; see View.
func (v View) Bytes() []byte { return v.b }

// Len is the size of the whole batch in bytes.
func (v View) Len() int { return len(v.b) }

// Clone returns the same batch in memory of its own.
func (v View) Clone() View { return View{b: append([]byte(nil), v.b...)} }

// Header decodes all fixed fields.
func (v View) Header() Header {
	h := v.header()
	h.Len = len(v.b)
	return h
}

func (v View) header() Header {
	return Header{
		BaseOffset:      v.BaseOffset(),
		LeaderEpoch:     v.LeaderEpoch(),
		CRC:             v.CRC(),
		Attributes:      v.Attributes(),
		LastOffsetDelta: v.LastOffsetDelta(),
		BaseTimestamp:   v.BaseTimestamp(),
		MaxTimestamp:    v.MaxTimestamp(),
		ProducerID:      v.ProducerID(),
		ProducerEpoch:   v.ProducerEpoch(),
		BaseSequence:    v.BaseSequence(),
		Count:           v.Count(),
	}
}

// BaseOffset is the offset of the first record there was when the batch was written.
func (v View) BaseOffset() model.Offset { return model.Offset(v.int64At(posBaseOffset)) }

// LeaderEpoch is the epoch the batch was appended under.
func (v View) LeaderEpoch() model.LeaderEpoch { return model.LeaderEpoch(v.int32At(posLeaderEpoch)) }

// CRC is the stored checksum.
func (v View) CRC() uint32 { return binary.BigEndian.Uint32(v.b[posCRC:]) }

// Attributes are the batch's flags.
func (v View) Attributes() Attributes {
	return Attributes(binary.BigEndian.Uint16(v.b[posAttributes:]))
}

// LastOffsetDelta is LastOffset - BaseOffset.
func (v View) LastOffsetDelta() int32 { return v.int32At(posLastOffsetDelta) }

// BaseTimestamp is what the records' timestamp deltas are added to. When
// Attributes().HasDeleteHorizon() it is the delete horizon at the same time.
func (v View) BaseTimestamp() model.Timestamp { return model.Timestamp(v.int64At(posBaseTimestamp)) }

// MaxTimestamp is the largest timestamp of the records there were when the batch
// was written, or the time of the append when timestamps are LogAppendTime.
func (v View) MaxTimestamp() model.Timestamp { return model.Timestamp(v.int64At(posMaxTimestamp)) }

// ProducerID is model.NoProducerID for a producer without idempotence.
func (v View) ProducerID() model.ProducerID { return model.ProducerID(v.int64At(posProducerID)) }

// ProducerEpoch goes with ProducerID.
func (v View) ProducerEpoch() model.ProducerEpoch {
	return model.ProducerEpoch(binary.BigEndian.Uint16(v.b[posProducerEpoch:]))
}

// BaseSequence is the sequence of the first record.
func (v View) BaseSequence() model.Sequence { return model.Sequence(v.int32At(posBaseSequence)) }

// LastSequence is the sequence of the last record, wrapped as Kafka wraps it, or
// model.NoSequence when the batch has none.
func (v View) LastSequence() model.Sequence {
	if s := v.BaseSequence(); s != model.NoSequence {
		return s.Add(v.LastOffsetDelta())
	}
	return model.NoSequence
}

// Count is the number of records in the batch; 0 in one that compaction emptied
// and kept for its producer's sake.
func (v View) Count() int32 { return v.int32At(posCount) }

// LastOffset is the last offset the batch takes.
func (v View) LastOffset() model.Offset { return v.BaseOffset() + model.Offset(v.LastOffsetDelta()) }

// NextOffset is the offset behind the batch.
func (v View) NextOffset() model.Offset { return v.LastOffset() + 1 }

// Compression is Attributes().Compression().
func (v View) Compression() Compression { return v.Attributes().Compression() }

// TimestampType is Attributes().TimestampType().
func (v View) TimestampType() TimestampType { return v.Attributes().TimestampType() }

// IsTransactional is Attributes().IsTransactional().
func (v View) IsTransactional() bool { return v.Attributes().IsTransactional() }

// IsControl is Attributes().IsControl().
func (v View) IsControl() bool { return v.Attributes().IsControl() }

// HasDeleteHorizon is Attributes().HasDeleteHorizon().
func (v View) HasDeleteHorizon() bool { return v.Attributes().HasDeleteHorizon() }

// DeleteHorizon is the time from which compaction may drop the batch's
// tombstones, or its marker; false when none has been set yet.
func (v View) DeleteHorizon() (model.Timestamp, bool) {
	if !v.HasDeleteHorizon() {
		return model.NoTimestamp, false
	}
	return v.BaseTimestamp(), true
}

// SetBaseOffset writes into the shared bytes. The field is outside the checksum.
// Only the owner of the bytes may call it, before anybody else reads them.
func (v View) SetBaseOffset(o model.Offset) {
	binary.BigEndian.PutUint64(v.b[posBaseOffset:], uint64(o))
}

// SetLeaderEpoch writes into the shared bytes; see SetBaseOffset.
func (v View) SetLeaderEpoch(e model.LeaderEpoch) {
	binary.BigEndian.PutUint32(v.b[posLeaderEpoch:], uint32(e))
}

// payload are the records as stored, compressed or not.
func (v View) payload() []byte { return v.b[HeaderBytes:] }

func (v View) checksum() uint32 { return crc32.Checksum(v.b[posAttributes:], castagnoli) }

// seal recomputes the checksum after bytes under it have changed.
func (v View) seal() { binary.BigEndian.PutUint32(v.b[posCRC:], v.checksum()) }

func (v View) int32At(pos int) int32 { return int32(binary.BigEndian.Uint32(v.b[pos:])) }
func (v View) int64At(pos int) int64 { return int64(binary.BigEndian.Uint64(v.b[pos:])) }
