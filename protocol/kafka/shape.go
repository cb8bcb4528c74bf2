package kafka

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Apache Kafka 4.4 refuses requests beyond these limits before it allocates
// anything, and so do we. kmsg checks only that a claimed count fits the bytes
// that follow, which lets a frame of 100 MB of two-byte elements grow to
// gigabytes of structures.
const (
	MaxArray = 1_000_000 // elements of one array
	MaxTags  = 10_000    // fields of one tag section
)

// harmless is the largest body that cannot break a limit, since a tagged field
// takes at least two bytes and an array element at least one. Nearly every
// request is smaller and costs nothing to check.
const harmless = 2 * MaxTags

// checkShape walks a body without decoding it and refuses one that breaks a
// limit or ends too early.
func checkShape(key, version int16, body []byte) error {
	if len(body) <= harmless {
		return nil
	}
	fields, ok := shapeOf(key)
	if !ok {
		return fmt.Errorf("%w: body of %d bytes", ErrMalformed, len(body))
	}
	w := walker{rest: body, version: version, flexible: Flexible(key, version)}
	return w.structure(fields)
}

// kind is how a field is laid out.
type kind uint8

const (
	fixed     kind = iota // size bytes
	str                   // length int16 or compact, then bytes; a negative length is null
	blob                  // the same with an int32 length
	array                 // count int32 or compact, then elements; a negative count is null
	structure             // fields in order
	optional              // one byte, -1 for null, then a structure
	tagged                // the tag section of the structure it stands in, fields numbered by tag
)

// field is one field of a structure, present in versions first to last.
type field struct {
	first, last int16
	kind        kind
	size        int     // of fixed
	tag         uint32  // of a field inside a tagged section
	inner       []field // of array (one), structure, optional, tagged
}

// walker steps over encoded fields.
type walker struct {
	rest     []byte
	version  int16
	flexible bool
}

// structure steps over the fields and, in a flexible version, their tag section.
func (w *walker) structure(fields []field) error {
	var known []field
	for i := range fields {
		f := &fields[i]
		if f.kind == tagged {
			known = f.inner
			continue
		}
		if w.version < f.first || w.version > f.last {
			continue
		}
		if err := w.field(f); err != nil {
			return err
		}
	}
	if !w.flexible {
		return nil
	}
	return w.tags(known)
}

func (w *walker) field(f *field) error {
	switch f.kind {
	case fixed:
		return w.skip(f.size)
	case str:
		return w.lengthPrefixed(2)
	case blob:
		return w.lengthPrefixed(4)
	case array:
		return w.array(&f.inner[0])
	case structure:
		return w.structure(f.inner)
	default: // optional
		if len(w.rest) == 0 {
			return w.short(1)
		}
		present := w.rest[0] != 0xff
		w.rest = w.rest[1:]
		if !present {
			return nil
		}
		return w.structure(f.inner)
	}
}

func (w *walker) array(element *field) error {
	n, err := w.length(4)
	if err != nil || n <= 0 {
		return err
	}
	if n > MaxArray {
		return fmt.Errorf("%w: array of %d elements, at most %d", ErrMalformed, n, MaxArray)
	}
	if element.kind == fixed {
		return w.skip(n * element.size)
	}
	for range n {
		if err := w.field(element); err != nil {
			return err
		}
	}
	return nil
}

// tags steps over a tag section, into the fields it knows.
func (w *walker) tags(known []field) error {
	n, err := w.uvarint()
	if err != nil || n == 0 {
		return err
	}
	if n > MaxTags {
		return fmt.Errorf("%w: %d tagged fields, at most %d", ErrMalformed, n, MaxTags)
	}
	for range n {
		tag, err := w.uvarint()
		if err != nil {
			return err
		}
		size, err := w.uvarint()
		if err != nil {
			return err
		}
		if uint64(size) > uint64(len(w.rest)) {
			return w.short(int(size))
		}
		content := walker{rest: w.rest[:size], version: w.version, flexible: w.flexible}
		for i := range known {
			if known[i].tag == tag {
				if err := content.field(&known[i]); err != nil {
					return fmt.Errorf("tagged field %d: %w", tag, err)
				}
			}
		}
		w.rest = w.rest[size:]
	}
	return nil
}

