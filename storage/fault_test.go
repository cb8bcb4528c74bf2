package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// limited lets a test say how much space is free.
type limited struct {
	vfs.FS
	free atomic.Int64
}

func (l *limited) Free() (int64, int64, error) { return l.free.Load(), 1 << 40, nil }

// told is what the events said of the space, in order.
type told struct {
	sync.Mutex
	said []string
}

func (w *told) listen(e *Events) {
	say := func(what string) func(int64) {
		return func(int64) {
			w.Lock()
			defer w.Unlock()
			w.said = append(w.said, what)
		}
	}
	e.StorageFull, e.StorageFree = say("full"), say("free")
}

func (w *told) String() string {
	w.Lock()
	defer w.Unlock()
	return fmt.Sprint(w.said)
}

func (w *told) is(want ...string) bool {
	w.Lock()
	defer w.Unlock()
	return slices.Equal(w.said, want)
}

// openLimited opens an engine that keeps 1 MiB free of 1 GiB.
func openLimited(t *testing.T) (*limited, *Engine, *told) {
	t.Helper()
	fs, events := &limited{FS: vfs.NewMemory()}, new(told)
	fs.free.Store(1 << 30)
	return fs, open(t, fs, func(o *Options) {
		o.ReserveBytes = 1 << 20
		events.listen(&o.Events)
	}), events
}

func TestAppendsAreRefusedBeforeTheDiskIsFull(t *testing.T) {
	fs, e, events := openLimited(t)
	p, facts := part(t, e, 1), part(t, e, 2)
	put(t, e, Append{Partition: p, Batch: transactional(7, 0, 0, "x"), Txn: TxnOpen})

	client := Append{Partition: p, Batch: plain(strings.Repeat("x", 200_000))}
	fact := Append{Partition: facts, Batch: plain("fact"), Internal: true}
	end := []Append{{Partition: p, Batch: marker(7, 0, batch.Abort), Internal: true}, fact}
	fs.free.Store(1<<20 - 1)
	if _, err := e.Append(client); !errors.Is(err, ErrStorageFull) {
		t.Errorf("below the reserve: %v", err)
	}
	put(t, e, fact)
	fs.free.Store(1 << 18)
	if _, err := e.Append(fact); !errors.Is(err, ErrStorageFull) {
		t.Errorf("a fact below half of the reserve: %v", err)
	}
	deletion := fact
	deletion.Frees = true
	put(t, e, deletion)
	put(t, e, end...)
	if b := p.Bounds(); b.Stable != 2 {
		t.Errorf("bounds after the end of the transaction: %+v", b)
	}
	if got := values(t, p); len(got) != 2 {
		t.Errorf("read %v", got)
	}
	pending, _, err := p.DeleteRecords(1)
	if err != nil || pending.Wait(t.Context()) != nil {
		t.Errorf("delete records: %v", err)
	}
	fs.free.Store(1 << 30)
	put(t, e, client)
	if !events.is("full", "free") {
		t.Errorf("events %v", events)
	}
}

// A batch is refused when it would reach into the reserve, also when the reserve
// is whole without it: whoever is refused finds the event that says why. Near the
// edge the state does not change with every batch.
func TestARefusalAtTheEdgeIsAnEvent(t *testing.T) {
	fs, e, events := openLimited(t)
	p := part(t, e, 1)
	large := Append{Partition: p, Batch: plain(strings.Repeat("x", 200_000))}
	fs.free.Store(1<<20 + 100_000)
	for range 3 {
		if _, err := e.Append(large); !errors.Is(err, ErrStorageFull) {
			t.Fatalf("a batch of 200000 bytes 100000 above the reserve: %v", err)
		}
		put(t, e, Append{Partition: p, Batch: plain("small")})
	}
	if !events.is("full") {
		t.Errorf("events %v", events)
	}
}

// The disk fills up or has room again while nobody appends: the state follows,
// also when the last append was taken at the edge.
func TestTheStateOfTheSpaceFollowsWithoutAppends(t *testing.T) {
	fs, e, events := openLimited(t)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("a")})
	fs.free.Store(1 << 10) // somebody else
	e.jobs.kick(jobSpace)
	within(t, "full", func() bool { return events.is("full") })
	if _, err := e.Append(Append{Partition: p, Batch: plain("b")}); !errors.Is(err, ErrStorageFull) {
		t.Errorf("append without room: %v", err)
	}
	fs.free.Store(1<<20 + 1<<10)
	put(t, e, Append{Partition: p, Batch: plain("c")})
	if !events.is("full") {
		t.Errorf("at the edge: events %v", events)
	}
	fs.free.Store(1 << 30)
	within(t, "free again", func() bool { return events.is("full", "free") })
	if e.Stats().StorageLow {
		t.Error("the storage is still low")
	}
}

