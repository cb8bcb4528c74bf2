package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

func TestOneRefusalRefusesTheWholeCall(t *testing.T) {
	e := open(t, vfs.NewMemory())
	a, b := part(t, e, 1), part(t, e, 2)
	put(t, e, Append{Partition: a, Batch: idempotent(7, 3, 0, "x")})
	for name, c := range map[string]struct {
		bad  Append
		want error
	}{
		"gap in the sequence":        {Append{Partition: a, Batch: idempotent(7, 3, 5, "x")}, ErrOutOfOrderSequence},
		"stale producer epoch":       {Append{Partition: a, Batch: idempotent(7, 2, 1, "x")}, ErrStaleProducerEpoch},
		"stale leader epoch":         {Append{Partition: a, Batch: plain("x"), LeaderEpoch: 99}, ErrStaleLeaderEpoch},
		"no transaction":             {Append{Partition: a, Batch: transactional(7, 3, 1, "x"), Txn: TxnContinue}, ErrTxnNotOpen},
		"marker from outside":        {Append{Partition: a, Batch: marker(7, 3, batch.Commit)}, ErrInvalidTxnState},
		"two producers in one call":  {Append{Partition: b, Batch: idempotent(9, 0, 0, "x")}, ErrInvalidTxnState},
		"unknown producer, strictly": {Append{Partition: a, Batch: transactional(8, 0, 2, "x"), Txn: TxnOpen, Strict: true}, ErrOutOfOrderSequence},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.Append(Append{Partition: b, Batch: idempotent(8, 0, 0, "y")}, c.bad)
			at, ok := errors.AsType[*AppendError](err)
			if !errors.Is(err, c.want) || !ok || at.Index != 1 {
				t.Fatalf("%v, want item 1 refused with %v", err, c.want)
			}
			if a.Bounds().End != 1 || b.Bounds().End != 0 || len(b.Producers()) != 0 || len(e.Known()) != 1 {
				t.Errorf("left a trace: %+v, %+v, %v", a.Bounds(), b.Bounds(), b.Producers())
			}
		})
	}
}

func TestAPartitionMayOccurSeveralTimesInACall(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	a, b := part(t, e, 1), part(t, e, 2, func(c *PartitionConfig) { c.SegmentBytes = 150 })
	pending := put(t, e,
		Append{Partition: b, Batch: plain("0")}, Append{Partition: a, Batch: plain("x")},
		Append{Partition: b, Batch: transactional(7, 0, 0, "1", "2"), Txn: TxnOpen}, Append{Partition: b, Batch: plain("3")}, Append{Partition: b, Batch: plain("4")})
	if at := pending.At(3); at.Base != 3 || at.Last != 3 {
		t.Errorf("the fourth item went to %+v", at)
	}
	if got := b.Bounds(); got.Stable != 1 || got.High != 5 {
		t.Errorf("bounds %+v, want the transaction at 1 to hold back the rest", got)
	}
	want := []string{"0:0", "1:1", "2:2", "3:3", "4:4"}
	if got := values(t, b); !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	again := open(t, fs.Crash(nil))
	if got := values(t, part(t, again, 2)); !slices.Equal(got, want) {
		t.Errorf("recovered %v, want %v", got, want)
	}
}

// A duplicate in a joint call is left out, the rest goes through.
func TestADuplicateInsideACallIsLeftOut(t *testing.T) {
	e := open(t, vfs.NewMemory())
	a, b := part(t, e, 1), part(t, e, 2)
	put(t, e, Append{Partition: a, Batch: idempotent(7, 0, 0, "first")})
	pending := put(t, e,
		Append{Partition: a, Batch: plain("before")}, Append{Partition: a, Batch: idempotent(7, 0, 0, "first")},
		Append{Partition: a, Batch: plain("behind")}, Append{Partition: b, Batch: plain("other")})
	if d := pending.At(1); !d.Duplicate || d.Base != 0 {
		t.Errorf("the duplicate: %+v", d)
	}
	if got, want := values(t, a), []string{"0:first", "1:before", "2:behind"}; !slices.Equal(got, want) || len(values(t, b)) != 1 {
		t.Errorf("read %v, want %v", got, want)
	}
	pending = put(t, e, Append{Partition: a, Batch: idempotent(7, 0, 0, "first")}, Append{Partition: b, Batch: plain("x")})
	if !pending.At(0).Duplicate || pending.At(1).Base != 1 || a.Bounds().End != 3 {
		t.Errorf("%+v, %+v", pending.At(0), pending.At(1))
	}
}

