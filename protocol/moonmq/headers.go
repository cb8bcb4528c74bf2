package moonmq

// Header is one record header.
type Header struct {
	Name  string // ≤ MaxHeaderName
	Value []byte // ≤ MaxString
}

// Headers is the block of record headers, a Perigee extension:
//
//	u16 count | ( str<=256 name | str value )*count
//
// On a request it follows the last field the original protocol knows, where a
// broker without headers ignores it. On a record it stands only in replies to
// a client that asked for it, because an older decoder would take it for the
// next record of a batch.
type Headers []Header

// decodeTrailingHeaders reads the block at the end of a request. Bytes that are
// not such a block, to the last one, are some other client's future field and
// are ignored like every unknown trailer.
func decodeTrailingHeaders(r *reader) Headers {
	if r.err != nil || len(r.b) < 2 {
		return nil
	}
	attempt := reader{b: r.b}
	headers := decodeHeaders(&attempt)
	if attempt.err != nil || len(attempt.b) > 0 || len(headers) == 0 {
		return nil
	}
	r.b = nil
	return headers
}

func decodeHeaders(r *reader) Headers {
	if !r.need(2, "headers") {
		return nil
	}
	n := int(r.u16())
	headers := make(Headers, 0, r.room(n, 8))
	for range n {
		if r.err != nil {
			return nil
		}
		headers = append(headers, Header{Name: r.str(MaxHeaderName), Value: r.bytes(MaxString)})
	}
	return headers
}

func (h Headers) appendTo(b []byte) []byte {
	b = appendU16(b, uint16(len(h)))
	for _, x := range h {
		b = appendStr(appendStr(b, x.Name), x.Value)
	}
	return b
}

func (h Headers) appendTrailing(b []byte) []byte {
	if len(h) == 0 {
		return b
	}
	return h.appendTo(b)
}
