package batch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/storage/model"
)

const (
	// HeaderBytes is the size of a batch without records.
	HeaderBytes = 61

	// prefixBytes are the bytes the length field does not count: the base offset
	// and the length itself.
	prefixBytes = 12

	// Magic is the only format version this package knows.
	Magic = 2
)

// Where the fields stand; the drawing is in doc.go.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57
)

// Attributes are the batch's flags.
type Attributes uint16

const (
	attrCompression   Attributes = 0x07
	attrLogAppendTime Attributes = 0x08
	attrTransactional Attributes = 0x10
	attrControl       Attributes = 0x20
	attrDeleteHorizon Attributes = 0x40
)

// Compression names the codec of the records.
func (a Attributes) Compression() Compression { return Compression(a & attrCompression) }

// IsTransactional reports whether the batch belongs to a transaction.
func (a Attributes) IsTransactional() bool { return a&attrTransactional != 0 }

// IsControl reports whether the batch is a marker and not data.
func (a Attributes) IsControl() bool { return a&attrControl != 0 }

// HasDeleteHorizon reports whether the base timestamp is a delete horizon.
func (a Attributes) HasDeleteHorizon() bool { return a&attrDeleteHorizon != 0 }

// TimestampType says who set the records' timestamps.
func (a Attributes) TimestampType() TimestampType {
	if a&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// TimestampType says who set the timestamps of a batch.
type TimestampType int8

const (
	CreateTime    TimestampType = 0 // the producer, one per record
	LogAppendTime TimestampType = 1 // the broker, one for the whole batch
)

func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// What a batch can be refused for before its records are looked at. They are
// wrapped with the numbers; use errors.Is.
var (
	// ErrTruncated: the bytes end before the batch does.
	ErrTruncated = errors.New("truncated batch")
	// ErrMessageSet: magic 0 or 1, the formats before Kafka 0.11.
	ErrMessageSet = errors.New("message format 0 and 1 are not supported, only record batches of version 2")
	// ErrMagic: a format version that does not exist.
	ErrMagic = errors.New("unknown batch format version")
	// ErrCorrupt: the checksum does not match, or the length cannot be.
	ErrCorrupt = errors.New("corrupt batch")
	// ErrCounts: record count and last offset delta that no batch can have.
	ErrCounts = errors.New("impossible record counts")
	// ErrCodec: the attributes name a codec that does not exist.
	ErrCodec = errors.New("unknown compression codec")
)

// Header is the fixed part of a batch, decoded. It is a copy and aliases nothing.
type Header struct {
	BaseOffset      model.Offset
	Len             int // bytes of the whole batch, header included
	LeaderEpoch     model.LeaderEpoch
	CRC             uint32
	Attributes      Attributes
	LastOffsetDelta int32
	BaseTimestamp   model.Timestamp // or the delete horizon
	MaxTimestamp    model.Timestamp
	ProducerID      model.ProducerID
	ProducerEpoch   model.ProducerEpoch
	BaseSequence    model.Sequence
	Count           int32
}

// LastOffset is the offset of the last record, or of the last one there was
// before compaction removed it.
func (h *Header) LastOffset() model.Offset { return h.BaseOffset + model.Offset(h.LastOffsetDelta) }

// NextOffset is the offset behind the batch.
func (h *Header) NextOffset() model.Offset { return h.LastOffset() + 1 }

// ParseHeader decodes the first HeaderBytes bytes of a batch for scans of a
// segment. It checks lengths and magic, not the checksum and not that the rest
// of the batch is there: compare Len with what is left. Errors: ErrTruncated,
// ErrMessageSet, ErrMagic, ErrCorrupt, ErrCounts.
func ParseHeader(b []byte) (Header, error) {
	if len(b) <= posMagic {
		return Header{}, fmt.Errorf("%w: %d bytes, a header has %d", ErrTruncated, len(b), HeaderBytes)
	}
	// The magic byte stands at the same place in all three formats, and decides
	// what the other bytes mean, so it comes first.
	switch magic := int8(b[posMagic]); {
	case magic == 0, magic == 1:
		return Header{}, fmt.Errorf("%w: magic %d", ErrMessageSet, magic)
	case magic != Magic:
		return Header{}, fmt.Errorf("%w: magic %d", ErrMagic, magic)
	}
	if len(b) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: %d bytes, a header has %d", ErrTruncated, len(b), HeaderBytes)
	}
	h := View{b: b[:HeaderBytes:HeaderBytes]}.header()
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	switch {
	case length < HeaderBytes-prefixBytes:
		return Header{}, fmt.Errorf("%w: length %d is below the header's %d", ErrCorrupt, length, HeaderBytes-prefixBytes)
	case h.LastOffsetDelta < 0, h.Count < 0, int64(h.Count) > int64(h.LastOffsetDelta)+1:
		return Header{}, fmt.Errorf("%w: %d records, last offset delta %d", ErrCounts, h.Count, h.LastOffsetDelta)
	}
	h.Len = int(length) + prefixBytes
	return h, nil
}