func TestConcurrentAppendsShareSyncs(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault, func(o *Options) { o.JournalFileBytes = 8 << 20 })
	fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.journal", Delay: 2e6})
	const writers, each = 32, 20
	before := fault.Count(vfs.OpSync)
	var wg sync.WaitGroup
	for w := range writers {
		p := part(t, e, w)
		wg.Go(func() {
			for range each {
				put(t, e, Append{Partition: p, Batch: plain("x")})
			}
		})
	}
	wg.Wait()
	if n := fault.Count(vfs.OpSync) - before; n > writers*each/4 {
		t.Errorf("%d syncs for %d appends by %d writers", n, writers*each, writers)
	}
}

func TestAllFiveRememberedBatchesAreDuplicatesAfterEveryRestart(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	p := part(t, e, 1)
	for i := range model.Sequence(6) {
		put(t, e, Append{Partition: p, Batch: idempotent(7, 0, 2*i, "a", "b")})
	}
	check := func(e *Engine, how string) {
		t.Helper()
		p := part(t, e, 1)
		for i := model.Sequence(1); i < 6; i++ {
			at := put(t, e, Append{Partition: p, Batch: idempotent(7, 0, 2*i, "a", "b")}).At(0)
			if !at.Duplicate || at.Base != model.Offset(2*i) || at.Last != at.Base+1 {
				t.Errorf("%s: batch %d again: %+v", how, i, at)
			}
		}
		if _, err := e.Append(Append{Partition: p, Batch: idempotent(7, 0, 0, "a", "b")}); !errors.Is(err, ErrOutOfOrderSequence) {
			t.Errorf("%s: the sixth last again: %v", how, err)
		}
		if b := p.Bounds(); b.End != 12 {
			t.Errorf("%s: bounds %+v", how, b)
		}
	}
	check(e, "at once")
	check(open(t, fs.Crash(nil)), "after a crash")
	shut(t, e)
	check(open(t, fs), "after a clean stop")
}

