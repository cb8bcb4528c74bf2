// Package producer remembers, for one partition, what each idempotent or
// transactional producer wrote: enough to recognise a repeated batch, a gap in the
// sequence and a stale epoch, to know where the open transactions begin, and which
// transactions were rolled back.
//
//	Table ── one entry per producer id ── epoch, coordinator epoch, last activity
//	   │                               └─ the last five data batches: sequences, offsets, timestamp
//	   │                               └─ first offset of its open transaction
//	   ├──── open transactions, by first offset          → last stable offset
//	   └──── aborted transactions, by offset of marker   → what read_committed hides
//
// One transaction in offsets (D data, A abort marker, C commit marker):
//
//	offset   0   1   2   3   4   5   6
//	pid 7    D       D   A
//	pid 9        D               C
//	stable   0   0   0   0 → 1   1   → 6       Aborted{7, First 0, Last 3, Stable 1}
//
// Deciding is apart from doing: CheckData, CheckMarker and Plan change nothing;
// Apply changes everything and refuses nothing, so that replaying the log gives
// the same table as having lived through it.
//
// A Table is not safe for concurrent use; the partition's append lock guards it.
// Slices it hands out (Plan.Aborted) are never written to again, so that readers
// keep them without a lock.
//
// Rules: KIP-98, KIP-360, KIP-890; a repeated batch is looked for before anything
// else, so that a retry succeeds after its transaction has ended.
package producer
