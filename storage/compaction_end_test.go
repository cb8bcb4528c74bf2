package storage

import (
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// Clients that read a compacted partition up to its end, to rebuild a table, get there
// whatever compaction takes away, and although nobody writes any more.
func TestCompactionLeavesAWayToTheEnd(t *testing.T) {
	tombstone := func(c clock) []Append {
		b := batch.NewBuilder(batch.BuilderOptions{})
		b.Add(batch.NewRecord{Timestamp: model.Timestamp(c.millis.Load()), Key: []byte("k")})
		v, err := b.Build()
		if err != nil {
			panic(err)
		}
		return []Append{{Batch: v}}
	}
	for name, last := range map[string]func(clock) []Append{
		"a tombstone":    tombstone,
		"two tombstones": func(c clock) []Append { return append(tombstone(c), tombstone(c)...) },
		"without key":    func(c clock) []Append { return []Append{{Batch: plain("x")}} },
		"an aborted attempt": func(c clock) []Append {
			return []Append{{Batch: transactional(9, 0, 0, "x"), Txn: TxnOpen}, {Batch: marker(9, 0, batch.Abort), Internal: true}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory, c := vfs.NewMemory(), newClock()
			e := open(t, memory, c.use)
			p := part(t, e, 1, func(pc *PartitionConfig) {
				pc.Compact, pc.MinDirtyRatio, pc.SegmentAge, pc.DeleteRetention = true, 0.01, time.Minute, time.Minute
			})
			put(t, e, Append{Partition: p, Batch: c.dated(0, "k", "v")})
			put(t, e, Append{Partition: p, Batch: c.dated(time.Hour, "other", "v")})
			for _, a := range last(c) {
				a.Partition = p
				put(t, e, a)
			}
			cleaner := newCompactor(e)
			for range 4 {
				c.advance(time.Hour)
				if err := cleaner.run(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
			for _, from := range []model.Offset{0, p.Bounds().High - 1} {
				if end := followed(t, p, from); end != p.Bounds().High {
					t.Errorf("a client that begins at %d gets to %d of %d", from, end, p.Bounds().High)
				}
			}
			if found, ok, err := p.MaxTimestamp(model.ReadUncommitted); err != nil || !ok || found.Offset != 1 {
				t.Errorf("the largest timestamp is at %+v, %v, %v", found, ok, err)
			}
			put(t, e, Append{Partition: p, Batch: c.dated(0, "new", "v")})
			shut(t, e)
			if report, err := Check(t.Context(), Options{FS: memory}); err != nil || len(report.Damage) > 0 {
				t.Errorf("the checker finds %v, %v", report, err)
			}
		})
	}
}

// followed is where a client ends that knows no more than the batches it gets.
func followed(t *testing.T, p *Partition, from model.Offset) model.Offset {
	t.Helper()
	for {
		r, err := p.Read(ReadRequest{From: from, MaxBytes: 1 << 20, MinOneBatch: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.Slice == nil {
			return from
		}
		err = scanSlice(r.Slice, func(v batch.View) error {
			from = v.NextOffset()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