// A duplicate is acknowledged when its original is durable, not before.
func TestADuplicateWaitsForItsOriginal(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault)
	p := part(t, e, 1)
	release := blockSyncs(t, fault)
	first, err := e.Append(Append{Partition: p, Batch: idempotent(7, 0, 0, "a")})
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.Append(Append{Partition: p, Batch: idempotent(7, 0, 0, "a")})
	if err != nil || !again.At(0).Duplicate {
		t.Fatalf("%+v, %v", again, err)
	}
	select {
	case <-again.Done():
		t.Fatal("acknowledged before the original")
	default:
	}
	if b := p.Bounds(); b.High != 0 || b.End != 1 {
		t.Errorf("bounds before the sync: %+v", b)
	}
	release()
	for _, pending := range []*Pending{first, again} {
		if err := pending.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// blockSyncs holds the journal's next write back until release is called.
func blockSyncs(t testing.TB, fault *vfs.Fault) (release func()) {
	gate := make(chan struct{})
	var once sync.Once
	release = func() { once.Do(func() { fault.AfterEach(nil); close(gate) }) }
	t.Cleanup(release)
	fault.AfterEach(func(ev vfs.Event) {
		if ev.Op == vfs.OpWrite && strings.HasSuffix(ev.Name, ".journal") {
			<-gate
		}
	})
	return release
}

// Stable, High and the aborted list move together; a marker that is not durable
// has no effect a reader could see.
func TestTransactionsEndForReadersWhenTheMarkerIsDurable(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("before")})
	put(t, e, Append{Partition: p, Batch: transactional(7, 0, 0, "rolled back"), Txn: TxnOpen})
	put(t, e, Append{Partition: p, Batch: transactional(8, 0, 0, "kept"), Txn: TxnOpen})
	if b := p.Bounds(); b != (model.Bounds{Stable: 1, High: 3, End: 3}) {
		t.Fatalf("bounds with two transactions: %+v", b)
	}
	release := blockSyncs(t, fault)
	pending, err := e.Append(Append{Partition: p, Batch: marker(7, 0, batch.Abort), Internal: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Append(Append{Partition: p, Batch: transactional(7, 0, 1, "late"), Txn: TxnContinue}); !errors.Is(err, ErrTxnNotOpen) {
		t.Errorf("a late batch behind the sequenced marker: %v", err)
	}
	if b := p.Bounds(); b != (model.Bounds{Stable: 1, High: 3, End: 4}) {
		t.Errorf("bounds before the marker is durable: %+v", b)
	}
	release()
	if err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b := p.Bounds(); b != (model.Bounds{Stable: 2, High: 4, End: 4}) {
		t.Errorf("bounds behind the first marker: %+v", b)
	}
	put(t, e, Append{Partition: p, Batch: marker(8, 0, batch.Commit), Internal: true})
	r, err := p.Read(ReadRequest{MaxBytes: 1 << 20, Isolation: model.ReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	r.Slice.Release()
	want := []AbortedTxn{{ProducerID: 7, First: 1, Last: 3, Stable: 2}}
	if r.Bounds.Stable != 5 || r.Next != 5 || !slices.Equal(r.Aborted, want) {
		t.Errorf("read %+v", r)
	}
	if r, err := p.Read(ReadRequest{From: 4, MaxBytes: 1 << 20, Isolation: model.ReadCommitted}); err != nil || r.Aborted == nil || len(r.Aborted) != 0 {
		t.Errorf("behind the rolled back transaction: %+v, %v", r, err)
	} else {
		r.Slice.Release()
	}
}

func TestSegmentsRollBySizeAgeAndIndex(t *testing.T) {
	for name, c := range map[string]struct {
		config PartitionConfig
		want   int
	}{
		"size":  {PartitionConfig{SegmentBytes: 200}, 5},
		"age":   {PartitionConfig{SegmentAge: 1500e6}, 5},
		"index": {PartitionConfig{SegmentIndexBytes: 16, IndexIntervalBytes: 1}, 5},
		"none":  {PartitionConfig{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newManualClock()
			e := open(t, vfs.NewMemory(), func(o *Options) { o.Now = clock.now })
			p, err := e.OpenPartition(key(1), "t", c.config)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				put(t, e, Append{Partition: p, Batch: plain(fmt.Sprint(i), "filler of a few bytes")})
				clock.add(1000)
			}
			if got := p.Stats().Segments; got != c.want {
				t.Errorf("%d segments, want %d", got, c.want)
			}
			if got := values(t, p); len(got) != 20 || got[18] != "18:9" {
				t.Errorf("read %v", got)
			}
		})
	}
}

func TestAStaleHandleIsRefused(t *testing.T) {
	e := open(t, vfs.NewMemory())
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("x"), LeaderEpoch: e.Identity().Incarnation})
	w := NewWaiter()
	p.Watch(w)
	if err := e.Delete(p.ID(), key(50)); err != nil {
		t.Fatal(err)
	}
	<-w.C()
	if _, err := e.Append(Append{Partition: p, Batch: plain("x")}); !errors.Is(err, ErrPartitionDeleted) {
		t.Errorf("append: %v", err)
	}
	if _, err := p.Read(ReadRequest{}); !errors.Is(err, ErrPartitionDeleted) {
		t.Errorf("read: %v", err)
	}
	if _, _, err := p.DeleteRecords(0); !errors.Is(err, ErrPartitionDeleted) {
		t.Errorf("delete records: %v", err)
	}
	if _, ok := e.Partition(p.ID()); ok {
		t.Error("still known")
	}
}
