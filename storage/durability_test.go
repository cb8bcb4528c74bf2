package storage

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
	"github.com/perigeemq/perigee/storage/vfs"
)

// A partition whose first append is queued, and not entered yet, belongs to the
// checkpoint: the journal in front of it will not be replayed.
func TestACheckpointWaitsForAFirstAppend(t *testing.T) {
	e := open(t, vfs.NewMemory())
	p := part(t, e, 1)
	a := Append{Partition: p, Batch: plain("x")}
	p.mu.Lock()
	items := make([]staged, 1)
	if err := e.stage(&items[0], &a, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := e.write(items); err != nil {
		t.Fatal(err)
	}
	pending, err := e.enqueue(items)
	if err != nil {
		t.Fatal(err)
	}
	captured := make(chan int)
	go func() {
		_, _, n := e.capture()
		captured <- n
	}()
	for range 1000 { // the capture meets the append under way
		runtime.Gosched()
	}
	e.commit(items, 0)
	p.mu.Unlock()
	if n := <-captured; n != 1 {
		t.Errorf("%d partitions captured", n)
	}
	if err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// kill -9 between the journal's write and its sync leaves an entry that a restart
// reads from the page cache and shows. Then it must not get lost any more.
func TestWhatARestartHasShownSurvivesThePowerCut(t *testing.T) {
	for name, size := range map[string]int{"inline": 10, "by reference": 300} {
		t.Run(name, func(t *testing.T) {
			memory := vfs.NewMemory()
			small := func(o *Options) { o.ReferenceThreshold = 200 }
			killed := process{vfs.NewFault(memory)}
			e := open(t, killed, small)
			put(t, e, Append{Partition: part(t, e, 1), Batch: plain("x")})
			value := strings.Repeat("y", size)
			killed.AfterEach(func(ev vfs.Event) {
				if ev.Op == vfs.OpWrite && strings.HasSuffix(ev.Name, ".journal") {
					killed.StopAfter(0)
				}
			})
			pending, err := e.Append(Append{Partition: part(t, e, 1), Batch: plain(value)})
			if err != nil {
				t.Fatal(err)
			}
			if err := pending.Wait(t.Context()); err == nil {
				t.Fatal("acknowledged by a process that was killed")
			}
			e = open(t, process{vfs.NewFault(memory)}, small)
			shown := values(t, part(t, e, 1))
			e = open(t, memory.Crash(nil), small)
			if got := values(t, part(t, e, 1)); len(got) != len(shown) || len(shown) != 2 {
				t.Errorf("%d records, %d were shown before", len(got), len(shown))
			}
		})
	}
}

// A reader may be the one who closes another segment's file, and so the one who
// learns that its bytes are lost.
func TestAFailedSyncOfAnEvictedFilePoisonsTheEngine(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	poisoned := make(chan error, 1)
	e := open(t, fault, func(o *Options) {
		o.MaxOpenFiles = 1
		o.Events.Poisoned = func(err error) { poisoned <- err }
	})
	a, b := part(t, e, 1), part(t, e, 2)
	put(t, e, Append{Partition: a, Batch: plain("a")})
	put(t, e, Append{Partition: b, Batch: plain("b")})
	fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.log", Err: errors.New("I/O error"), DropDirty: true})
	r, err := a.Read(ReadRequest{MaxBytes: 1000})
	if err == nil && r.Slice != nil {
		r.Slice.Release()
	}
	fault.Clear()
	if err := e.checkpoint(t.Context(), 0); !errors.Is(err, ErrPoisoned) {
		t.Errorf("checkpoint after bytes were lost: %v", err)
	}
	if _, err := e.Append(Append{Partition: b, Batch: plain("c")}); !errors.Is(err, ErrPoisoned) {
		t.Errorf("append after bytes were lost: %v", err)
	}
	<-poisoned
}

// Runs too short to fill half a journal must not let it grow for ever.
func TestManyShortRunsTakeACheckpoint(t *testing.T) {
	memory := vfs.NewMemory()
	for range 8 {
		e := open(t, process{vfs.NewFault(memory)}, func(o *Options) { o.JournalFileBytes, o.JournalBytes = 16<<10, 64<<10 })
		for range 10 {
			put(t, e, Append{Partition: part(t, e, 1), Batch: plain(string(make([]byte, 1000)))})
		}
		memory = memory.Crash(nil)
	}
	open(t, memory, func(o *Options) { o.JournalFileBytes, o.JournalBytes = 16<<10, 64<<10 })
	within(t, "a checkpoint", func() bool { return len(names(t, memory, ".", "checkpoint-")) > 0 })
}

// What a checkpoint that failed did not name may still be named by the one before.
func TestAFailedCheckpointDoesNotCount(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("x")})
	if err := e.checkpoint(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	listed := e.checkpoints.begun.Load()
	fault.Add(vfs.Rule{Op: vfs.OpCreate, Name: "checkpoint-*", Err: errors.New("no space"), Times: 1})
	if err := e.checkpoint(t.Context(), 0); err == nil {
		t.Fatal("written without space")
	}
	if err := e.checkpoint(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if taken := e.checkpoints.taken.Load(); taken >= listed+2 {
		t.Errorf("checkpoint %d is the first after %d", taken, listed)
	}
}

// Without fsync a power cut takes what was not written yet, and nothing else: not the
// checkpoint's ability to find its place.
func TestWithoutFsyncAPowerCutLosesTheTailOnly(t *testing.T) {
	memory := vfs.NewMemory()
	e := open(t, memory, func(o *Options) { o.Durability = OS })
	p := part(t, e, 1)
	for range 10 {
		put(t, e, Append{Partition: p, Batch: plain("x")})
	}
	if err := e.checkpoint(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	put(t, e, Append{Partition: p, Batch: plain("y")})
	e, err := tryOpen(t, memory.Crash(nil))
	if err != nil {
		t.Fatalf("open after a power cut: %v", err)
	}
	if got := values(t, part(t, e, 1)); len(got) < 10 {
		t.Errorf("%v survived a checkpoint", got)
	}
}

// An index file may describe appends that a crash took back. What is appended
// instead must not be looked for where they stood.
func TestAnIndexOfWhatACrashTookBackIsNotUsed(t *testing.T) {
	memory := vfs.NewMemory()
	fault := vfs.NewFault(memory)
	e := open(t, process{fault})
	p := part(t, e, 1)
	fill := func(e *Engine, n, size int) {
		for range n {
			put(t, e, Append{Partition: part(t, e, 1), Batch: plain(strings.Repeat("x", size))})
		}
	}
	fill(e, 40, 2000)
	if err := e.checkpoint(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.journal", Err: errors.New("the end")})
	var lost *Pending
	for range 40 {
		pending, err := e.Append(Append{Partition: p, Batch: plain(strings.Repeat("x", 2000))})
		if err != nil {
			break
		}
		lost = pending
	}
	if err := lost.Wait(t.Context()); err == nil {
		t.Fatal("the journal was written")
	}
	// As a roll does, or Close.
	if err := p.segments()[0].SaveIndex(math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	e = open(t, process{vfs.NewFault(memory)})
	fill(e, 300, 700)
	if err := e.checkpoint(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	memory = memory.Clone()
	e = open(t, memory)
	p = part(t, e, 1)
	for from := range p.Bounds().High {
		r, err := p.Read(ReadRequest{From: from, MaxBytes: 3000, MinOneBatch: true})
		if err != nil {
			t.Fatalf("read from %d: %v", from, err)
		}
		b, err := r.Slice.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		r.Slice.Release()
		if v, _, err := batch.Parse(b); err != nil || v.BaseOffset() != from {
			t.Fatalf("read from %d begins at %d: %v", from, v.BaseOffset(), err)
		}
	}
}

// Growing a topic may be refused after the handles of its new partitions were made.
// They are deleted, and must be there for the next try.
func TestAPartitionThatHeldNothingIsOpenedAgain(t *testing.T) {
	e := open(t, vfs.NewMemory())
	p := part(t, e, 1)
	if err := e.Delete(key(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Append(Append{Partition: p, Batch: plain("x")}); !errors.Is(err, ErrPartitionDeleted) {
		t.Errorf("append to the deleted handle: %v", err)
	}
	p = part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("x")})
	p.SetConfig(PartitionConfig{FileDeleteDelay: time.Hour})
	if err := e.Delete(key(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.OpenPartition(key(1), "topic-1", PartitionConfig{}); !errors.Is(err, ErrPartitionDeleted) {
		t.Errorf("open while its files are there: %v", err)
	}
}

// Somebody who opens connections until the process has no descriptor left must not
// take partitions out of service: the shortage passes.
func TestWithoutDescriptorsAPartitionIsRefusedAndComesBack(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault, func(o *Options) { o.MaxOpenFiles = 1 })
	a, b := part(t, e, 1), part(t, e, 2)
	large := strings.Repeat("x", 20_000) // nothing that gathers in memory
	put(t, e, Append{Partition: a, Batch: plain(large)})
	put(t, e, Append{Partition: b, Batch: plain(large)})
	fault.Add(vfs.Rule{Op: vfs.OpOpen, Name: "*.log", Err: syscall.EMFILE})
	if _, err := a.Read(ReadRequest{MaxBytes: 1000}); !errors.Is(err, ErrStorageFull) {
		t.Errorf("read: %v", err)
	}
	if _, err := e.Append(Append{Partition: a, Batch: plain(large)}); !errors.Is(err, ErrStorageFull) {
		t.Errorf("append: %v", err)
	}
	fault.Clear()
	put(t, e, Append{Partition: a, Batch: plain(large)})
	if got := values(t, a); len(got) != 2 {
		t.Errorf("%d records", len(got))
	}
}

// A reader may be the one who has to bring the last small batches to the file. It is
// told when there is no room for them, and the partition stays.
func TestAReadOnAFullDiskSaysSo(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("a")})
	put(t, e, Append{Partition: p, Batch: plain("b")})
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.log", Err: syscall.ENOSPC})
	if _, err := p.Read(ReadRequest{MaxBytes: 1000}); !errors.Is(err, ErrStorageFull) {
		t.Errorf("read on a full disk: %v", err)
	}
	fault.Clear()
	if got := values(t, p); len(got) != 2 {
		t.Errorf("read %v", got)
	}
}

// DeleteRecords may cut a batch in the middle. The largest timestamp is looked for
// among the records that are left.
func TestTheLargestTimestampIsOfARecordThatIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		rest, behind model.Timestamp // of the record left of the cut batch, of the next batch
		want         model.Offset
	}{
		"in the cut batch": {1000, 500, 1},
		"behind it":        {1000, 1500, 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, vfs.NewMemory())
			p := part(t, e, 1)
			for _, times := range [][]model.Timestamp{{2000, c.rest}, {c.behind}} {
				b := batch.NewBuilder(batch.BuilderOptions{})
				for _, ts := range times {
					b.Add(batch.NewRecord{Timestamp: ts, Value: []byte("x")})
				}
				v, err := b.Build()
				if err != nil {
					t.Fatal(err)
				}
				put(t, e, Append{Partition: p, Batch: v})
			}
			pending, _, err := p.DeleteRecords(1)
			if err != nil || pending.Wait(t.Context()) != nil {
				t.Fatalf("delete records: %v", err)
			}
			if found, ok, err := p.MaxTimestamp(model.ReadUncommitted); err != nil || !ok || found.Offset != c.want {
				t.Errorf("found %+v, %v, %v; want offset %d", found, ok, err, c.want)
			}
		})
	}
}

// A compaction that a crash has interrupted leaves a file that ends anywhere. A
// repair must not take it for the log.
func TestARepairDoesNotPreferWhatACompactionLeft(t *testing.T) {
	memory := vfs.NewMemory()
	e := open(t, process{vfs.NewFault(memory)})
	p := part(t, e, 1)
	fill := func() {
		for range 10 {
			put(t, e, Append{Partition: p, Batch: plain("x")})
		}
	}
	fill()
	last := p.segments()[0]
	if !p.roll(last, last.Meta().Next) {
		t.Fatal("not rolled")
	}
	fill()
	if err := e.checkpoint(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, last.Size()/2)
	if err := last.Read(head, 0); err != nil {
		t.Fatal(err)
	}
	rest, err := memory.Create(p.dir + "/" + segment.ID{Generation: 1}.LogName())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rest.WriteAt(head, 0); err != nil {
		t.Fatal(err)
	}
	edit(t, memory, p.segments()[1].Path(), cut(1)) // the damage that needs the repair
	e = open(t, memory, func(o *Options) { o.Repair = true })
	if b := part(t, e, 1).Bounds(); b.Start != 0 || b.High != 20 {
		t.Errorf("bounds %+v, want 0 to 20", b)
	}
	if got := values(t, part(t, e, 1)); len(got) != 19 {
		t.Errorf("%d records, want 19", len(got))
	}
}
