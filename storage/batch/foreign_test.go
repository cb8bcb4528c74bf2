package batch_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// This file holds our bytes against franz-go's, an independent implementation.

var codecs = []batch.Compression{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// plainRecord is a record both sides can be turned into.
type plainRecord struct {
	Offset, Timestamp int64
	Key, Value        []byte
	Headers           []batch.RecordHeader
}

// someRecords covers null, empty and long keys and values, headers with and
// without values, and timestamps that go back.
func someRecords() []plainRecord {
	long := []byte(strings.Repeat("perigee ", 20_000))
	return []plainRecord{
		{Offset: 0, Timestamp: 1_700_000_000_500, Key: []byte("k"), Value: []byte("v")},
		{Offset: 1, Timestamp: 1_700_000_000_000, Value: []byte("no key, earlier")},
		{Offset: 2, Timestamp: 1_700_000_009_000, Key: []byte("tombstone")},
		{Offset: 3, Timestamp: 1_700_000_001_000, Key: []byte{}, Value: []byte{}},
		{Offset: 4, Timestamp: 1_700_000_001_000, Value: long, Headers: []batch.RecordHeader{
			{Key: "a", Value: []byte("1")}, {Key: "", Value: nil}, {Key: "a", Value: []byte{}}}},
	}
}

func build(t testing.TB, o batch.BuilderOptions, records []plainRecord) batch.View {
	t.Helper()
	b := batch.NewBuilder(o)
	for _, r := range records {
		b.Add(batch.NewRecord{Timestamp: model.Timestamp(r.Timestamp), Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	v, err := b.Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return v
}

func collect(t testing.TB, v batch.View) []plainRecord {
	t.Helper()
	var all []plainRecord
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			t.Fatalf("walk records: %v", err)
		}
		all = append(all, plainRecord{int64(r.Offset), int64(r.Timestamp), r.Key, r.Value, slices.Collect(r.Headers.All())})
	}
	return all
}

func same(t testing.TB, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) { // much faster than cmp on long values
		t.Fatalf("want -, got +:\n%s", cmp.Diff(want, got))
	}
}

// An uncompressed batch of ours has exactly the bytes kmsg writes for the same records.
func TestBuilderWritesTheBytesOfKmsg(t *testing.T) {
	records := someRecords()
	ours := build(t, batch.BuilderOptions{
		BaseOffset: 7, LeaderEpoch: 3, Transactional: true,
		Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 4000, Epoch: 5}, BaseSequence: 11},
	}, records)

	var body []byte
	for _, r := range records {
		k := kmsg.Record{TimestampDelta64: r.Timestamp - records[0].Timestamp, OffsetDelta: int32(r.Offset), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		// The length counts everything but itself, which is one byte while it is 0.
		k.Length = int32(len(k.AppendTo(nil)) - 1)
		body = k.AppendTo(body)
	}
	theirs := kmsg.RecordBatch{
		FirstOffset: 7, PartitionLeaderEpoch: 3, Magic: 2, Attributes: 0x10, LastOffsetDelta: 4,
		FirstTimestamp: 1_700_000_000_500, MaxTimestamp: 1_700_000_009_000,
		ProducerID: 4000, ProducerEpoch: 5, FirstSequence: 11, NumRecords: 5, Records: body,
		Length: int32(49 + len(body)), CRC: int32(ours.CRC()),
	}
	if want := theirs.AppendTo(nil); !bytes.Equal(ours.Bytes(), want) {
		t.Fatalf("ours\n%x\nkmsg's\n%x", ours.Bytes()[:100], want[:100])
	}
	if _, _, err := batch.Parse(ours.Bytes()); err != nil {
		t.Fatalf("own checksum: %v", err)
	}
}

// franz-go's consumer reads every codec we write, at every level Kafka accepts.
func TestKgoReadsWhatWeWrite(t *testing.T) {
	for _, c := range codecs {
		low, high, _ := batch.LevelRange(c)
		for level := low; level <= high; level = nextLevel(level) {
			t.Run(fmt.Sprintf("%s/%d", c, level), func(t *testing.T) {
				v := build(t, batch.BuilderOptions{Codec: batch.Codec{Compression: c, Level: level}}, someRecords())
				same(t, readWithKgo(t, v), someRecords())
			})
		}
	}
}

// nextLevel samples zstd's hundred thousand negative levels.
func nextLevel(l int) int {
	if l < -10 {
		return l / 10
	}
	return l + 1
}

func readWithKgo(t *testing.T, v batch.View) []plainRecord {
	t.Helper()
	fetched := kmsg.NewFetchResponseTopicPartition()
	fetched.HighWatermark, fetched.RecordBatches = int64(v.NextOffset()), v.Bytes()
	p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", KeepControlRecords: true}, &fetched, kgo.DefaultDecompressor(), nil)
	if p.Err != nil {
		t.Fatalf("kgo: %v", p.Err)
	}
	var all []plainRecord
	for _, r := range p.Records {
		plain := plainRecord{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			plain.Headers = append(plain.Headers, batch.RecordHeader{Key: h.Key, Value: h.Value})
		}
		all = append(all, plain)
	}
	return all
}

// What franz-go's producer puts on the wire is accepted and read back, for every codec.
func TestAcceptTakesWhatKgoProduces(t *testing.T) {
	producerCodecs := map[batch.Compression]kgo.CompressionCodec{
		batch.None: kgo.NoCompression(), batch.Gzip: kgo.GzipCompression(), batch.Snappy: kgo.SnappyCompression(),
		batch.LZ4: kgo.Lz4Compression(), batch.Zstd: kgo.ZstdCompression(),
	}
	for c, codec := range producerCodecs {
		t.Run(c.String(), func(t *testing.T) {
			wire := produceWithKgo(t, codec, someRecords())
			v, err := batch.Accept(wire, batch.Rules{MaxBatchBytes: 1 << 20})
			if err != nil {
				t.Fatalf("accept: %v", err)
			}
			if v.Compression() != c {
				t.Fatalf("codec %s, want %s", v.Compression(), c)
			}
			if v.ProducerID() < 0 || v.BaseSequence() != 0 || v.LastSequence() != 4 {
				t.Fatalf("producer %d, sequences %d to %d", v.ProducerID(), v.BaseSequence(), v.LastSequence())
			}
			same(t, collect(t, v), someRecords())
		})
	}
}

// gathered hears of every record that has its place in a batch.
type gathered chan struct{}

// OnProduceRecordPartitioned implements kgo.HookProduceRecordPartitioned.
func (g gathered) OnProduceRecordPartitioned(*kgo.Record, int32) { g <- struct{}{} }

// produceWithKgo returns the bytes of the one batch a client sends.
func produceWithKgo(t *testing.T, codec kgo.CompressionCodec, records []plainRecord) []byte {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	seen := make(chan []byte, 1)
	broker.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case seen <- bytes.Clone(r.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records):
		default:
		}
		return nil, nil, false
	})
	batched := make(gathered, len(records))
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ProducerBatchCompression(codec), kgo.ManualFlushing(), kgo.WithHooks(batched))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, r := range records {
		k := &kgo.Record{Topic: "t", Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		client.Produce(ctx, k, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	for range client.BufferedProduceRecords() { // a flush before that sends them in pieces
		<-batched
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatalf("flush: %v", err)
	}
	return <-seen
}