// Not one byte is free, because of somebody else: what is deleted frees space
// nevertheless, though that takes checkpoints, which take space.
func TestADeletionWithoutAnySpaceFreesSome(t *testing.T) {
	memory := vfs.NewMemory()
	e := open(t, memory, func(o *Options) {
		o.JournalFileBytes, o.JournalBytes, o.ReserveBytes = 64<<10, 256<<10, -1
	})
	kept, doomed := part(t, e, 1), part(t, e, 2)
	for range 100 {
		put(t, e, Append{Partition: kept, Batch: plain(strings.Repeat("k", 5000))}, Append{Partition: doomed, Batch: plain(strings.Repeat("d", 5000))})
	}
	for range 2 { // after which the journal has files to spare
		if err := e.checkpoint(t.Context(), e.jobs.id()); err != nil {
			t.Fatal(err)
		}
	}
	dir := doomed.dir
	free, total, err := memory.Free()
	if err != nil {
		t.Fatal(err)
	}
	memory.SetTotal(total - free)
	if free, _, _ := memory.Free(); free != 0 {
		t.Fatalf("%d bytes are free", free)
	}
	if err := e.Delete(doomed.tp); err != nil {
		t.Fatal(err)
	}
	within(t, "files of the deleted partition gone", func() bool {
		_, err := memory.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
	put(t, e, Append{Partition: kept, Batch: plain("more")})
	if got := values(t, kept); len(got) != 101 {
		t.Errorf("%d records", len(got))
	}
}

func TestAWriteWithoutSpaceLeavesThePartitionAsItWas(t *testing.T) {
	memory := vfs.NewMemory()
	fault := vfs.NewFault(memory)
	e := open(t, fault)
	a, b := part(t, e, 1), part(t, e, 2)
	value := strings.Repeat("v", 20<<10) // small ones gather in memory
	both := func() []Append {
		return []Append{{Partition: a, Batch: plain(value)}, {Partition: b, Batch: plain(value)}}
	}
	for round := range 3 {
		put(t, e, both()...)
		// The first batch is written whole, the second in part.
		fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.log", After: 1, Times: 1, Err: syscall.ENOSPC, Short: 10})
		_, err := e.Append(both()...)
		if at, ok := errors.AsType[*AppendError](err); !errors.Is(err, ErrStorageFull) || !ok || at.Index != 1 {
			t.Fatalf("round %d: %v", round, err)
		}
		fault.Clear()
		for _, p := range []*Partition{a, b} {
			size, err := memory.Stat(p.segments()[0].Path())
			if err != nil || size.Size != p.segments()[0].Size() || p.Bounds().End != model.Offset(round+1) {
				t.Errorf("round %d: %d bytes in the file, %d in the log, bounds %+v: %v", round, size.Size, p.segments()[0].Size(), p.Bounds(), err)
			}
		}
	}
	put(t, e, both()...)
	e = open(t, memory.Crash(nil))
	if got := values(t, part(t, e, 2)); len(got) != 4 {
		t.Errorf("recovered %v", got)
	}
}

// Small batches reach their file when somebody reads: then the reader meets what
// is wrong with the disk.
func TestAReaderThatCannotWriteTheTail(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("first")})
	values(t, p) // the file is there
	put(t, e, Append{Partition: p, Batch: plain("in memory")})
	read := func() error {
		r, err := p.Read(ReadRequest{From: 1, MaxBytes: 1 << 20, MinOneBatch: true})
		if r.Slice != nil {
			r.Slice.Release()
		}
		return err
	}
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.log", Times: 1, Err: syscall.ENOSPC})
	if err := read(); !errors.Is(err, ErrStorageFull) {
		t.Errorf("without space: %v", err)
	}
	if got := values(t, p); len(got) != 2 {
		t.Errorf("with space again: %v", got)
	}
	fault.Clear()
	put(t, e, Append{Partition: p, Batch: plain("in memory, too")})
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.log", Times: 1, Err: syscall.EIO})
	if err := read(); !errors.Is(err, ErrPartitionOffline) {
		t.Errorf("on a broken disk: %v", err)
	}
}

func TestAReadErrorTakesThePartitionOffline(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("x")})
	fault.Add(vfs.Rule{Op: vfs.OpRead, Name: "*.log", Times: 1, Err: syscall.EIO})
	err := p.Scan(t.Context(), 0, func(batch.View) error { return nil })
	if !errors.Is(err, ErrPartitionOffline) || !errors.Is(p.Err(), ErrPartitionOffline) {
		t.Errorf("%v, then %v", err, p.Err())
	}
}

