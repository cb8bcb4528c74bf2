package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func foreignClients() []Foreign {
	return []Foreign{franz{}, rdkafka{}, saramaClient{}, segmentioClient{}}
}

var uniqueTopics = fmt.Sprintf("%x", time.Now().UnixNano()) // an external broker keeps topics

func topicName(parts ...string) string {
	name := strings.ToLower(strings.Join(append(parts, uniqueTopics), "-"))
	return strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, name)
}

// sample is a mixed load for three partitions: large, empty, null, headers,
// keys, times one second apart. Offsets are what the broker must assign.
func sample(seed uint64, base int64) []Record {
	rng := rand.New(rand.NewPCG(seed, 0))
	start := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	var out []Record
	for p := range int32(3) {
		for i := range 20 {
			r := Record{Partition: p, Offset: base + int64(i), Time: start.Add(time.Duration(i) * time.Second), Key: fmt.Appendf(nil, "key-%d-%d", p, i), Value: fmt.Appendf(nil, "value %d of partition %d", i, p)}
			switch i {
			case 3:
				r.Value = []byte{}
			case 5:
				r.Headers = []Header{{"a", []byte("1")}, {"a", []byte("2")}, {"ünïcode", []byte{0, 255}}}
			case 7:
				r.Value = bytes.Repeat([]byte(fmt.Sprint(rng.Uint64())), 20_000) // ~400 kB
			case 9:
				r.Key = nil
			case 11:
				r.Value = nil
			}
			out = append(out, r)
		}
	}
	return out
}

// Every client creates a topic, writes it with every codec, and every other
// client reads the same records back: from the start, from an offset, from a
// time and as a group that resumes where it stopped.
func TestEveryClientReadsWhatEveryClientWrote(t *testing.T) {
	b := Start(t)
	for _, w := range foreignClients() {
		t.Run(w.Name(), func(t *testing.T) {
			t.Parallel()
			topic := topicName("mix", w.Name())
			w.CreateTopic(t, b.Kafka, topic, 3)
			var want []Record
			for i, codec := range allCodecs {
				records := sample(uint64(i), int64(20*i))
				w.Produce(t, b.Kafka, topic, codec, records)
				want = append(want, records...)
			}
			for _, r := range foreignClients() {
				t.Run("read by "+r.Name(), func(t *testing.T) {
					readBack(t, r, b.Kafka, topic, want)
				})
			}
		})
	}
}

func readBack(t *testing.T, c Foreign, addr, topic string, want []Record) {
	normal := want
	if c.Name() == "segmentio/kafka-go" { // its API returns empty for null
		normal = nullAsEmpty(want)
	}
	var second []Record
	for _, r := range normal {
		if r.Partition == 1 {
			second = append(second, r)
		}
	}
	got := c.From(t, addr, topic, 1, 0, len(second))
	sameRecords(t, emptyIf(c, got), second)
	got = c.From(t, addr, topic, 1, 33, len(second)-33)
	sameRecords(t, emptyIf(c, got), second[33:])
	at := want[12].Time
	got = c.FromTime(t, addr, topic, 0, at, 5)
	if got[0].Offset != 12 {
		t.Fatalf("reading from %s began at offset %d, want 12", at, got[0].Offset)
	}
	group := topicName("g", c.Name(), topic)
	sameRecords(t, emptyIf(c, c.Group(t, addr, topic, group, len(normal))), normal)
	committed, err := kadmClient(t, addr).FetchOffsets(limited(t), group)
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(3) {
		if o, ok := committed.Lookup(topic, p); !ok || o.At != int64(len(normal)/3) {
			t.Fatalf("group %s committed %d for partition %d, want %d", group, o.At, p, len(normal)/3)
		}
	}
}

func nullAsEmpty(rs []Record) []Record {
	out := make([]Record, len(rs))
	for i, r := range rs {
		if r.Key == nil {
			r.Key = []byte{}
		}
		if r.Value == nil {
			r.Value = []byte{}
		}
		out[i] = r
	}
	return out
}

func emptyIf(c Foreign, rs []Record) []Record {
	if c.Name() == "segmentio/kafka-go" {
		return nullAsEmpty(rs)
	}
	return rs
}
