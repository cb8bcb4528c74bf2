package moonmq

import (
	"encoding/binary"
	"fmt"
)

// Frame sizes, in bytes.
const (
	LengthSize          = 4        // the prefix
	HeaderSize          = 1 + 16   // op and correlation id: the least a length may say
	DefaultMaxFrame     = 1 << 20  // what a server accepts
	MaxReplyFrame       = 16 << 20 // what the Lua client accepts
	MaxReplyPayload     = MaxReplyFrame - HeaderSize
	correlationIDOffset = LengthSize + 1
)

// CorrelationID ties a reply to its request. The zero id marks pushed records
// and every error that ends the connection.
type CorrelationID [16]byte

// Message is one request or reply.
type Message interface {
	Op() Op
	appendPayload(b []byte) []byte
}

// Frame is a received frame after its length prefix.
type Frame struct {
	Op      Op
	ID      CorrelationID
	Payload []byte // aliases the body it was parsed from
}

// FrameSizeError refuses a length prefix above the limit, before any byte of
// the body is read.
type FrameSizeError struct {
	Length uint32
	Max    uint32
}

func (e *FrameSizeError) Error() string {
	return fmt.Sprintf("frame %d exceeds max %d", e.Length, e.Max)
}

// ErrShortFrame refuses a length of 0 to 16.
var ErrShortFrame error = &DecodeError{"frame shorter than header"}

// CheckLength judges a length prefix. maxLength counts what the prefix counts.
func CheckLength(length, maxLength uint32) error {
	if length > maxLength {
		return &FrameSizeError{Length: length, Max: maxLength}
	}
	if length < HeaderSize {
		return ErrShortFrame
	}
	return nil
}

// ParseFrame splits a body, the bytes after the length prefix.
func ParseFrame(body []byte) (Frame, error) {
	if len(body) < HeaderSize {
		return Frame{}, ErrShortFrame
	}
	f := Frame{Op: Op(body[0]), Payload: body[HeaderSize:]}
	copy(f.ID[:], body[1:HeaderSize])
	return f, nil
}

// Append adds a whole frame, length prefix included.
func Append(b []byte, id CorrelationID, m Message) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(m.Op()))
	b = append(b, id[:]...)
	b = m.appendPayload(b)
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-LengthSize))
	return b
}
