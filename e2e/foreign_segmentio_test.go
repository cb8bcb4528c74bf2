package e2e

import (
	"context"
	"net"
	"testing"
	"time"

	segmentio "github.com/segmentio/kafka-go"
)

type segmentioClient struct{}

func (segmentioClient) Name() string { return "segmentio/kafka-go" }

func (segmentioClient) CreateTopic(t *testing.T, addr, topic string, partitions int32) {
	t.Helper()
	cl := &segmentio.Client{Addr: tcp(addr)}
	resp, err := cl.CreateTopics(limited(t), &segmentio.CreateTopicsRequest{Topics: []segmentio.TopicConfig{{Topic: topic, NumPartitions: int(partitions), ReplicationFactor: 1}}})
	if err == nil {
		err = resp.Errors[topic]
	}
	if err != nil {
		t.Fatal(err)
	}
}

func tcp(addr string) net.Addr { return segmentio.TCP(addr) }

// byPartition is a balancer that sends each message where its record says.
type byPartition struct{ records []Record }

func (b *byPartition) Balance(m segmentio.Message, partitions ...int) int {
	return int(b.records[m.WriterData.(int)].Partition)
}

func (segmentioClient) Produce(t *testing.T, addr, topic, codec string, records []Record) {
	t.Helper()
	w := &segmentio.Writer{
		Addr: tcp(addr), Topic: topic, RequiredAcks: segmentio.RequireAll, BatchTimeout: 10 * time.Millisecond,
		Balancer: &byPartition{records}, BatchBytes: 8 << 20,
		Compression: map[string]segmentio.Compression{"gzip": segmentio.Gzip, "snappy": segmentio.Snappy, "lz4": segmentio.Lz4, "zstd": segmentio.Zstd}[codec],
	}
	defer w.Close()
	var out []segmentio.Message
	for i, r := range records {
		m := segmentio.Message{Key: r.Key, Value: r.Value, Time: r.Time, WriterData: i}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, segmentio.Header{Key: h.Key, Value: h.Value})
		}
		out = append(out, m)
	}
	if err := w.WriteMessages(limited(t), out...); err != nil {
		t.Fatal(err)
	}
}

func segmentioRead(t *testing.T, n int, read func(context.Context) (segmentio.Message, error)) []Record {
	t.Helper()
	ctx := limited(t)
	var out []Record
	for len(out) < n {
		m, err := read(ctx)
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		r := Record{Partition: int32(m.Partition), Offset: m.Offset, Time: m.Time, Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			r.Headers = append(r.Headers, Header{h.Key, h.Value})
		}
		out = append(out, r)
	}
	return out
}

func (segmentioClient) reader(addr, topic string, partition int32) *segmentio.Reader {
	return segmentio.NewReader(segmentio.ReaderConfig{Brokers: []string{addr}, Topic: topic, Partition: int(partition), MaxBytes: 16 << 20, MaxWait: 200 * time.Millisecond})
}

func (s segmentioClient) From(t *testing.T, addr, topic string, partition int32, offset int64, n int) []Record {
	t.Helper()
	r := s.reader(addr, topic, partition)
	defer r.Close()
	if err := r.SetOffset(offset); err != nil {
		t.Fatal(err)
	}
	return segmentioRead(t, n, r.ReadMessage)
}

func (s segmentioClient) FromTime(t *testing.T, addr, topic string, partition int32, at time.Time, n int) []Record {
	t.Helper()
	r := s.reader(addr, topic, partition)
	defer r.Close()
	if err := r.SetOffsetAt(limited(t), at); err != nil {
		t.Fatal(err)
	}
	return segmentioRead(t, n, r.ReadMessage)
}

func (segmentioClient) Group(t *testing.T, addr, topic, group string, n int) []Record {
	t.Helper()
	r := segmentio.NewReader(segmentio.ReaderConfig{Brokers: []string{addr}, GroupID: group, Topic: topic, StartOffset: segmentio.FirstOffset, MaxBytes: 16 << 20, MaxWait: 200 * time.Millisecond})
	defer r.Close()
	var read []segmentio.Message
	out := segmentioRead(t, n, func(ctx context.Context) (segmentio.Message, error) {
		m, err := r.FetchMessage(ctx)
		read = append(read, m)
		return m, err
	})
	if err := r.CommitMessages(limited(t), read...); err != nil {
		t.Fatal(err)
	}
	return out
}
