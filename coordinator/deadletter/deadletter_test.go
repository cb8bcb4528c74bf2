package deadletter

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

func TestPolicy(t *testing.T) {
	p := Policy{MaxDeliveries: 3, Suffix: ".dlq"}
	for attempts, want := range []bool{false, false, false, true, true} {
		if p.Dead(attempts) != want {
			t.Errorf("dead after %d: %v", attempts, !want)
		}
	}
	if got, err := p.TopicFor("orders"); got != "orders.dlq" || err != nil {
		t.Errorf("topic %q, %v", got, err)
	}
	if got, err := p.TopicFor("orders.dlq"); got != "orders.dlq.dlq" || err != nil {
		t.Errorf("topic %q, %v", got, err)
	}
	long := strings.Repeat("x", 246)
	_, err := p.TopicFor(long)
	want := `invalid dead-letter topic name "` + long + `.dlq": topic name must be at most 249 characters`
	if !errors.Is(err, ErrTopicName) || err.Error() != want {
		t.Errorf("error %v", err)
	}
	for name, want := range map[string]string{"orders.dlq": "orders", "a.dlq.dlq": "a.dlq", "orders": "", ".dlq": ""} {
		if got, ok := p.SourceOf(name); ok != (want != "") || ok && got != want {
			t.Errorf("source of %q: %q, %v", name, got, ok)
		}
	}
	if got := PartitionFor(5, 3); got != 2 {
		t.Errorf("partition 5 of 3 is %d", got)
	}
}

// What is written can be read back, and a second death leaves the first one
// readable.
func TestProvenanceRoundTrip(t *testing.T) {
	first := Provenance{Topic: "orders", Partition: 1, Offset: 41, Timestamp: 1700000000123, Group: "billing", Deliveries: 3, Reason: "bad json"}
	second := Provenance{Topic: "orders.dlq", Partition: 1, Offset: 0, Timestamp: 1700000000999, Group: "inspector", Deliveries: 1, Reason: ""}
	own := batch.EncodeHeaders([]batch.RecordHeader{{Key: "trace", Value: []byte("1")}, {Key: "null"}})

	once := Headers(own, first)
	if got := once[:2]; got[0].Key != "trace" || got[1].Value != nil {
		t.Errorf("own headers became %v", got)
	}
	twice := Headers(batch.EncodeHeaders(once), second)
	if got, want := Deaths(twice), []Provenance{first, second}; !reflect.DeepEqual(got, want) {
		t.Errorf("deaths %+v, want %+v", got, want)
	}
	if got, ok := Find(twice); !ok || got != second {
		t.Errorf("newest %+v", got)
	}
	kept := 0
	for _, h := range twice {
		if !Ours(h.Key) {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d headers are the record's own, want 2", kept)
	}
}

func TestForeignProvenance(t *testing.T) {
	h := func(pairs ...string) (out []batch.RecordHeader) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, batch.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		headers []batch.RecordHeader
		want    Provenance
	}{
		{"spring", h("kafka_dlt-original-topic", "orders", "kafka_dlt-original-partition", "\x00\x00\x00\x02",
			"kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x00\x00\x29", "kafka_dlt-original-timestamp", "\x00\x00\x01\x8b\xcf\xe5\x68\x7b",
			"kafka_dlt-original-consumer-group", "billing", "kafka_dlt-exception-message", "boom"),
			Provenance{Topic: "orders", Partition: 2, Offset: 41, Timestamp: 1700000000123, Group: "billing", Reason: "boom"}},
		{"connect", h("__connect.errors.topic", "orders", "__connect.errors.partition", "0", "__connect.errors.offset", "7",
			"__connect.errors.connector.name", "sink", "__connect.errors.exception.message", "no"),
			Provenance{Topic: "orders", Partition: 0, Offset: 7, Timestamp: model.NoTimestamp, Group: "sink", Reason: "no"}},
		{"cloud stream", h("x-original-topic", "orders", "x-original-partition", "\x00\x00\x00\x01", "x-exception-message", "\xff"),
			Provenance{Topic: "orders", Partition: 1, Offset: model.NoOffset, Timestamp: model.NoTimestamp, Reason: `"\xff"`}},
		{"ours, damaged", h(HeaderTopic, "orders", HeaderPartition, "one", HeaderDeliveries, "-4"),
			Provenance{Topic: "orders", Partition: -1, Offset: model.NoOffset, Timestamp: model.NoTimestamp}},
	} {
		if got, ok := Find(tt.headers); !ok || got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if p, ok := Find(h("trace", "1", HeaderMessage, "stray")); ok {
		t.Errorf("found %+v in a record that never died", p)
	}
	if got := Replays(h(HeaderReplays, "1", HeaderReplays, "2")); got != 2 {
		t.Errorf("replays %d, want 2", got)
	}
	if got := Replays(nil); got != 0 {
		t.Errorf("replays %d, want 0", got)
	}
	if !Foreign("kafka_dlt-exception-stacktrace") || Foreign("trace") {
		t.Error("foreign headers are not told apart")
	}
}