func TestAFailedFirstWriteLeavesNoPartitionBehind(t *testing.T) {
	memory := vfs.NewMemory()
	fault := vfs.NewFault(memory)
	e := open(t, fault)
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.log", Times: 1, Err: syscall.ENOSPC, Short: 10})
	p := part(t, e, 1)
	if _, err := e.Append(Append{Partition: p, Batch: plain("x")}); !errors.Is(err, ErrStorageFull) {
		t.Fatal(err)
	}
	if len(e.Known()) != 0 || p.Stats().Segments != 0 {
		t.Errorf("known %v, stats %+v", e.Known(), p.Stats())
	}
	put(t, e, Append{Partition: p, Batch: plain("y")})
	if got := values(t, p); !slices.Equal(got, []string{"0:y"}) {
		t.Errorf("read %v", got)
	}
}

func TestAnUnwritableSegmentTakesOnePartitionOffline(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	var offline atomic.Int64
	e := open(t, fault, func(o *Options) {
		o.Events.PartitionOffline = func(model.TopicPartition, error) { offline.Add(1) }
	})
	a, b := part(t, e, 1), part(t, e, 2)
	put(t, e, Append{Partition: a, Batch: plain("x")}, Append{Partition: b, Batch: plain("x")})
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.log", Times: 1, Err: syscall.EIO})
	large := plain(strings.Repeat("v", 20<<10)) // small ones gather in memory
	if _, err := e.Append(Append{Partition: a, Batch: large}); !errors.Is(err, ErrPartitionOffline) || !errors.Is(err, syscall.EIO) {
		t.Errorf("append: %v", err)
	}
	if _, err := e.Append(Append{Partition: a, Batch: plain("x")}); !errors.Is(err, ErrPartitionOffline) {
		t.Errorf("append again: %v", err)
	}
	put(t, e, Append{Partition: b, Batch: plain("x")})
	within(t, "the event", func() bool { return offline.Load() == 1 })
}

func TestAFailedSyncPoisonsTheEngine(t *testing.T) {
	for name, sync := range map[string]string{"of the journal": "*.journal", "of a referenced segment": "*.log"} {
		t.Run(name, func(t *testing.T) {
			memory := vfs.NewMemory()
			fault := vfs.NewFault(memory)
			poisoned := make(chan error, 2)
			e := open(t, fault, func(o *Options) {
				o.ReferenceThreshold = 500
				o.Events.Poisoned = func(err error) { poisoned <- err }
			})
			p := part(t, e, 1)
			put(t, e, Append{Partition: p, Batch: plain("kept")})
			fault.Add(vfs.Rule{Op: vfs.OpSync, Name: sync, Times: 1, Err: errTest, DropDirty: true})
			pending, err := e.Append(Append{Partition: p, Batch: plain(strings.Repeat("x", 1000))})
			if err != nil {
				t.Fatal(err)
			}
			if err := pending.Wait(t.Context()); !errors.Is(err, ErrPoisoned) || !errors.Is(err, errTest) {
				t.Errorf("the waiter got %v", err)
			}
			if err := <-poisoned; !errors.Is(err, errTest) {
				t.Errorf("the event says %v", err)
			}
			if _, err := e.Append(Append{Partition: p, Batch: plain("x")}); !errors.Is(err, ErrPoisoned) {
				t.Errorf("the next append got %v", err)
			}
			if b := p.Bounds(); b.High != 1 {
				t.Errorf("visible beyond what is durable: %+v", b)
			}
			if err := e.Close(t.Context()); !errors.Is(err, ErrPoisoned) {
				t.Errorf("close: %v", err)
			}
			again := open(t, memory.Crash(nil))
			if got := values(t, part(t, again, 1)); len(got) == 0 || got[0] != "0:kept" || again.Identity().CleanStart {
				t.Errorf("recovered %v, %+v", got, again.Identity())
			}
		})
	}
}

func TestAFailedSyncOfACheckpointPoisonsTheEngine(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	poisoned := make(chan error, 2)
	e := open(t, fault, func(o *Options) { o.Events.Poisoned = func(err error) { poisoned <- err } })
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("x")})
	fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.log", Times: 1, Err: errTest})
	if err := e.checkpoint(t.Context(), 0); !errors.Is(err, ErrPoisoned) {
		t.Errorf("checkpoint: %v", err)
	}
	if err := <-poisoned; !errors.Is(err, errTest) {
		t.Errorf("the event says %v", err)
	}
	if _, err := e.Append(Append{Partition: p, Batch: plain("x")}); !errors.Is(err, ErrPoisoned) {
		t.Errorf("append: %v", err)
	}
}