// lengthPrefixed steps over a string or bytes.
func (w *walker) lengthPrefixed(width int) error {
	n, err := w.length(width)
	if err != nil || n <= 0 {
		return err
	}
	return w.skip(n)
}

// length reads a count: compact (plus one, 0 for null) in flexible versions,
// else an integer of width bytes.
func (w *walker) length(width int) (int, error) {
	if w.flexible {
		n, err := w.uvarint()
		return int(n) - 1, err
	}
	if len(w.rest) < width {
		return 0, w.short(width)
	}
	var n int
	if width == 2 {
		n = int(int16(binary.BigEndian.Uint16(w.rest)))
	} else {
		n = int(int32(binary.BigEndian.Uint32(w.rest)))
	}
	w.rest = w.rest[width:]
	return n, nil
}

func (w *walker) uvarint() (uint32, error) {
	n, size := binary.Uvarint(w.rest)
	if size <= 0 || n > 1<<32-1 {
		return 0, fmt.Errorf("%w: invalid varint", ErrMalformed)
	}
	w.rest = w.rest[size:]
	return uint32(n), nil
}

func (w *walker) skip(n int) error {
	if n > len(w.rest) {
		return w.short(n)
	}
	w.rest = w.rest[n:]
	return nil
}

func (w *walker) short(n int) error {
	return fmt.Errorf("%w: field of %d bytes in the last %d", ErrMalformed, n, len(w.rest))
}

// shapeOf returns the fields of an API's request, parsed from shapes at the
// first call for that key.
func shapeOf(key int16) ([]field, bool) {
	if parsed, ok := parsedShapes.Load(key); ok {
		return parsed.([]field), true
	}
	text, ok := shapes[key]
	if !ok {
		return nil, false
	}
	p := shapeParser{text: text}
	fields := p.list("")
	parsedShapes.Store(key, fields)
	return fields, true
}

// HasShape reports whether large requests of an API can be checked, which every
// API that is served must.
func HasShape(key int16) bool {
	_, ok := shapes[key]
	return ok
}

var parsedShapes sync.Map // API key → []field

// shapeParser reads the notation of shapes. The notation is ours and fixed at
// compile time, so a mistake in it is a bug and panics; a test parses all.
type shapeParser struct{ text string }

// list reads fields up to one of the closing characters.
func (p *shapeParser) list(closing string) []field {
	var fields []field
	for {
		p.text = strings.TrimLeft(p.text, " ")
		if p.text == "" || closing != "" && p.text[0] == closing[0] {
			p.text = strings.TrimPrefix(p.text, closing)
			return fields
		}
		fields = append(fields, p.field())
	}
}

func (p *shapeParser) field() field {
	f := field{last: never}
	switch i := strings.IndexAny(p.text, ":= ()[]{}?"); {
	case i > 0 && p.text[i] == ':':
		f.first, f.last = versionRange(p.text[:i])
		p.text = p.text[i+1:]
	case i > 0 && p.text[i] == '=':
		f.tag = uint32(number(p.text[:i]))
		p.text = p.text[i+1:]
	}
	c := p.text[0]
	p.text = p.text[1:]
	switch c {
	case '1', '2', '4', '8':
		f.kind, f.size = fixed, int(c-'0')
	case 'u':
		f.kind, f.size = fixed, 16
	case 's':
		f.kind = str
	case 'b':
		f.kind = blob
	case '[':
		f.kind, f.inner = array, p.list("]")
	case '(':
		f.kind, f.inner = structure, p.list(")")
	case '?':
		p.text = strings.TrimPrefix(p.text, "(")
		f.kind, f.inner = optional, p.list(")")
	case '{':
		f.kind, f.inner = tagged, p.list("}")
	default:
		panic(fmt.Sprintf("BUG: shape has %q before %q", c, p.text))
	}
	return f
}

// versionRange reads "3+", "3-7" or "3".
func versionRange(s string) (first, last int16) {
	if from, open := strings.CutSuffix(s, "+"); open {
		return number(from), never
	}
	from, to, ranged := strings.Cut(s, "-")
	if !ranged {
		to = from
	}
	return number(from), number(to)
}

func number(s string) int16 {
	n, err := strconv.ParseInt(s, 10, 16)
	if err != nil {
		panic(fmt.Sprintf("BUG: shape has number %q", s))
	}
	return int16(n)
}
