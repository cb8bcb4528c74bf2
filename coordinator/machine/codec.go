package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Writer builds a key or value in Kafka's message encoding: big-endian numbers,
// lengths as int16 or int32, and in flexible versions lengths plus one as
// unsigned varints. The zero Writer is empty and ready.
//
//	key    ┌ i16 version ┬ fields … ┐
//	value  ┌ i16 version ┬ fields … ┬ tagged fields (flexible versions) ┐
type Writer struct{ b []byte }

// NewWriter returns an empty Writer with room for so many bytes, for the codecs that
// are called for every transaction.
func NewWriter(room int) Writer { return Writer{b: make([]byte, 0, room)} }

// Bytes returns what was written; it aliases the writer's memory.
func (w *Writer) Bytes() []byte { return w.b }

func (w *Writer) Int8(v int8)      { w.b = append(w.b, byte(v)) }
func (w *Writer) Int16(v int16)    { w.b = binary.BigEndian.AppendUint16(w.b, uint16(v)) }
func (w *Writer) Int32(v int32)    { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }
func (w *Writer) Int64(v int64)    { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }
func (w *Writer) Uvarint(v uint32) { w.b = binary.AppendUvarint(w.b, uint64(v)) }
func (w *Writer) Raw(b []byte)     { w.b = append(w.b, b...) }
func (w *Writer) Bool(v bool) {
	if v {
		w.Int8(1)
	} else {
		w.Int8(0)
	}
}

// NoTags ends a flexible structure that has no tagged field.
func (w *Writer) NoTags() { w.Uvarint(0) }

// String writes an int16 length and the bytes; callers keep s within 32,767.
func (w *Writer) String(s string) {
	w.Int16(int16(len(s)))
	w.b = append(w.b, s...)
}

// NullableString writes length -1 for nil.
func (w *Writer) NullableString(s *string) {
	if s == nil {
		w.Int16(-1)
		return
	}
	w.String(*s)
}

// Blob writes an int32 length and the bytes; nil is written as empty.
func (w *Writer) Blob(b []byte) {
	w.Int32(int32(len(b)))
	w.b = append(w.b, b...)
}

// CompactString is String of flexible versions.
func (w *Writer) CompactString(s string) {
	w.Uvarint(uint32(len(s)) + 1)
	w.b = append(w.b, s...)
}

// CompactNullableString writes length 0 for nil.
func (w *Writer) CompactNullableString(s *string) {
	if s == nil {
		w.Uvarint(0)
		return
	}
	w.CompactString(*s)
}

// CompactBlob is Blob of flexible versions.
func (w *Writer) CompactBlob(b []byte) {
	w.Uvarint(uint32(len(b)) + 1)
	w.b = append(w.b, b...)
}

// ErrMalformed marks a key or value that cannot be read.
var ErrMalformed = errors.New("malformed fact")

// Reader takes apart what a Writer built. It never panics and never allocates
// more than its input holds: after the first short or impossible field every
// method returns zero and Err says what was wrong.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads b; strings and blobs are copied out of it.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err returns the first problem.
func (r *Reader) Err() error { return r.err }

// Len is the number of bytes left.
func (r *Reader) Len() int { return len(r.b) }

// Fail records a problem of the caller's, such as an unknown enum.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	r.b = nil
}

// take returns the next n bytes, or nil after a failure.
func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.Fail("%d bytes wanted, %d left", n, len(r.b))
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *Reader) Int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *Reader) Bool() bool { return r.Int8() != 0 }

func (r *Reader) Int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *Reader) Int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *Reader) Int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Raw fills dst, a field of fixed size such as a topic id.
func (r *Reader) Raw(dst []byte) { copy(dst, r.take(len(dst))) }

func (r *Reader) Uvarint() uint32 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > math.MaxUint32 {
		r.Fail("bad varint")
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

func (r *Reader) String() string {
	if s := r.NullableString(); s != nil {
		return *s
	}
	return ""
}

func (r *Reader) NullableString() *string {
	n := int(r.Int16())
	if n == -1 || r.err != nil {
		return nil
	}
	return r.text(n)
}

func (r *Reader) Blob() []byte {
	n := int(r.Int32())
	if n == -1 || r.err != nil {
		return nil
	}
	return append([]byte(nil), r.take(n)...)
}

func (r *Reader) CompactString() string {
	if s := r.CompactNullableString(); s != nil {
		return *s
	}
	return ""
}

func (r *Reader) CompactNullableString() *string {
	n := int64(r.Uvarint()) - 1
	if n == -1 || r.err != nil {
		return nil
	}
	return r.text(int(n))
}

func (r *Reader) CompactBlob() []byte {
	n := int64(r.Uvarint()) - 1
	if n == -1 || r.err != nil {
		return nil
	}
	return append([]byte(nil), r.take(int(n))...)
}

func (r *Reader) text(n int) *string {
	b := r.take(n)
	if r.err != nil {
		return nil
	}
	s := string(b)
	return &s
}

// Count reads an int32 array length whose elements take at least elementBytes
// each (1 or more), refusing one that cannot fit. A null array counts zero.
func (r *Reader) Count(elementBytes int) int { return r.fits(int64(r.Int32()), elementBytes) }

// CompactCount is Count of flexible versions.
func (r *Reader) CompactCount(elementBytes int) int {
	return r.fits(int64(r.Uvarint())-1, elementBytes)
}

func (r *Reader) fits(n int64, elementBytes int) int {
	if n == -1 || r.err != nil {
		return 0
	}
	if n < 0 || n > int64(len(r.b)/elementBytes) {
		r.Fail("array of %d elements in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

// SkipTags reads over tagged fields a newer writer may have added.
func (r *Reader) SkipTags() {
	for n := r.Uvarint(); n > 0 && r.err == nil; n-- {
		r.Uvarint()
		r.take(int(r.Uvarint()))
	}
}
