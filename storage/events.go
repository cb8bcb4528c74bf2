package storage

import (
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Events are the engine's only voice: it has no logger. A nil callback is
// skipped. They are called from the engine's goroutines without locks held that
// another append or read needs, must return quickly and must not call back into
// the engine.
type Events struct {
	Recovery           func(RecoveryProgress)
	Recovered          func(RecoveryResult)
	Flushed            func(Flushed)                            // the journal made a group of entries durable
	Poisoned           func(error)                              // a sync failed: exit non-zero
	StorageFull        func(freeBytes int64)                    // appends are refused from here on
	StorageFree        func(freeBytes int64)                    // and accepted again
	PartitionOffline   func(model.TopicPartition, error)        // its files cannot be used
	CheckpointTaken    func(CheckpointInfo)                     //
	SegmentRolled      func(model.TopicPartition, model.Offset) // a new segment begins at the offset
	SegmentsDropped    func(SegmentsDropped)                    // by retention, DeleteRecords or deletion
	Compacted          func(Compacted)                          //
	BackgroundError    func(job uint64, what string, err error) // a background job gave up until its next turn
	ProducersExpired   func(model.TopicPartition, int)
	PartitionRecovered func(model.TopicPartition, string) // repaired: what was lost
}

// RecoveryProgress is reported every few megabytes of the journal.
type RecoveryProgress struct {
	JournalBytes, JournalTotal int64 // read, and to read
	Entries                    int64 // replayed
}

// Flushed describes one turn of the journal's flusher, as often as the disk
// syncs: whoever listens must be quick.
type Flushed struct {
	Entries  int
	Bytes    int64
	Segments int           // synced because entries name their bytes
	Took     time.Duration // the writes and syncs
}

// RecoveryResult is reported once, before Open returns.
type RecoveryResult struct {
	Clean        bool // nothing had to be replayed
	Partitions   int
	Entries      int64  // replayed
	JournalBytes int64  // read
	CutBytes     int64  // cut from segments: written, never acknowledged
	Tail         string // where and why the journal ends in a torn write; it was never acknowledged
	Damage       string // of the journal, overlooked because of Repair: what it held behind this is lost
	Took         time.Duration
}

// CheckpointInfo describes one checkpoint.
type CheckpointInfo struct {
	Job        uint64
	Partitions int
	Synced     int   // segment files
	Bytes      int64 // size of the checkpoint file
	Took       time.Duration
}

// SegmentsDropped says which offsets are gone and why.
type SegmentsDropped struct {
	Job       uint64
	Partition model.TopicPartition
	Reason    string
	Segments  int
	Bytes     int64
	Start     model.Offset // first offset that is left
}

// Compacted describes one pass over one partition.
type Compacted struct {
	Job                     uint64
	Partition               model.TopicPartition
	BytesBefore, BytesAfter int64
	RecordsRemoved          int64
	Took                    time.Duration
}

func (e *Events) recovery(p RecoveryProgress) {
	if e.Recovery != nil {
		e.Recovery(p)
	}
}

func (e *Events) flushed(f Flushed) {
	if e.Flushed != nil {
		e.Flushed(f)
	}
}

func (e *Events) recovered(r RecoveryResult) {
	if e.Recovered != nil {
		e.Recovered(r)
	}
}

func (e *Events) poisoned(err error) {
	if e.Poisoned != nil {
		e.Poisoned(err)
	}
}

func (e *Events) storageFull(free int64) {
	if e.StorageFull != nil {
		e.StorageFull(free)
	}
}

func (e *Events) storageFree(free int64) {
	if e.StorageFree != nil {
		e.StorageFree(free)
	}
}

func (e *Events) partitionOffline(tp model.TopicPartition, err error) {
	if e.PartitionOffline != nil {
		e.PartitionOffline(tp, err)
	}
}

func (e *Events) partitionRecovered(tp model.TopicPartition, what string) {
	if e.PartitionRecovered != nil {
		e.PartitionRecovered(tp, what)
	}
}

func (e *Events) checkpointTaken(c CheckpointInfo) {
	if e.CheckpointTaken != nil {
		e.CheckpointTaken(c)
	}
}

func (e *Events) segmentRolled(tp model.TopicPartition, base model.Offset) {
	if e.SegmentRolled != nil {
		e.SegmentRolled(tp, base)
	}
}

func (e *Events) segmentsDropped(d SegmentsDropped) {
	if e.SegmentsDropped != nil {
		e.SegmentsDropped(d)
	}
}

func (e *Events) backgroundError(job uint64, what string, err error) {
	if e.BackgroundError != nil {
		e.BackgroundError(job, what, err)
	}
}

func (e *Events) producersExpired(tp model.TopicPartition, n int) {
	if e.ProducersExpired != nil {
		e.ProducersExpired(tp, n)
	}
}
