package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error about bytes that do not follow the
// protocol. The connection they came on cannot be trusted to be in step and is
// closed.
var ErrMalformed = errors.New("malformed request")

// Header is a request's header.
type Header struct {
	Key         int16
	Version     int16
	Correlation int32
	ClientID    string // "" when null or absent
}

// ParseHeader reads the header at the start of a frame's body and returns what
// follows it. An API or version nobody defined is read as header v1, so that
// the caller can name what it refuses.
func ParseHeader(frame []byte) (h Header, rest []byte, err error) {
	if len(frame) < 8 {
		return h, nil, fmt.Errorf("%w: header of %d bytes", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.Correlation = int32(binary.BigEndian.Uint32(frame[4:]))
	rest = frame[8:]

	h.ClientID, rest, err = cutString(rest)
	if err != nil {
		return h, nil, fmt.Errorf("read client id: %w", err)
	}
	if requestHeaderVersion(h.Key, h.Version) < 2 {
		return h, rest, nil
	}
	w := walker{rest: rest, flexible: true}
	if err := w.tags(nil); err != nil {
		return h, nil, fmt.Errorf("read header tags: %w", err)
	}
	return h, w.rest, nil
}

// cutString reads a nullable string with an int16 length.
func cutString(b []byte) (string, []byte, error) {
	if len(b) < 2 {
		return "", nil, fmt.Errorf("%w: string without length", ErrMalformed)
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	switch {
	case n < 0:
		return "", b, nil
	case n > len(b):
		return "", nil, fmt.Errorf("%w: string of %d bytes in %d", ErrMalformed, n, len(b))
	}
	return string(b[:n]), b[n:], nil
}
