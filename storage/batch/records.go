package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/perigeemq/perigee/storage/model"
)

// MaxDecompressedBytes is the most a batch may hold after decompression when
// nobody says less: Kafka's default of max.decompressed.message.bytes.
const MaxDecompressedBytes = 2147483639

// ErrRecord: the bytes of the records do not follow the format, or do not end
// where they should. It is always wrapped with what and where.
var ErrRecord = errors.New("malformed records")

// Record is one record of a batch, as the log numbers and dates it.
type Record struct {
	Offset    model.Offset
	Timestamp model.Timestamp
	Key       []byte // nil when null; empty and not nil when empty
	Value     []byte // likewise; nil is a tombstone
	Headers   Headers
}

// RecordHeader is one key and value a producer attached to a record.
type RecordHeader struct {
	Key   string
	Value []byte // nil when null
}

// Headers are a record's headers in the wire's form, checked. The zero value is none.
type Headers struct {
	count int
	bytes []byte // behind the count
}

// Len is the number of headers.
func (h Headers) Len() int { return h.count }

// All walks the headers in order. Values alias like the record's own bytes.
func (h Headers) All() iter.Seq[RecordHeader] {
	return func(yield func(RecordHeader) bool) {
		c := cursor{b: h.bytes}
		for range h.count {
			key, value := c.bytes(), c.bytes()
			if c.err != nil || !yield(RecordHeader{Key: string(key), Value: value}) {
				return
			}
		}
	}
}

// Get returns the value of the last header of that key, as clients that look one
// up do.
func (h Headers) Get(key string) (value []byte, ok bool) {
	for header := range h.All() {
		if header.Key == key {
			value, ok = header.Value, true
		}
	}
	return value, ok
}

// Records walks the records of the batch in offset order. An error ends the walk
// and is the last thing yielded, with a zero Record: ErrRecord, ErrDecompress or
// ErrDecompressedTooLarge.
//
// Bytes of an uncompressed batch alias the batch. Those of a compressed one alias
// memory made for this walk, which nobody reuses; limitBytes bounds it (see
// MaxDecompressedBytes).
func (v View) Records(limitBytes int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		plain, err := v.plain(limitBytes)
		if err != nil {
			yield(Record{}, err)
			return
		}
		w := walk{c: cursor{b: plain}, base: v.BaseOffset(), baseTimestamp: v.BaseTimestamp(), lastDelta: v.LastOffsetDelta(), previous: -1}
		if v.TimestampType() == LogAppendTime {
			w.appended, w.appendTime = true, v.MaxTimestamp()
		}
		for i := range v.Count() {
			record, err := w.next()
			if err != nil {
				yield(Record{}, fmt.Errorf("record %d of %d: %w", i, v.Count(), err))
				return
			}
			if !yield(record, nil) {
				return
			}
		}
		if len(w.c.b) > 0 {
			yield(Record{}, fmt.Errorf("%w: %d bytes behind the last of %d records", ErrRecord, len(w.c.b), v.Count()))
		}
	}
}

// plain returns the records uncompressed.
func (v View) plain(limitBytes int64) ([]byte, error) {
	if v.Compression() == None {
		return v.payload(), nil
	}
	r, err := decompress(v.Compression(), v.payload(), limitBytes)
	if err != nil {
		return nil, err
	}
	defer r.release()
	return io.ReadAll(r)
}

// walk turns the bytes of records into Records.
type walk struct {
	c             cursor
	base          model.Offset
	baseTimestamp model.Timestamp
	lastDelta     int32
	previous      int64 // offset delta of the record before
	appended      bool  // timestamps are appendTime
	appendTime    model.Timestamp
}

func (w *walk) next() (Record, error) {
	c := w.c.sub()
	c.byte() // attributes, of which none is defined
	timestampDelta, offsetDelta := c.varint(), c.varint32()
	key, value := c.bytes(), c.bytes()
	headers := c.headers()
	switch {
	case w.c.err != nil:
		return Record{}, w.c.err
	case c.err != nil:
		return Record{}, c.err
	case len(c.b) > 0:
		return Record{}, fmt.Errorf("%w: %d bytes behind the headers", ErrRecord, len(c.b))
	case offsetDelta <= w.previous || offsetDelta > int64(w.lastDelta):
		return Record{}, fmt.Errorf("%w: offset delta %d after %d, last of the batch %d", ErrRecord, offsetDelta, w.previous, w.lastDelta)
	}
	w.previous = offsetDelta
	timestamp := w.baseTimestamp + model.Timestamp(timestampDelta)
	if w.appended {
		timestamp = w.appendTime
	}
	return Record{
		Offset:    w.base + model.Offset(offsetDelta),
		Timestamp: timestamp,
		Key:       key,
		Value:     value,
		Headers:   headers,
	}, nil
}

// cursor reads the wire's primitives from a slice. The first error sticks, and
// everything read after it is zero.
type cursor struct {
	b   []byte
	err error
}

var (
	errVarint  = fmt.Errorf("%w: varint cut short or too long", ErrRecord)
	errLength  = fmt.Errorf("%w: length beyond what is there", ErrRecord)
	errHeaders = fmt.Errorf("%w: header count beyond what is there", ErrRecord)
	errNullKey = fmt.Errorf("%w: header without a key", ErrRecord)
)

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

func (c *cursor) byte() byte {
	if len(c.b) == 0 {
		c.fail(errLength)
		return 0
	}
	b := c.b[0]
	c.b = c.b[1:]
	return b
}

func (c *cursor) varint32() int64 { return c.number(varint32Bytes) }
func (c *cursor) varint() int64   { return c.number(binary.MaxVarintLen64) }

// number reads a zigzag varint of at most bytesMax bytes.
func (c *cursor) number(bytesMax int) int64 {
	n, size := binary.Varint(c.b)
	if size <= 0 || !fits(n, size, bytesMax) {
		c.fail(errVarint)
		return 0
	}
	c.b = c.b[size:]
	return n
}

// varint32Bytes is the longest form of the numbers Kafka reads as 32 bits: all but
// the timestamp delta. A longer one would be refused by its consumers.
const varint32Bytes = binary.MaxVarintLen32

func fits(n int64, size, bytesMax int) bool {
	return size <= bytesMax && (bytesMax > varint32Bytes || n == int64(int32(n)))
}

// take returns the next n bytes without copying.
func (c *cursor) take(n int64) []byte {
	if n < 0 || n > int64(len(c.b)) {
		c.fail(errLength)
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

// bytes reads a nullable byte string: nil when null, never nil otherwise.
func (c *cursor) bytes() []byte {
	n := c.varint32()
	if n == -1 || c.err != nil {
		return nil
	}
	return c.take(n)
}

// sub reads a length and returns a cursor over that many bytes.
func (c *cursor) sub() cursor {
	return cursor{b: c.take(c.varint32()), err: c.err}
}

// headers checks the headers and remembers where they stand.
func (c *cursor) headers() Headers {
	n := c.varint32()
	// The shortest header is an empty key and a null value, one byte each.
	if n < 0 || n > int64(len(c.b))/2 {
		c.fail(errHeaders)
		return Headers{}
	}
	whole := c.b
	for range n {
		if c.bytes() == nil {
			c.fail(errNullKey)
		}
		c.bytes()
		if c.err != nil {
			return Headers{}
		}
	}
	return Headers{count: int(n), bytes: whole[:len(whole)-len(c.b)]}
}
