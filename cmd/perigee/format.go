package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A record format is text with tokens, as in kcat and rpk:
//
//	%k key  %v or %s value  %h headers  %t topic  %p partition  %o offset
//	%T timestamp in milliseconds  %d{LAYOUT} the same as text  %e leader epoch
//	%K key length  %S or %V value length (-1 for null)  %H number of headers
//	%R value length as four bytes, the largest first (kcat)
//	%x producer id  %y producer epoch  %i how many records, with this one (rpk)
//	%% %{ %} percent and braces  \n \r \t \\ \0 \xNN
//
// %k{hex} and %k{base64} encode, for %v too. %h{%k=%v;} repeats what is in the
// braces for every header. What else stands in braces is rpk's: %o{hex},
// %d{strftime[%F]}, %a{compression}.
const formatHelp = `Format tokens:
  %k key            %v %s value        %h headers, or %h{%k=%v;}
  %t topic          %p partition       %o offset
  %T timestamp ms   %d{rfc3339}        %e leader epoch
  %K key length     %S %V value length %H number of headers
  %x producer id    %y producer epoch  %i records so far
  %R value length as four bytes        %% %{ %} percent and braces
  %k{hex} %v{base64} encode; in braces also what rpk knows: %o{hex}, %d{strftime[%F]},
  %a{compression}. \n \t \r \0 \\ \xNN are what they are elsewhere.`

// piece is literal text or one token.
type piece struct {
	literal  string
	verb     byte // 0 for literal text
	modifier string
	inner    []piece // of %h{…}
	// rpk writes a token in the way of rpk, if it is one of its own.
	rpk *kgo.RecordFormatter
}

