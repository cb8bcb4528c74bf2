// Package journal is the one write-ahead log of a data directory: what makes a
// record durable. It owns the files journal/*.journal and the checkpoint that
// says from where they must be replayed. It knows nothing of partitions beyond
// their names: the engine above writes every append to a segment too, and reads
// it from there.
//
// # Entries
//
// An entry is a list of items that exist after a crash all together or not at
// all. Entries are queued in an order fixed by Enqueue; one flusher takes
// everything queued, writes it with one system call, syncs once and then
// completes it in order. There is no delay: an idle journal syncs a single
// entry at once, and under load entries gather behind the running sync.
//
// # Positions
//
// An LSN is a byte position in the journal's whole life, growing for ever; it
// tells where an entry starts. File headers count 0, so the LSNs of one file
// follow those of the file before without a gap:
//
//	file 7              file 8                file 9 (next, prepared)
//	┌──────┬─────────┐  ┌──────┬───────────┐  ┌──────┬───────────────┐
//	│header│ entries │  │header│ entries   │  │header│ zeros, or     │
//	│start │         │  │start │           │  │start │ the remains of│
//	│= 0   │         │  │= e7  │           │  │= -1  │ a recycled one│
//	└──────┴─────────┘  └──────┴───────────┘  └──────┴───────────────┘
//	        0 ≤ LSN < e7        e7 ≤ LSN < e8
//
// # Bytes
//
// Format version 1, all numbers big-endian, checksums CRC-32C. A file opens with
// a header padded to 4096 bytes:
//
//	 0       8         12     16       24     32          40
//	┌────────┬─────────┬──────┬────────┬──────┬───────────┬─────────┐
//	│PRGJRNL\n│version 4│crc 4 │number 8│salt 8│start LSN 8│ zeros … │
//	└────────┴─────────┴──────┴────────┴──────┴───────────┴─────────┘
//	                     crc covers the magic, the version and bytes 16 to 40
//
// Number is the one in the file's name. Salt is random and new for every use of
// the file. Start is -1 while the file is only prepared. Entries follow, each at
// a multiple of eight bytes:
//
//	 0     4        8     16       24     32          36      40
//	┌──────┬────────┬─────┬────────┬──────┬───────────┬───────┬───────────────────┬───┐
//	│crc 4 │length 4│LSN 8│synced 8│salt 8│body crc 4 │items 4│ body: length bytes│ 0 │
//	└──────┴────────┴─────┴────────┴──────┴───────────┴───────┴───────────────────┴───┘
//	   crc covers bytes 4 to 40, and so, through the body crc, the whole entry
//
// LSN must be the entry's own position and salt the file's: what an earlier use
// of a recycled file left behind matches neither. Synced is the position below
// which everything was durable when the entry was written, see below. The body is
// the items, one after the other:
//
//	 0      1        17          21     29             37         45       49
//	┌──────┬────────┬───────────┬──────┬──────────────┬──────────┬────────┬────────┐
//	│kind=1│topic 16│partition 4│base 8│segment base 8│position 8│length 4│ bytes  │ inline
//	├──────┼────────┼───────────┼──────┼──────────────┼──────────┼────────┼────────┤
//	│kind=2│topic 16│partition 4│base 8│segment base 8│position 8│length 4│ crc 4  │ by reference
//	├──────┼────────┼───────────┼──────┼──────────────┴──────────┴────────┴────────┘
//	│kind=3│topic 16│partition 4│start8│ the log starts here now (DeleteRecords)
//	└──────┴────────┴───────────┴──────┘
//
// An item by reference names bytes that stand in the segment only; the flusher
// syncs the segment before it writes the entry.
//
// # A torn tail and a hole
//
// Replay stops at the first invalid entry. That is the end of the log when the
// next file starts exactly there (somebody recovered here before and went on in a
// new file), or when nothing behind it proves otherwise. The proof is an entry
// whose synced field lies beyond the bad one: it was written when the bad one had
// already been promised to somebody. Other entries behind a bad one come from the
// same write, of which a power cut may keep any part:
//
//	 ok      bad      valid, synced ≤ bad             torn: one write, lost in part
//	┌──────┐┌ ─ ─ ─ ┐┌──────────┐
//	 ok      bad      valid, synced > bad             *CorruptionError
//	┌──────┐┌ ─ ─ ─ ┐┌──────────┐
//
// A journal never continues inside an old file: Open starts a new one, with a new
// salt.
//
// # Files
//
// Every file is filled with zeros or is an old one used again, so that a sync
// writes data blocks and no metadata. The next file is filled in small steps while
// the current one is written, in proportion: filling it at once would put megabytes
// between a commit and the disk. An entry larger than a file gets a file of its own
// that grows.
//
// Writes go past the page cache (vfs.FS.OpenDirect) in whole pages: the page the
// last entry ended in is kept in memory and written again with what follows, and
// behind the last entry it is zeros. Compared with write and fdatasync through the
// page cache this took half the processor time and two thirds of the latency for 4
// KiB, and a third of the processor time for 1 MiB; the page cache is left to the
// segments, which are what is read.
//
// # When a write or a sync fails
//
// The journal is poisoned: nobody knows what is on the disk, and asking again
// may get a success for pages the kernel has already dropped. Every waiting and
// every later entry gets ErrPoisoned; the process must end and recover.
//
// # Goroutines
//
//	flusher    1 per Writer   started by Open, ends with Close after the queue is empty
//	preparer   1 per Writer   started by Open, ends with Close; makes the next file
//
// Enqueue may be called from any goroutine and takes one lock for moments; it
// blocks while the queue is full. Completion hooks run on the flusher, under no
// lock of ours, and must not block.
package journal
