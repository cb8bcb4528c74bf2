package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordBytesMax bounds one record read from stdin; brokers take far less.
const recordBytesMax = 256 << 20

// recordReader turns stdin into records; io.EOF ends them.
type recordReader func() (*kgo.Record, error)

const produceVerbs = "kvshtpTd"

// newRecordReader reads lines (text), JSON objects (json), or what a format says.
func newRecordReader(in io.Reader, format, keySeparator string) (recordReader, error) {
	source := &source{bufio.NewReaderSize(in, 64<<10)}
	switch {
	case format == "json":
		return source.json, nil
	case format == "text" && keySeparator == "":
		format = `%v\n`
	case format == "text":
		return source.keyed([]byte(keySeparator)), nil
	case !strings.Contains(format, "%"):
		return nil, usagef("--format %s: want text, json or a format with %%v", format)
	}
	pieces, err := parseFormat(format, produceVerbs)
	if err != nil {
		return nil, usagef("--format: %w", err)
	}
	if !slices.ContainsFunc(pieces, func(p piece) bool { return p.verb != 0 }) {
		return nil, usagef("--format %s: it has no token", format)
	}
	if pieces[len(pieces)-1].verb != 0 {
		pieces = append(pieces, piece{literal: "\n"})
	}
	if slices.ContainsFunc(pieces, func(p piece) bool { return p.inner != nil || p.rpk != nil }) {
		return nil, usagef("--format %s: reading knows no braces but {hex}, {base64} and a layout of %%d", format)
	}
	for i, p := range pieces[1:] {
		if p.verb != 0 && pieces[i].verb != 0 {
			return nil, usagef("--format: nothing between %%%c and %%%c says where the first ends", pieces[i].verb, p.verb)
		}
	}
	return source.formatted(pieces), nil
}

type source struct{ *bufio.Reader }

// until reads up to delimiter, which is consumed and not returned. At the end of the
// input what is left counts; io.EOF with nothing.
func (s *source) until(delimiter string) ([]byte, error) {
	var b []byte
	last := delimiter[len(delimiter)-1]
	for {
		chunk, err := s.ReadSlice(last)
		if len(b)+len(chunk) > recordBytesMax {
			return nil, fmt.Errorf("a record is longer than %d bytes", recordBytesMax)
		}
		b = append(b, chunk...)
		switch {
		case bytes.HasSuffix(b, []byte(delimiter)):
			return b[:len(b)-len(delimiter)], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(b) > 0:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// keyed reads lines of key, separator, value; a line without the separator has no key.
func (s *source) keyed(separator []byte) recordReader {
	return func() (*kgo.Record, error) {
		line, err := s.until("\n")
		if err != nil {
			return nil, err
		}
		key, value, found := bytes.Cut(line, separator)
		if !found {
			return &kgo.Record{Value: notNil(line)}, nil
		}
		return &kgo.Record{Key: notNil(key), Value: notNil(value)}, nil
	}
}

// notNil makes what is empty differ from what is null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// formatted reads records in the format: every token ends where the literal
// behind it begins.
func (s *source) formatted(pieces []piece) recordReader {
	return func() (*kgo.Record, error) {
		r := new(kgo.Record)
		for i := 0; i < len(pieces); i++ {
			p := pieces[i]
			if p.verb == 0 {
				if err := s.expect(p.literal, i == 0); err != nil {
					return nil, err
				}
				continue
			}
			i++ // the literal behind it, which until consumes
			field, err := s.until(pieces[i].literal)
			if errors.Is(err, io.EOF) && i > 1 {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return nil, err
			}
			if err := p.assign(r, field); err != nil {
				return nil, err
			}
		}
		return r, nil
	}
}

func (s *source) expect(literal string, first bool) error {
	got := make([]byte, len(literal))
	n, err := io.ReadFull(s, got)
	switch {
	case errors.Is(err, io.EOF) && first && n == 0:
		return io.EOF
	case err != nil:
		return io.ErrUnexpectedEOF
	case string(got) != literal:
		return fmt.Errorf("input has %q where the format has %q", got, literal)
	}
	return nil
}

// assign sets the part of the record the token names.
func (p *piece) assign(r *kgo.Record, field []byte) error {
	switch p.verb {
	case 'k':
		return p.decode(&r.Key, field)
	case 'v', 's':
		return p.decode(&r.Value, field)
	case 't':
		r.Topic = string(field)
	case 'p':
		n, err := strconv.ParseInt(string(field), 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a partition", field)
		}
		r.Partition = int32(n)
	case 'T':
		ms, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number of milliseconds", field)
		}
		r.Timestamp = time.UnixMilli(ms)
	case 'd':
		t, err := p.time(string(field))
		if err != nil {
			return err
		}
		r.Timestamp = t
	case 'h':
		for pair := range strings.SplitSeq(string(field), ",") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
			}
		}
	}
	return nil
}

// time reads what appendTime writes, and without a layout what parseTime knows.
func (p *piece) time(field string) (time.Time, error) {
	switch p.modifier {
	case "":
		return parseTime(field, time.Now())
	case "rfc3339":
		return time.Parse(time.RFC3339, field)
	}
	return time.Parse(p.modifier, field)
}

func (p *piece) decode(to *[]byte, field []byte) error {
	if p.modifier == "" {
		*to = notNil(field)
		return nil
	}
	encoded := string(field)
	if p.modifier == "hex" {
		decoded, err := hex.DecodeString(encoded)
		*to = decoded
		return err
	}
	decoded, err := decodeText(&encoded, p.modifier)
	*to = decoded
	return err
}

// json reads one object per line, as consume -f json writes them. Of where the record
// stood only the topic counts, and only when the command line names none.
func (s *source) json() (*kgo.Record, error) {
	line, err := s.until("\n")
	for err == nil && len(bytes.TrimSpace(line)) == 0 {
		line, err = s.until("\n")
	}
	if err != nil {
		return nil, err
	}
	var j jsonRecord
	if err := json.Unmarshal(line, &j); err != nil {
		return nil, fmt.Errorf("read JSON record: %w", err)
	}
	r := &kgo.Record{Topic: j.Topic}
	if j.Timestamp > 0 {
		r.Timestamp = time.UnixMilli(j.Timestamp)
	}
	var errKey, errValue error
	r.Key, errKey = decodeText(j.Key, j.KeyEncoding)
	r.Value, errValue = decodeText(j.Value, j.ValueEncoding)
	if err := errors.Join(errKey, errValue); err != nil {
		return nil, fmt.Errorf("read JSON record: %w", err)
	}
	for _, h := range j.Headers {
		value, err := decodeText(h.Value, h.Encoding)
		if err != nil {
			return nil, fmt.Errorf("read JSON record: %w", err)
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: value})
	}
	return r, nil
}
