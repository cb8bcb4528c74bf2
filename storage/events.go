package storage

import (
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Events are the engine's only voice: it has no logger. A nil callback is
// skipped. They are called from the engine's goroutines without locks held,
// must return quickly and must not call back into the engine.
type Events struct {
	Recovery           func(RecoveryProgress)
	Recovered          func(RecoveryResult)
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

// RecoveryProgress is reported about once a second of work.
type RecoveryProgress struct {
	JournalBytes, JournalTotal int64
	Entries                    int64
}

// RecoveryResult is reported once, before Open returns.
type RecoveryResult struct {
	Clean        bool // nothing had to be replayed
	Partitions   int
	Entries      int64 // replayed
	JournalBytes int64 // read
	TornBytes    int64 // cut from the journal's end
	CutBytes     int64 // cut from segments: written, never acknowledged
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
