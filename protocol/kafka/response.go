package kafka

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AppendResponse appends a whole response frame: length, header, body. The
// response's version must be set.
func AppendResponse(dst []byte, correlation int32, resp kmsg.Response) []byte {
	start := len(dst)
	dst = appendResponseHeader(dst, correlation, responseHeaderVersion(resp.Key(), resp.GetVersion()))
	dst = resp.AppendTo(dst)
	setLength(dst, start, len(dst)-start-4)
	return dst
}

// appendResponseHeader appends an empty length and the header.
func appendResponseHeader(dst []byte, correlation int32, version int16) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if version >= 1 {
		dst = append(dst, 0) // no tagged fields
	}
	return dst
}

// setLength fills in the length of the frame that starts at start.
func setLength(dst []byte, start, n int) {
	binary.BigEndian.PutUint32(dst[start:], uint32(n))
}
