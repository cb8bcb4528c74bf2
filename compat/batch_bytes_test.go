package compat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

var sampleRecords = []batch.NewRecord{
	{Timestamp: recordTime, Key: []byte("key"), Value: []byte("value")},
	{Timestamp: recordTime + 70000, Value: []byte("no key"), Headers: []batch.RecordHeader{{Key: "trace", Value: []byte{1, 2}}, {Key: "null"}, {Key: ""}}},
	{Timestamp: recordTime - 9, Key: []byte("tombstone")},
	{Timestamp: recordTime, Key: []byte{}, Value: []byte{}},
	{Timestamp: recordTime, Value: bytes.Repeat([]byte("well compressed "), 1000)},
	{Timestamp: recordTime + 1<<33, Key: make([]byte, 200), Value: make([]byte, 70000)},
}

// A batch made by us and by kmsg, an independent encoder, is the same bytes.
func TestBatchesAreKafkas(t *testing.T) {
	for _, c := range []struct {
		name    string
		options batch.BuilderOptions
		ours    kmsg.RecordBatch // the fields options ask for
	}{
		{"plain", batch.BuilderOptions{}, kmsg.RecordBatch{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}},
		{"at an offset", batch.BuilderOptions{BaseOffset: 1 << 40, LeaderEpoch: 7}, kmsg.RecordBatch{FirstOffset: 1 << 40, PartitionLeaderEpoch: 7, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}},
		{"idempotent", batch.BuilderOptions{Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 1 << 35, Epoch: 3}, BaseSequence: 99}},
			kmsg.RecordBatch{ProducerID: 1 << 35, ProducerEpoch: 3, FirstSequence: 99}},
		{"transactional", batch.BuilderOptions{Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 8}}, Transactional: true},
			kmsg.RecordBatch{Attributes: 1 << 4, ProducerID: 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := batch.NewBuilder(c.options)
			var records []kmsg.Record
			for i, r := range sampleRecords {
				b.Add(r)
				k := kmsg.Record{TimestampDelta64: int64(r.Timestamp - sampleRecords[0].Timestamp), OffsetDelta: int32(i), Key: r.Key, Value: r.Value}
				for _, h := range r.Headers {
					k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
				}
				records = append(records, k)
			}
			got, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			want := c.ours
			want.FirstTimestamp, want.MaxTimestamp = int64(recordTime), int64(recordTime)+1<<33
			if diff := cmp.Diff(encodeBatch(want, records), got.Bytes()); diff != "" {
				t.Errorf("-kmsg +ours:\n%s", diff)
			}
		})
	}
}

// Markers are, byte for byte, what kmsg makes of Kafka's schemas.
func TestMarkersAreKafkas(t *testing.T) {
	for kind, key := range map[batch.MarkerType]kmsg.ControlRecordKeyType{batch.Commit: kmsg.ControlRecordKeyTypeCommit, batch.Abort: kmsg.ControlRecordKeyTypeAbort} {
		marker := batch.NewMarker(batch.Marker{Type: kind, Producer: model.ProducerIdentity{ID: 4711, Epoch: 12}, CoordinatorEpoch: 5, Timestamp: recordTime})
		k, v := kmsg.ControlRecordKey{Type: key}, kmsg.EndTxnMarker{CoordinatorEpoch: 5}
		want := encodeBatch(kmsg.RecordBatch{
			Attributes: 1<<4 | 1<<5, FirstTimestamp: int64(recordTime), MaxTimestamp: int64(recordTime), ProducerID: 4711, ProducerEpoch: 12, FirstSequence: -1,
		}, []kmsg.Record{{Key: k.AppendTo(nil), Value: v.AppendTo(nil)}})
		if diff := cmp.Diff(want, marker.Bytes()); diff != "" {
			t.Errorf("%v (-kmsg +ours):\n%s", kind, diff)
		}
	}
}

// encodeBatch encodes records in a batch whose other fields are set.
func encodeBatch(b kmsg.RecordBatch, records []kmsg.Record) []byte {
	for i := range records {
		r := records[i]
		body := r.AppendTo(nil)
		r.Length = int32(len(body) - 1) // what follows the length, which was one byte for 0
		b.Records = r.AppendTo(b.Records)
	}
	b.Magic, b.NumRecords, b.LastOffsetDelta = 2, int32(len(records)), int32(len(records)-1)
	b.Length = int32(61 - 12 + len(b.Records))
	encoded := b.AppendTo(nil)
	binary.BigEndian.PutUint32(encoded[17:], crc32.Checksum(encoded[21:], crc32.MakeTable(crc32.Castagnoli)))
	return encoded
}

// gathered hears of every record that has its place in a batch.
type gathered chan struct{}

// OnProduceRecordPartitioned implements kgo.HookProduceRecordPartitioned.
func (g gathered) OnProduceRecordPartitioned(*kgo.Record, int32) { g <- struct{}{} }

// What franz-go sends is what is stored, in every codec, and what our own builder
// would have made of the same records when nothing is compressed.
func TestStoredBatchesAreTheClients(t *testing.T) {
	addr := start(t)
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		name := fmt.Sprint("codec-", i)
		of := topic{name, ask[*kmsg.CreateTopicsResponse](t, dial(t, addr), 7, createTopic(name, 1)).Topics[0].TopicID}
		batched := make(gathered, len(sampleRecords))
		client := kafkaClient(t, addr, kgo.DefaultProduceTopic(name), kgo.ProducerBatchCompression(codec), kgo.DisableIdempotentWrite(), kgo.ManualFlushing(), kgo.WithHooks(batched))
		// Without idempotence franz-go leaves the sequence at 0, not at -1.
		b := batch.NewBuilder(batch.BuilderOptions{Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: -1, Epoch: -1}}})
		for _, r := range sampleRecords {
			if r.Timestamp > recordTime+100000 {
				continue // refused: too far ahead of the clock
			}
			k := &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(int64(r.Timestamp))}
			for _, h := range r.Headers {
				k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
			}
			b.Add(r)
			client.Produce(t.Context(), k, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range client.BufferedProduceRecords() { // a flush before that sends them in pieces
			<-batched
		}
		if err := client.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		stored := ask[*kmsg.FetchResponse](t, dial(t, addr), 13, fetch(of, 0, 0)).Topics[0].Partitions[0].RecordBatches
		ours, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		got, rest, err := batch.Parse(stored)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%s: %v, %d bytes more", name, err, len(rest))
		}
		if got.Compression() != batch.Compression(i) {
			t.Errorf("%s is stored as %v", name, got.Compression())
		}
		if i == 0 {
			if diff := cmp.Diff(ours.Bytes(), got.Bytes()); diff != "" {
				t.Errorf("-ours +franz-go's:\n%s", diff)
			}
			continue
		}
		plain, err := got.Recompress(batch.Codec{}, 1<<20, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ours.Bytes(), plain.Bytes()); diff != "" {
			t.Errorf("%s, decompressed (-ours +franz-go's):\n%s", name, diff)
		}
	}
}
