package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Record is what every client can send and receive.
type Record struct {
	Partition int32
	Offset    int64
	Time      time.Time // zero: the client's clock
	Key       []byte    // nil and empty differ
	Value     []byte    // nil is a tombstone
	Headers   []Header
}

// Header is one record header.
type Header struct {
	Key   string
	Value []byte
}

func (r Record) String() string {
	return fmt.Sprintf("%d/%d key %q value %.40q (%d bytes) headers %v", r.Partition, r.Offset, r.Key, r.Value, len(r.Value), r.Headers)
}

// Foreign is a client library as its users see it. Each method fails the test
// on error and opens connections of its own.
type Foreign interface {
	Name() string
	CreateTopic(t *testing.T, addr, topic string, partitions int32)
	// Produce sends records, in order, each to the partition it names, with
	// acks=all, and returns when all are acknowledged.
	Produce(t *testing.T, addr, topic, codec string, records []Record)
	// From reads n records of one partition from an offset on.
	From(t *testing.T, addr, topic string, partition int32, offset int64, n int) []Record
	// FromTime reads n records of one partition from the first at or after a
	// time on.
	FromTime(t *testing.T, addr, topic string, partition int32, at time.Time, n int) []Record
	// Group reads n records as the only member of a consumer group that starts
	// at the earliest offset, and commits what it read.
	Group(t *testing.T, addr, topic, group string, n int) []Record
}

var allCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// sameRecords compares what was read with what was sent, partition by
// partition, and fails with the first difference.
func sameRecords(t *testing.T, got, want []Record) {
	t.Helper()
	byPartition := func(rs []Record) map[int32][]Record {
		m := map[int32][]Record{}
		for _, r := range rs {
			m[r.Partition] = append(m[r.Partition], r)
		}
		return m
	}
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
	g, w := byPartition(got), byPartition(want)
	for p, rs := range w {
		if len(g[p]) != len(rs) {
			t.Fatalf("partition %d: got %d records, want %d", p, len(g[p]), len(rs))
		}
		for i, r := range rs {
			x := g[p][i]
			switch {
			case x.Offset != r.Offset:
				t.Fatalf("partition %d record %d: offset %d, want %d", p, i, x.Offset, r.Offset)
			case !sameBytes(x.Key, r.Key), !sameBytes(x.Value, r.Value):
				t.Fatalf("partition %d offset %d: got %v, want %v", p, r.Offset, x, r)
			case !slices.EqualFunc(x.Headers, r.Headers, func(a, b Header) bool { return a.Key == b.Key && string(a.Value) == string(b.Value) }):
				t.Fatalf("partition %d offset %d: headers %v, want %v", p, r.Offset, x.Headers, r.Headers)
			}
		}
	}
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }
