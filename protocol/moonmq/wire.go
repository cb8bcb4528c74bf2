package moonmq

import (
	"encoding/binary"
	"fmt"
)

// Limits on what a peer may send, in bytes unless they count things. A server
// applies them to requests; where the Lua client has the same limit on replies
// the decoders of replies share it.
const (
	MaxTopicName     = 249
	MaxName          = 256 // group id, member id, user name, producer name
	MaxClientName    = 128
	MaxClientVersion = 64
	MaxPassword      = 1024
	MaxMechanism     = 64
	MaxSASLMessage   = 4096
	MaxNackReason    = 1024
	MaxString        = 65536 // keys, values and everything without a limit of its own
	MaxConfigKey     = 64
	MaxConfigValue   = 256

	MaxConfigEntries   = 64
	MaxJoinTopics      = 256
	MaxBatchRecords    = 10000
	MaxIdempotentBatch = 1024
	MaxTxnOffsets      = 1024
	MaxPartitions      = 1024
	MaxListedGroups    = 4096
	MaxListedMembers   = 256
	MaxListedOffsets   = 1024
	MaxHeaderName      = 256
	MaxListedTopics    = 1024
)

// DecodeError is a payload that does not decode. Its text goes to the peer.
type DecodeError struct{ Text string }

func (e *DecodeError) Error() string { return e.Text }

// reader walks a payload. The first error sticks: later reads return zero
// values, so that a decoder is a plain list of fields with one check at the end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) failf(format string, args ...any) {
	if r.err == nil {
		r.err = &DecodeError{fmt.Sprintf(format, args...)}
		r.b = nil
	}
}

// need checks that the fixed part called what is n bytes long at least.
func (r *reader) need(n int, what string) bool {
	if r.err == nil && len(r.b) < n {
		r.failf("short %s", what)
	}
	return r.err == nil
}

func (r *reader) take(n int) []byte {
	if r.err != nil || len(r.b) < n {
		r.failf("truncated string body")
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

// The fixed-size readers are called after need.

func (r *reader) u8() uint8 {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if p := r.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if p := r.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if p := r.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// bytes reads a str of at most limit bytes; the result aliases the payload.
func (r *reader) bytes(limit int) []byte {
	if r.err == nil && len(r.b) < 4 {
		r.failf("truncated string length")
	}
	n := r.u32()
	if r.err != nil {
		return nil
	}
	if n > uint32(limit) {
		r.failf("string field too long (%d > %d)", n, limit)
		return nil
	}
	if n == 0 {
		return []byte{}
	}
	return r.take(int(n))
}

func (r *reader) str(limit int) string { return string(r.bytes(limit)) }

// count reads how many things follow, called what in errors, and refuses more
// than limit, named plural. The things themselves may be missing: room says for
// how many of them there can be bytes.
func (r *reader) count(what, plural string, limit int) int {
	if !r.need(4, what) {
		return 0
	}
	n := r.u32()
	if n > uint32(limit) {
		r.failf("too many %s (%d > %d)", plural, n, limit)
		return 0
	}
	return int(n)
}

// room bounds an allocation for n things by the bytes that are left, each thing
// taking at least size of them.
func (r *reader) room(n, size int) int { return min(n, len(r.b)/size) }

func appendStr[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func appendU16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
func appendU32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
func appendU64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }
