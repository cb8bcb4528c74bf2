package batch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// benchBatch models a producer's batch: 1 KiB records of words, about half of
// which compresses away.
func benchBatch(b *testing.B, c batch.Compression, records int) batch.View {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	builder := batch.NewBuilder(batch.BuilderOptions{Codec: batch.DefaultCodec(c)})
	for i := range records {
		value := make([]byte, 1024)
		for j := range value {
			value[j] = "perigee stores records"[random.IntN(22)]
		}
		builder.Add(batch.NewRecord{Timestamp: model.Timestamp(1_700_000_000_000 + i), Key: fmt.Appendf(nil, "key-%d", i), Value: value})
	}
	v, err := builder.Build()
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkParse is the checksum and the header of one batch.
func BenchmarkParse(b *testing.B) {
	for _, records := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("%dKiB", records), func(b *testing.B) {
			v := benchBatch(b, batch.None, records)
			b.SetBytes(int64(v.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := batch.Parse(v.Bytes()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAccept is all the produce path does to one batch of 16 records before
// it is appended. Bytes are the batch's, compressed.
func BenchmarkAccept(b *testing.B) {
	for _, c := range codecs {
		b.Run(c.String(), func(b *testing.B) {
			v := benchBatch(b, c, 16)
			rules := batch.Rules{MaxBatchBytes: 1 << 20, TimestampMax: 1 << 60}
			b.SetBytes(int64(v.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := batch.Accept(v.Bytes(), rules); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAcceptSmall is BenchmarkAccept for 5,000 records of 100 bytes, as telemetry
// sends them: there it is the number of records that counts.
func BenchmarkAcceptSmall(b *testing.B) {
	builder := batch.NewBuilder(batch.BuilderOptions{})
	for i := range 5000 {
		builder.Add(batch.NewRecord{Timestamp: model.Timestamp(1_700_000_000_000 + i/100), Value: make([]byte, 100)})
	}
	v, err := builder.Build()
	if err != nil {
		b.Fatal(err)
	}
	rules := batch.Rules{MaxBatchBytes: 1 << 20, TimestampMax: 1 << 60}
	b.SetBytes(int64(v.Len()))
	for b.Loop() {
		if _, err := batch.Accept(v.Bytes(), rules); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecords reads every record of a batch of 1000.
func BenchmarkRecords(b *testing.B) {
	v := benchBatch(b, batch.None, 1000)
	b.SetBytes(int64(v.Len()))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range v.Records(batch.MaxDecompressedBytes) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkBuild makes a batch of 16 records, as coordinators do for facts.
func BenchmarkBuild(b *testing.B) {
	records := slices.Collect(func(yield func(batch.Record) bool) {
		for r := range benchBatch(b, batch.None, 16).Records(batch.MaxDecompressedBytes) {
			if !yield(r) {
				return
			}
		}
	})
	builder := batch.NewBuilder(batch.BuilderOptions{})
	b.ReportAllocs()
	for b.Loop() {
		builder.Reset(batch.BuilderOptions{})
		for _, r := range records {
			builder.Add(batch.NewRecord{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value})
		}
		if _, err := builder.Build(); err != nil {
			b.Fatal(err)
		}
	}
}
