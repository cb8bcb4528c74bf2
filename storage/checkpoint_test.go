package storage

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/perigeemq/perigee/storage/vfs"
)

// A checkpoint must not say what the journal may still lose: half of a joint entry
// would come back.
func TestACheckpointWaitsForTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := vfs.NewMemory()
		fault := vfs.NewFault(memory)
		e := open(t, fault)
		a, b := part(t, e, 1), part(t, e, 2)
		put(t, e, Append{Partition: a, Batch: plain("x")}, Append{Partition: b, Batch: plain("x")})
		release := blockSyncs(t, fault)
		if _, err := e.Append(Append{Partition: a, Batch: plain("y")}, Append{Partition: b, Batch: plain("y")}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.checkpoint(t.Context(), 0) }()
		synctest.Wait()
		if found := names(t, memory, ".", "checkpoint-"); len(found) > 0 {
			t.Errorf("written before the journal's sync: %v", found)
		}
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if found := names(t, memory, ".", "checkpoint-"); len(found) != 1 {
			t.Errorf("checkpoints %v", found)
		}
		shut(t, e)
	})
}

// The journal is kept from the checkpoint before the last, and no longer.
func TestCheckpointsKeepTheJournalShort(t *testing.T) {
	memory := vfs.NewMemory()
	e := open(t, memory, func(o *Options) { o.JournalFileBytes = 16 << 10 })
	p := part(t, e, 1)
	fill := func() {
		for range 40 {
			put(t, e, Append{Partition: p, Batch: plain(string(make([]byte, 1000)))})
		}
	}
	var files []int
	for range 6 {
		fill()
		if err := e.checkpoint(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		files = append(files, e.Stats().Journal.Files)
	}
	if last := slices.Max(files[2:]); last > 2*4+1 {
		t.Errorf("journal files after each checkpoint: %v", files)
	}
}

// A checkpoint is taken by itself when the journal has grown.
func TestAGrowingJournalTakesACheckpoint(t *testing.T) {
	taken := make(chan CheckpointInfo, 100)
	e := open(t, vfs.NewMemory(), func(o *Options) {
		o.JournalFileBytes, o.JournalBytes = 16<<10, 64<<10
		o.Events.CheckpointTaken = func(c CheckpointInfo) { taken <- c }
	})
	for range 40 {
		put(t, e, Append{Partition: part(t, e, 1), Batch: plain(string(make([]byte, 1000)))})
	}
	if c := <-taken; c.Partitions != 1 || c.Synced != 1 || c.Job == 0 {
		t.Errorf("checkpoint %+v", c)
	}
}

// What the journal only refers to counts too: a crash has to verify it.
func TestReferencedBytesTakeACheckpoint(t *testing.T) {
	taken := make(chan CheckpointInfo, 100)
	e := open(t, vfs.NewMemory(), func(o *Options) {
		o.JournalBytes, o.ReferenceThreshold = 64<<10, 1<<10
		o.Events.CheckpointTaken = func(c CheckpointInfo) { taken <- c }
	})
	for range 40 {
		put(t, e, Append{Partition: part(t, e, 1), Batch: plain(string(make([]byte, 1000)))})
	}
	<-taken
	if s := e.Stats().Journal; s.Bytes > 16<<10 {
		t.Errorf("the journal itself has %d bytes", s.Bytes)
	}
}