// parseFormat reads a format; verbs are the tokens that may appear.
func parseFormat(format, verbs string) ([]piece, error) {
	var pieces []piece
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			pieces = append(pieces, piece{literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(format); {
		switch format[i] {
		case '\\':
			b, n, err := unescape(format[i:])
			if err != nil {
				return nil, err
			}
			literal.WriteByte(b)
			i += n
		case '%':
			if i+1 < len(format) && strings.IndexByte("%{}", format[i+1]) >= 0 {
				literal.WriteByte(format[i+1])
				i += 2
				continue
			}
			flush()
			p, n, err := parseToken(format[i:], verbs)
			if err != nil {
				return nil, err
			}
			pieces = append(pieces, p)
			i += n
		default:
			literal.WriteByte(format[i])
			i++
		}
	}
	flush()
	return pieces, nil
}

// parseToken reads %v or %v{modifier} at the start of s and says how long it is.
func parseToken(s, verbs string) (piece, int, error) {
	if len(s) < 2 {
		return piece{}, 0, fmt.Errorf("format ends with a lone %%")
	}
	p := piece{verb: s[1]}
	if !strings.ContainsRune(verbs, rune(p.verb)) {
		return p, 0, fmt.Errorf("unknown format token %%%c", p.verb)
	}
	length := 2
	if len(s) > 2 && s[2] == '{' {
		end := matchBrace(s[2:])
		if end < 0 {
			return p, 0, fmt.Errorf("%%%c{ is never closed", p.verb)
		}
		p.modifier, length = s[3:2+end], 2+end+1
	}
	return p, length, p.interpret()
}

// interpret finds out what a token's braces mean.
func (p *piece) interpret() (err error) {
	switch {
	case p.verb == 'h' && p.modifier != "":
		p.inner, err = parseFormat(p.modifier, "kvKV")
		return err
	case p.verb != 'a' && p.verb != 'i' && p.modifier == "",
		strings.IndexByte("kvs", p.verb) >= 0 && (p.modifier == "hex" || p.modifier == "base64"):
		return nil
	}
	if p.rpk, err = rpkToken(p.verb, p.modifier); err == nil || p.verb == 'd' {
		return nil // what is nothing to rpk is a layout
	}
	if strings.IndexByte("kvs", p.verb) >= 0 {
		return fmt.Errorf("%%%c{%s}: want hex, base64 or what rpk has: %w", p.verb, p.modifier, err)
	}
	return fmt.Errorf("%%%c{%s}: %w", p.verb, p.modifier, err)
}

// rpkToken reads a token as rpk does, by the name it has there.
func rpkToken(verb byte, modifier string) (*kgo.RecordFormatter, error) {
	switch verb {
	case 's':
		verb = 'v'
	case 'S':
		verb = 'V'
	case 'T':
		verb = 'd'
	}
	if modifier == "" {
		return kgo.NewRecordFormatter("%" + string(verb))
	}
	return kgo.NewRecordFormatter("%" + string(verb) + "{" + modifier + "}")
}

// matchBrace returns where the brace s starts with is closed, or -1.
func matchBrace(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// unescape reads one backslash escape and says how long it is.
func unescape(s string) (byte, int, error) {
	if len(s) < 2 {
		return 0, 0, fmt.Errorf("format ends with a lone backslash")
	}
	switch s[1] {
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case '0':
		return 0, 2, nil
	case '\\', '%', '{', '}':
		return s[1], 2, nil
	case 'x':
		if len(s) >= 4 {
			if b, err := hex.DecodeString(s[2:4]); err == nil {
				return b[0], 4, nil
			}
		}
		return 0, 0, fmt.Errorf(`\x wants two hexadecimal digits`)
	}
	return 0, 0, fmt.Errorf(`unknown escape \%c`, s[1])
}

const consumeVerbs = "kvshtpoTdeKSVRHxyai"

// appendRecord writes a record in the format.
func appendRecord(dst []byte, pieces []piece, r *kgo.Record) []byte {
	for _, p := range pieces {
		dst = p.append(dst, r)
	}
	return dst
}

func (p *piece) append(dst []byte, r *kgo.Record) []byte {
	if p.rpk != nil {
		return p.rpk.AppendRecord(dst, r)
	}
	switch p.verb {
	case 0:
		return append(dst, p.literal...)
	case 'k':
		return appendEncoded(dst, r.Key, p.modifier)
	case 'v', 's':
		return appendEncoded(dst, r.Value, p.modifier)
	case 'h':
		return p.appendHeaders(dst, r.Headers)
	case 't':
		return append(dst, r.Topic...)
	case 'd':
		return appendTime(dst, r.Timestamp, p.modifier)
	case 'R':
		return binary.BigEndian.AppendUint32(dst, uint32(nullableLength(r.Value)))
	}
	return strconv.AppendInt(dst, p.number(r), 10)
}

// number is the value of a numeric token.
func (p *piece) number(r *kgo.Record) int64 {
	switch p.verb {
	case 'p':
		return int64(r.Partition)
	case 'o':
		return r.Offset
	case 'T':
		return r.Timestamp.UnixMilli()
	case 'e':
		return int64(r.LeaderEpoch)
	case 'K':
		return nullableLength(r.Key)
	case 'S', 'V':
		return nullableLength(r.Value)
	case 'H':
		return int64(len(r.Headers))
	case 'x':
		return r.ProducerID
	}
	return int64(r.ProducerEpoch) // y
}

func nullableLength(b []byte) int64 {
	if b == nil {
		return -1
	}
	return int64(len(b))
}

func appendEncoded(dst, b []byte, encoding string) []byte {
	switch encoding {
	case "hex":
		return hex.AppendEncode(dst, b)
	case "base64":
		return base64.StdEncoding.AppendEncode(dst, b)
	}
	return append(dst, b...)
}

func (p *piece) appendHeaders(dst []byte, headers []kgo.RecordHeader) []byte {
	for i, h := range headers {
		if p.inner != nil {
			dst = appendRecord(dst, p.inner, &kgo.Record{Key: []byte(h.Key), Value: h.Value})
			continue
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, h.Key...), '='), h.Value...)
	}
	return dst
}

// appendTime formats in UTC: rfc3339, a Go layout, or milliseconds without one.
func appendTime(dst []byte, t time.Time, layout string) []byte {
	switch layout {
	case "":
		return strconv.AppendInt(dst, t.UnixMilli(), 10)
	case "rfc3339":
		layout = "2006-01-02T15:04:05.000Z07:00"
	}
	return t.UTC().AppendFormat(dst, layout)
}

// jsonRecord is a record as JSON, one per line, written by consume and read by
// produce. Bytes that are not UTF-8 are in base64 and say so.
type jsonRecord struct {
	Topic         string       `json:"topic"`
	Partition     int32        `json:"partition"`
	Offset        int64        `json:"offset"`
	Timestamp     int64        `json:"timestamp"`
	Key           *string      `json:"key"`
	KeyEncoding   string       `json:"key_encoding,omitempty"`
	Value         *string      `json:"value"`
	ValueEncoding string       `json:"value_encoding,omitempty"`
	Headers       []jsonHeader `json:"headers,omitempty"`
	Control       string       `json:"control,omitempty"` // commit or abort
}

// metaRecord is jsonRecord without what a record holds.
type metaRecord struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"`
	KeySize   int64  `json:"key_size"`   // -1 for null
	ValueSize int64  `json:"value_size"` // likewise
	Control   string `json:"control,omitempty"`
}

type jsonHeader struct {
	Key      string  `json:"key"`
	Value    *string `json:"value"`
	Encoding string  `json:"encoding,omitempty"`
}

func toJSON(r *kgo.Record) jsonRecord {
	j := jsonRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Control: controlType(r)}
	j.Key, j.KeyEncoding = encodeText(r.Key)
	j.Value, j.ValueEncoding = encodeText(r.Value)
	for _, h := range r.Headers {
		value, encoding := encodeText(h.Value)
		j.Headers = append(j.Headers, jsonHeader{h.Key, value, encoding})
	}
	return j
}

func toMeta(r *kgo.Record) metaRecord {
	return metaRecord{r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), nullableLength(r.Key), nullableLength(r.Value), controlType(r)}
}

// controlType names a transaction marker by the second half of its key.
func controlType(r *kgo.Record) string {
	switch {
	case !r.Attrs.IsControl():
		return ""
	case len(r.Key) == 4 && r.Key[3] == 0:
		return "abort"
	case len(r.Key) == 4 && r.Key[3] == 1:
		return "commit"
	}
	return "unknown"
}

func encodeText(b []byte) (*string, string) {
	if b == nil {
		return nil, ""
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, ""
	}
	s := base64.StdEncoding.EncodeToString(b)
	return &s, "base64"
}

func decodeText(s *string, encoding string) ([]byte, error) {
	switch {
	case s == nil:
		return nil, nil
	case encoding == "base64":
		return base64.StdEncoding.DecodeString(*s)
	case encoding != "":
		return nil, fmt.Errorf("unknown encoding %q", encoding)
	}
	return []byte(*s), nil
}
