package batch_test

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
)

// The checksum that is put together must be the one that is computed.
func TestConcatIsTheChecksumOfTheWhole(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 7, 21, 61, 4096, 65537, 1 << 20, 3<<20 + 5} {
		b := make([]byte, n+rng.IntN(100))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		first, second := b[:len(b)-n], b[len(b)-n:]
		got := batch.Concat(crc32.Checksum(first, table), crc32.Checksum(second, table), int64(n))
		if want := crc32.Checksum(b, table); got != want {
			t.Errorf("%d and %d bytes: %08x, want %08x", len(first), n, got, want)
		}
	}
	for _, records := range []int{1, 16, 1000} {
		v := manyRecords(t, records)
		v.SetBaseOffset(123456789)
		v.SetLeaderEpoch(7)
		if got, want := v.Sum(), crc32.Checksum(v.Bytes(), table); got != want {
			t.Errorf("batch of %d records: %08x, want %08x", records, got, want)
		}
	}
}

func manyRecords(t *testing.T, n int) batch.View {
	b := batch.NewBuilder(batch.BuilderOptions{})
	for range n {
		b.Add(batch.NewRecord{Timestamp: 1, Value: make([]byte, 100)})
	}
	v, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func BenchmarkSum(b *testing.B) {
	v := benchBatch(b, batch.None, 1000)
	b.SetBytes(int64(v.Len()))
	for b.Loop() {
		v.Sum()
	}
}
