// Package storage is the log engine: one journal that makes records durable, many
// segments that make them readable. It stores what others have decided and knows
// nothing of clients, topics' names or groups.
//
// # A data directory
//
//	LOCK                       held by the process that has it open
//	identity.json              cluster id, number of starts, whether the last one was stopped, checksum
//	checkpoint-…               what is safe outside the journal; the newest two
//	journal/….journal          the one write-ahead log; see package journal
//	topics/ID/PARTITION/       ID is the topic's, in URL-safe base64
//	    00000000000000000000.log, .index …    see package segment
//	topics/ID/PARTITION.aside  of no topic, when a repair looked; nothing reads it
//
// A partition without records has no directory.
//
// # How a batch travels
//
//	Append ─► check every item ─► write to the segment ─► queue in the journal ─► return
//	          (nothing changes)   (memory, page cache)     (order fixed)
//	                                                           │
//	          visible, Pending done ◄─ in journal order ◄─ writev + fdatasync, for all at once
//
// A large batch is not in the journal a second time: its entry names segment,
// position and checksum, and the flusher syncs the segment first. Small ones gather in
// memory and reach the segment's file together, at the latest when it is read.
//
// # What is promised
//
//   - A call to Append is atomic over partitions: after a crash all of it exists or
//     none of it.
//   - What a Pending has reported survives the power. What a reader has seen does too:
//     High, Stable and the list of aborted transactions follow the syncs.
//   - Offsets are dense when appended and mean the same record for ever.
//   - A refused call leaves no trace.
//   - After a failed sync nothing is acknowledged any more and the process has to end.
//
// # Two views of a partition
//
//	sequenced   what Append has fixed                 guarded by the append lock
//	visible     what the journal has made durable     guarded by vis, followed by readers
//
//	start ≤ stable ≤ high ≤ end
//	  │        │        │      └ next offset           sequenced
//	  │        │        └ durable end                  ┐
//	  │        └ first offset of an open transaction   │ visible, moved together
//	  └ DeleteRecords, retention                       ┘
//
// # Locks
//
// In this order: Engine.checkpoints → append locks (Partition.mu, ascending seq) →
// Engine.partitions → Partition.vis → segment tail → segment handle → everything else
// (index, meta, file cache, scheduler, reaper, outbox, space, the journal's own), which
// are leaves.
//
// Append locks are held over checks, offset assignment, the segment write and the
// queueing, never over a sync of the journal; queueing waits while too much is
// queued, which the flusher ends without taking one. Callbacks run without locks.
//
// There is one sync an append may wait for: an append that opens a segment's file when
// MaxOpenFiles are open closes another one, and one that was written to is synced
// before it is closed, under the append lock of the partition that needed the room. It
// cannot be left for later: the system may forget a failed write with the last handle
// of its file, and the checkpoint would take the bytes for safe. Nor can it be left to
// a worker: until the worker has come to it the limit, which is the process's, would
// not hold. It happens only where more partitions are written to than files may be open.
//
// # Goroutines
//
//	flusher, preparer   1 each    owned by the journal, end with Close
//	workers             N fixed   checkpoints, file removal, retention, compaction, expiry, events; end with Close
//	segment syncs       ≤ 4       during a checkpoint or a flush with references, awaited there
//
// None per partition, reader or waiter.
//
// # What is left to others
//
// Validation of record batches (package batch), decisions about transactions and
// groups (coordinators), permissions, quotas and the wire (front ends).
package storage
