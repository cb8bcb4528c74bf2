package storage

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// TestEverythingAtOnce lets writers, readers, checkpoints, deletions and rolls meet
// on few files, and compares what is left with what was acknowledged.
func TestEverythingAtOnce(t *testing.T) {
	const writers, partitions, each = 6, 4, 150
	memory := vfs.NewMemory()
	e := open(t, memory, tiny, func(o *Options) { o.MaxOpenFiles = 3 })
	small := func(c *PartitionConfig) { c.SegmentBytes, c.IndexIntervalBytes = 1500, 100 }
	ps := make([]*Partition, partitions)
	for n := range ps {
		ps[n] = part(t, e, n, small)
	}
	var mu sync.Mutex
	acked := make([]map[model.Offset]string, partitions)
	for n := range acked {
		acked[n] = map[model.Offset]string{}
	}
	note := func(n int, o model.Offset, v string) {
		mu.Lock()
		defer mu.Unlock()
		acked[n][o] = v
	}

	var work, readers sync.WaitGroup
	var done atomic.Bool
	for w := range writers {
		work.Go(func() {
			for i := range each {
				n, v := (w+i)%partitions, fmt.Sprintf("w%d-%d", w, i)
				if i%10 == 0 { // a whole transaction on two partitions
					m := (n + 1) % partitions
					id := model.ProducerID(100 + w)
					put(t, e, Append{Partition: ps[n], Batch: transactional(id, 0, model.NoSequence, v), Txn: TxnOpen, Internal: true})
					put(t, e, Append{Partition: ps[m], Batch: transactional(id, 0, model.NoSequence, v), Txn: TxnOpen, Internal: true})
					kind := batch.MarkerType(i / 10 % 2)
					at := put(t, e, Append{Partition: ps[n], Batch: marker(id, 0, kind), Internal: true}, Append{Partition: ps[m], Batch: marker(id, 0, kind), Internal: true})
					note(n, at.At(0).Base, kind.String())
					note(m, at.At(1).Base, kind.String())
					continue
				}
				note(n, put(t, e, Append{Partition: ps[n], Batch: plain(v)}).At(0).Base, v)
			}
		})
	}
	work.Go(func() {
		for i := range 15 {
			if err := e.checkpoint(t.Context(), 0); err != nil {
				t.Error(err)
			}
			if _, _, err := ps[i%partitions].DeleteRecords(ps[i%partitions].Bounds().High / 3); err != nil {
				t.Error(err)
			}
		}
	})
	for r := range 4 {
		readers.Go(func() {
			p, iso := ps[r%partitions], model.Isolation(r%2)
			w := NewWaiter()
			p.Watch(w)
			defer p.Unwatch(w)
			from, before := model.Offset(0), model.Bounds{}
			for !done.Load() {
				read, err := p.Read(ReadRequest{From: from, MaxBytes: 700, MinOneBatch: true, Isolation: iso})
				if errors.Is(err, ErrOffsetOutOfRange) {
					from = read.Bounds.Start
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				b := read.Bounds
				if b.Start < before.Start || b.Stable < before.Stable || b.High < before.High || b.Stable > b.High || b.High > b.End {
					t.Errorf("bounds %+v after %+v", b, before)
				}
				before = b
				if read.Slice == nil {
					<-w.C()
					continue
				}
				if err := scanSlice(read.Slice, func(v batch.View) error {
					if v.LastOffset() < from || v.NextOffset() > b.Visible(iso) {
						t.Errorf("a batch at %d, asked from %d, visible %d", v.BaseOffset(), from, b.Visible(iso))
					}
					return nil
				}); err != nil {
					t.Error(err)
					return
				}
				from = read.Next
			}
		})
	}
	work.Wait()
	done.Store(true)
	for _, p := range ps { // wakes the readers
		put(t, e, Append{Partition: p, Batch: plain("last")})
	}
	readers.Wait()

	check := func(e *Engine) {
		t.Helper()
		for n := range ps {
			p := part(t, e, n, small)
			b := p.Bounds()
			if b.Stable != b.End || p.Stats().OpenTxns != 0 {
				t.Errorf("partition %d: %+v, %+v", n, b, p.Stats())
			}
			got := values(t, p)
			for o, v := range acked[n] {
				if o >= b.Start && !slices.Contains(got, fmt.Sprintf("%d:%s", o, v)) {
					t.Errorf("partition %d: %d:%s is missing", n, o, v)
				}
			}
		}
	}
	check(e)
	check(open(t, memory.Crash(nil)))
}
