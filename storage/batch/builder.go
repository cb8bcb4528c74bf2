package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/perigeemq/perigee/storage/model"
)

// ErrEmpty: a batch without records was asked for.
var ErrEmpty = errors.New("no records")

// Producer is what an idempotent or transactional batch says about its sender.
type Producer struct {
	model.ProducerIdentity
	BaseSequence model.Sequence // of the first record
}

// BuilderOptions says what the batch is like around its records. The zero value
// is a plain uncompressed batch at offset 0 of no producer.
type BuilderOptions struct {
	BaseOffset    model.Offset
	LeaderEpoch   model.LeaderEpoch
	Codec         Codec
	Producer      *Producer // nil: no idempotence
	Transactional bool
}

// Builder makes a batch from records: for coordinators, MoonMQ's producers,
// dead letters and tests. It may be used again after Reset. Not for two
// goroutines at once.
type Builder struct {
	options BuilderOptions
	body    []byte // encoded records
	count   int32
	base    model.Timestamp // of the first record
	max     model.Timestamp
}

// NewBuilder returns an empty builder.
func NewBuilder(o BuilderOptions) *Builder {
	b := new(Builder)
	b.Reset(o)
	return b
}

// Reset starts another batch, keeping the memory.
func (b *Builder) Reset(o BuilderOptions) {
	*b = Builder{options: o, body: b.body[:0], base: model.NoTimestamp, max: model.NoTimestamp}
}

// NewRecord is a record that has no offset yet.
type NewRecord struct {
	Timestamp model.Timestamp
	Key       []byte // nil is null
	Value     []byte // nil is null, a tombstone
	Headers   []RecordHeader
}

// Add appends a record at the next offset. It copies everything.
func (b *Builder) Add(r NewRecord) {
	b.AddEncoded(r.Timestamp, r.Key, r.Value, EncodeHeaders(r.Headers))
}

// AddEncoded is Add for a record whose headers come from another batch.
func (b *Builder) AddEncoded(timestamp model.Timestamp, key, value []byte, headers Headers) {
	if b.count == 0 {
		b.base, b.max = timestamp, timestamp
	}
	b.max = max(b.max, timestamp)
	b.body = appendRecord(b.body, int64(timestamp-b.base), b.count, key, value, headers)
	b.count++
}

// Count is the number of records added.
func (b *Builder) Count() int { return int(b.count) }

// Len is the size in bytes the batch would have uncompressed.
func (b *Builder) Len() int { return HeaderBytes + len(b.body) }

// Build returns the batch, in memory of its own. Errors: ErrEmpty, or ErrTooLarge
// when it passes what the length field can say.
func (b *Builder) Build() (View, error) {
	if b.count == 0 {
		return View{}, ErrEmpty
	}
	h := Header{
		BaseOffset:      b.options.BaseOffset,
		LeaderEpoch:     b.options.LeaderEpoch,
		LastOffsetDelta: b.count - 1,
		BaseTimestamp:   b.base,
		MaxTimestamp:    b.max,
		ProducerID:      model.NoProducerID,
		ProducerEpoch:   model.NoProducerEpoch,
		BaseSequence:    model.NoSequence,
		Count:           b.count,
	}
	if p := b.options.Producer; p != nil {
		h.ProducerID, h.ProducerEpoch, h.BaseSequence = p.ID, p.Epoch, p.BaseSequence
	}
	if b.options.Transactional {
		h.Attributes |= attrTransactional
	}
	if b.options.Codec.Compression == None && len(b.body) <= math.MaxInt32-HeaderBytes {
		out := appendHeader(make([]byte, 0, HeaderBytes+len(b.body)), &h)
		return finish(append(out, b.body...)), nil
	}
	return assemble(h, b.options.Codec, math.MaxInt32, func(w io.Writer) error {
		_, err := w.Write(b.body)
		return err
	})
}

// assemble writes a batch: header, records through the codec, length and checksum. h's Len, CRC and codec bits are set here. limitBytes
// bounds the whole batch while it is written; passing it is ErrTooLarge.
func assemble(h Header, c Codec, limitBytes int, fill func(io.Writer) error) (View, error) {
	h.Attributes = h.Attributes&^attrCompression | Attributes(c.Compression)
	out := &boundedBuffer{b: appendHeader(make([]byte, 0, 512), &h), limit: limitBytes}
	if err := c.writeTo(out, fill); err != nil {
		return View{}, err
	}
	return finish(out.b), nil
}

// finish fills in the length and the checksum of a header with its records.
func finish(b []byte) View {
	v := View{b: b}
	binary.BigEndian.PutUint32(v.b[posLength:], uint32(len(v.b)-prefixBytes))
	v.seal()
	return v
}

// boundedBuffer collects a batch and refuses to grow beyond its limit.
type boundedBuffer struct {
	b     []byte
	limit int
}

func (w *boundedBuffer) Write(p []byte) (int, error) {
	if len(p) > w.limit-len(w.b) {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, w.limit)
	}
	w.b = append(w.b, p...)
	return len(p), nil
}

// appendHeader writes the fixed fields; length and checksum are filled in later.
func appendHeader(b []byte, h *Header) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(b, uint64(h.BaseOffset))
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, uint32(h.LeaderEpoch))
	b = append(b, Magic)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint16(b, uint16(h.Attributes))
	b = be.AppendUint32(b, uint32(h.LastOffsetDelta))
	b = be.AppendUint64(b, uint64(h.BaseTimestamp))
	b = be.AppendUint64(b, uint64(h.MaxTimestamp))
	b = be.AppendUint64(b, uint64(h.ProducerID))
	b = be.AppendUint16(b, uint16(h.ProducerEpoch))
	b = be.AppendUint32(b, uint32(h.BaseSequence))
	return be.AppendUint32(b, uint32(h.Count))
}

// appendRecord writes one record as drawn in doc.go.
func appendRecord(b []byte, timestampDelta int64, offsetDelta int32, key, value []byte, headers Headers) []byte {
	n := 1 + varintBytes(timestampDelta) + varintBytes(int64(offsetDelta)) +
		nullableBytes(key) + nullableBytes(value) + varintBytes(int64(headers.count)) + len(headers.bytes)
	b = slices.Grow(b, varintBytes(int64(n))+n)
	b = binary.AppendVarint(b, int64(n))
	b = append(b, 0)
	b = binary.AppendVarint(b, timestampDelta)
	b = binary.AppendVarint(b, int64(offsetDelta))
	b = appendNullable(b, key)
	b = appendNullable(b, value)
	b = binary.AppendVarint(b, int64(headers.count))
	return append(b, headers.bytes...)
}

// EncodeHeaders brings headers into the wire's form.
func EncodeHeaders(headers []RecordHeader) Headers {
	h := Headers{count: len(headers)}
	for _, header := range headers {
		h.bytes = binary.AppendVarint(h.bytes, int64(len(header.Key)))
		h.bytes = append(h.bytes, header.Key...)
		h.bytes = appendNullable(h.bytes, header.Value)
	}
	return h
}

func appendNullable(b, s []byte) []byte {
	if s == nil {
		return binary.AppendVarint(b, -1)
	}
	b = binary.AppendVarint(b, int64(len(s)))
	return append(b, s...)
}

func nullableBytes(s []byte) int {
	if s == nil {
		return 1
	}
	return varintBytes(int64(len(s))) + len(s)
}

func varintBytes(n int64) int {
	size := 1
	for z := uint64(n<<1) ^ uint64(n>>63); z >= 0x80; z >>= 7 {
		size++
	}
	return size
}
