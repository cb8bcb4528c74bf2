package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

const filterHelp = `Filters are FIELD OPERATOR TEXT; several must all hold:
  fields     key  value  header.NAME  value.PATH.IN.JSON  key.PATH.IN.JSON
             topic  partition  offset  timestamp
  operators  =  !=  ~ (regular expression)  !~  *= (contains)  <  <=  >  >=
  A field that is not there fails every filter but != and !~.`

// filter decides whether a record is printed.
type filter struct {
	field func(*kgo.Record) (string, bool)
	holds func(value string) bool
	// absent is the verdict on a record without the field.
	absent bool
}

func (f *filter) passes(r *kgo.Record) bool {
	value, ok := f.field(r)
	if !ok {
		return f.absent
	}
	return f.holds(value)
}

// operators in the order they are looked for: the longer before their beginnings.
var operators = []string{"!=", "!~", "*=", "<=", ">=", "=", "~", "<", ">"}

// parseFilter reads FIELD OPERATOR TEXT.
func parseFilter(s string) (*filter, error) {
	at := strings.IndexAny(s, "!*<>=~")
	if at <= 0 {
		return nil, fmt.Errorf("%q: want FIELD OPERATOR TEXT, such as value.status=failed", s)
	}
	var operator string
	for _, o := range operators {
		if strings.HasPrefix(s[at:], o) {
			operator = o
			break
		}
	}
	if operator == "" {
		return nil, fmt.Errorf("%q: unknown operator", s)
	}
	field, err := parseField(strings.TrimSpace(s[:at]))
	if err != nil {
		return nil, err
	}
	holds, err := parseOperator(operator, strings.TrimSpace(s[at+len(operator):]))
	return &filter{field: field, holds: holds, absent: operator[0] == '!'}, err
}

func parseField(name string) (func(*kgo.Record) (string, bool), error) {
	base, path, deep := strings.Cut(name, ".")
	switch {
	case base == "header" && deep:
		return func(r *kgo.Record) (string, bool) { return headerNamed(r, path) }, nil
	case base == "value" && deep:
		return func(r *kgo.Record) (string, bool) { return inJSON(r.Value, path) }, nil
	case base == "key" && deep:
		return func(r *kgo.Record) (string, bool) { return inJSON(r.Key, path) }, nil
	}
	switch name {
	case "key":
		return func(r *kgo.Record) (string, bool) { return string(r.Key), r.Key != nil }, nil
	case "value":
		return func(r *kgo.Record) (string, bool) { return string(r.Value), r.Value != nil }, nil
	case "topic":
		return func(r *kgo.Record) (string, bool) { return r.Topic, true }, nil
	case "partition":
		return func(r *kgo.Record) (string, bool) { return strconv.Itoa(int(r.Partition)), true }, nil
	case "offset":
		return func(r *kgo.Record) (string, bool) { return strconv.FormatInt(r.Offset, 10), true }, nil
	case "timestamp":
		return func(r *kgo.Record) (string, bool) { return strconv.FormatInt(r.Timestamp.UnixMilli(), 10), true }, nil
	}
	return nil, fmt.Errorf("unknown field %q", name)
}

// headerNamed returns the last header of that name.
func headerNamed(r *kgo.Record, name string) (string, bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value), true
		}
	}
	return "", false
}

// inJSON follows a path of names and array indices into a JSON document.
func inJSON(document []byte, path string) (string, bool) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber() // 64-bit numbers stay what they are
	var node any
	if err := decoder.Decode(&node); err != nil {
		return "", false
	}
	for step := range strings.SplitSeq(path, ".") {
		switch parent := node.(type) {
		case map[string]any:
			child, ok := parent[step]
			if !ok {
				return "", false
			}
			node = child
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(parent) {
				return "", false
			}
			node = parent[i]
		default:
			return "", false
		}
	}
	if s, ok := node.(string); ok {
		return s, true
	}
	text, err := json.Marshal(node)
	return string(text), err == nil
}

func parseOperator(operator, text string) (func(string) bool, error) {
	switch operator {
	case "=":
		return func(v string) bool { return v == text }, nil
	case "!=":
		return func(v string) bool { return v != text }, nil
	case "*=":
		return func(v string) bool { return strings.Contains(v, text) }, nil
	case "~", "!~":
		r, err := regexp.Compile(text)
		if err != nil {
			return nil, err
		}
		want := operator == "~"
		return func(v string) bool { return r.MatchString(v) == want }, nil
	}
	limit, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("%s needs a number, not %q", operator, text)
	}
	return func(v string) bool {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return false
		}
		switch operator {
		case "<":
			return n < limit
		case "<=":
			return n <= limit
		case ">":
			return n > limit
		}
		return n >= limit
	}, nil
}
