package batch

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// scanner is the checker of records: it walks them, steps over keys and values,
// and never needs more memory than its window, however large one record is. Over
// uncompressed records the window is the batch itself.
//
// It knows the same format as walk in records.go, which hands records out and
// needs each whole; a fuzz test holds the two together.
type scanner struct {
	window   []byte       // read and not yet consumed
	consumed int64        // bytes before window
	plain    *plainReader // nil: window is all there is
	memory   *[]byte      // what window is cut from, when plain is not nil
	ended    bool         // plain has no more
	err      error        // the first; everything after it reads as zero
}

// scanWindowBytes is enough for most records to be whole in the window.
const scanWindowBytes = 32 << 10

var windows = sync.Pool{New: func() any { b := make([]byte, scanWindowBytes); return &b }}

func newScanner(v View, limitBytes int64) (scanner, error) {
	if v.Compression() == None {
		return scanner{window: v.payload()}, nil
	}
	plain, err := decompress(v.Compression(), v.payload(), limitBytes)
	if err != nil {
		return scanner{}, err
	}
	return scanner{plain: plain, memory: windows.Get().(*[]byte)}, nil
}

func (s *scanner) release() {
	if s.plain != nil {
		s.plain.release()
		windows.Put(s.memory)
	}
}

type scanned struct {
	timestampDelta, offsetDelta int64
	keyed                       bool
}

// record steps over the next record. Its errors are in s.err.
func (s *scanner) record() scanned {
	if r, n := quick(s.window); n > 0 {
		s.consume(n)
		return r
	}
	length := s.varint32()
	end := s.consumed + length
	s.skip(1) // attributes, of which none is defined
	r := scanned{timestampDelta: s.varint(), offsetDelta: s.varint32()}
	r.keyed = s.nullable()
	s.nullable()
	headers := s.varint32()
	if headers < 0 {
		s.fail(errHeaders)
	}
	for i := int64(0); i < headers && s.err == nil; i++ {
		if !s.nullable() {
			s.fail(errNullKey)
		}
		s.nullable()
	}
	if s.consumed != end {
		s.fail(fmt.Errorf("%w: length %d differs from its fields", ErrRecord, length))
	}
	return r
}

// quick reads a record that stands in the window whole, without headers and with
// numbers of one or two bytes, which most have: it takes a quarter of the time,
// because nothing is remembered between its fields. n is its size, 0 for any other
// record, good or bad.
func quick(w []byte) (r scanned, n int) {
	length, i := short(w, 0)
	if length <= 0 || length > int64(len(w)-i) {
		return r, 0
	}
	n = i + int(length)
	w = w[:n]
	i++ // attributes
	if r.timestampDelta, i = short(w, i); i == 0 {
		return r, 0
	}
	if r.offsetDelta, i = short(w, i); i == 0 {
		return r, 0
	}
	key, i := short(w, i)
	if i == 0 || key < -1 {
		return r, 0
	}
	if r.keyed = key >= 0; r.keyed {
		i += int(key)
	}
	value, i := short(w, i)
	if i == 0 || value < -1 {
		return r, 0
	}
	i += int(max(0, value))
	if i != n-1 || w[i] != 0 {
		return r, 0 // headers, or lengths that do not add up
	}
	return r, n
}

// short reads a varint of one or two bytes at a position and returns the position
// behind it, or 0.
func short(b []byte, at int) (v int64, next int) {
	if at+1 >= len(b) {
		return 0, 0
	}
	u := uint32(b[at])
	next = at + 1
	if u >= 0x80 {
		if b[next] >= 0x80 {
			return 0, 0
		}
		u = u&0x7f | uint32(b[next])<<7
		next++
	}
	return int64(int32(u>>1) ^ -int32(u&1)), next
}

// end checks that nothing is left.
func (s *scanner) end() error {
	if len(s.window) == 0 {
		s.fill()
	}
	if s.err == nil && len(s.window) > 0 {
		s.fail(fmt.Errorf("%w: bytes behind the last", ErrRecord))
	}
	return s.err
}

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.window, s.ended = nil, true
}

// nullable steps over a byte string and says whether it was there.
func (s *scanner) nullable() bool {
	n := s.varint32()
	if n == -1 {
		return false
	}
	s.skip(n)
	return true
}

func (s *scanner) skip(n int64) {
	if n < 0 {
		s.fail(errLength)
		return
	}
	for n > int64(len(s.window)) {
		n -= int64(len(s.window))
		s.consume(len(s.window))
		if !s.fill() {
			s.fail(errLength)
			return
		}
	}
	s.consume(int(n))
}

func (s *scanner) varint32() int64 { return s.number(varint32Bytes) }
func (s *scanner) varint() int64   { return s.number(binary.MaxVarintLen64) }

func (s *scanner) number(bytesMax int) int64 {
	for {
		n, size := binary.Varint(s.window)
		if size > 0 && fits(n, size, bytesMax) {
			s.consume(size)
			return n
		}
		if size != 0 || !s.fill() {
			s.fail(errVarint)
			return 0
		}
	}
}

func (s *scanner) consume(n int) {
	s.window = s.window[n:]
	s.consumed += int64(n)
}

// fill reads more behind the window, which holds less than a varint by then, and
// reports whether there was more.
func (s *scanner) fill() bool {
	if s.plain == nil || s.ended {
		return false
	}
	held := copy(*s.memory, s.window)
	n, err := io.ReadAtLeast(s.plain, (*s.memory)[held:], 1)
	if err != nil {
		s.ended = true
		if err != io.EOF {
			s.fail(err)
		}
		return false
	}
	s.window = (*s.memory)[:held+n]
	return true
}
