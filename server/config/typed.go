package config

import (
	"fmt"
	"strconv"
	"time"
)

// The functions below read canonical text, which was checked when it came in;
// text that does not parse is a bug in the table.

func mustInt(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("BUG: %q is not a canonical number", text))
	}
	return n
}

func mustFloat(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprintf("BUG: %q is not a canonical number", text))
	}
	return f
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// Forever stands for times that do not fit a time.Duration (292 years).
const Forever = time.Duration(1<<63 - 1)

// duration turns a count of units into a time; huge counts become Forever,
// negative ones stay negative.
func duration(n int64, unit Unit) time.Duration {
	per := time.Duration(unit.millis()) * time.Millisecond
	if n > int64(Forever/per) {
		return Forever
	}
	return time.Duration(n) * per
}

// reader takes typed values out of resolved text.
type reader func(name string) (k *Key, text string, ok bool)

// broker reads the effective broker settings.
func (v Values) broker() reader {
	return func(name string) (*Key, string, bool) {
		k := mustKey(BrokerTable, name)
		text, ok := v.Effective(k)
		return k, text, ok
	}
}

// topic reads the effective settings of a topic.
func (v Values) topic(overrides map[string]string) reader {
	return func(name string) (*Key, string, bool) {
		k := mustKey(TopicTable, name)
		r := v.Topic(k, overrides)
		return k, r.Value, !r.Null
	}
}

func mustKey(t *Table, name string) *Key {
	k, ok := t.Key(name)
	if !ok {
		panic(fmt.Sprintf("BUG: no setting %q", name))
	}
	return k
}

func (r reader) text(name string) string   { _, text, _ := r(name); return text }
func (r reader) list(name string) []string { return SplitList(r.text(name)) }
func (r reader) flag(name string) bool     { return r.text(name) == "true" }
func (r reader) float(name string) float64 { return mustFloat(r.text(name)) }
func (r reader) int64(name string) int64   { return mustInt(r.text(name)) }
func (r reader) int(name string) int       { return int(r.int64(name)) }

// time reads a setting that has a time unit.
func (r reader) time(name string) time.Duration {
	k, text, ok := r(name)
	if !ok {
		return 0
	}
	return duration(mustInt(text), k.Unit)
}

// optional reads a number that may be absent; absent is 0.
func (r reader) optional(name string) int64 {
	_, text, ok := r(name)
	if !ok {
		return 0
	}
	return mustInt(text)
}
