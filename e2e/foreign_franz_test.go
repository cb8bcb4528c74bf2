package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const clientLimit = 30 * time.Second // one operation of one client, on a loaded machine

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), clientLimit)
	t.Cleanup(cancel)
	return ctx
}

// kgoClient opens a franz-go client that ends with the test.
func kgoClient(t testing.TB, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func kadmClient(t testing.TB, addr string) *kadm.Client { return kadm.NewClient(kgoClient(t, addr)) }

type franz struct{}

func (franz) Name() string { return "franz-go" }

func (franz) CreateTopic(t *testing.T, addr, topic string, partitions int32) {
	t.Helper()
	if _, err := kadmClient(t, addr).CreateTopic(limited(t), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

func franzCodec(codec string) kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[codec]
}

func (franz) Produce(t *testing.T, addr, topic, codec string, records []Record) {
	t.Helper()
	cl := kgoClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(franzCodec(codec)), kgo.ProducerBatchMaxBytes(8<<20))
	var out []*kgo.Record
	for _, r := range records {
		k := &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Time}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		out = append(out, k)
	}
	if err := cl.ProduceSync(limited(t), out...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (franz) From(t *testing.T, addr, topic string, partition int32, offset int64, n int) []Record {
	t.Helper()
	return franzPartition(t, addr, topic, partition, kgo.NewOffset().At(offset), n)
}

func (franz) FromTime(t *testing.T, addr, topic string, partition int32, at time.Time, n int) []Record {
	t.Helper()
	return franzPartition(t, addr, topic, partition, kgo.NewOffset().AfterMilli(at.UnixMilli()), n)
}

func franzPartition(t *testing.T, addr, topic string, partition int32, at kgo.Offset, n int) []Record {
	t.Helper()
	cl := kgoClient(t, addr, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: at}}))
	return franzPoll(t, cl, n)
}

func franzPoll(t *testing.T, cl *kgo.Client, n int) []Record {
	t.Helper()
	ctx := limited(t)
	var out []Record
	for len(out) < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		fs.EachRecord(func(k *kgo.Record) {
			r := Record{Partition: k.Partition, Offset: k.Offset, Time: k.Timestamp, Key: k.Key, Value: k.Value}
			for _, h := range k.Headers {
				r.Headers = append(r.Headers, Header{h.Key, h.Value})
			}
			out = append(out, r)
		})
	}
	return out
}

func (franz) Group(t *testing.T, addr, topic, group string, n int) []Record {
	t.Helper()
	cl := kgoClient(t, addr, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	out := franzPoll(t, cl, n)
	if err := cl.CommitUncommittedOffsets(limited(t)); err != nil {
		t.Fatal(err)
	}
	cl.LeaveGroup()
	return out
}
