// Package segment is one log file of a partition with its index, as a unit: where
// in the file an offset or a time is found, and who has the file open.
//
// A log file is record batches one after the other and nothing else, the same
// bytes that clients send and get. Its name is the base offset with twenty digits
// and, when compaction made it, the generation:
//
//	00000000000000001000.log        written by appends
//	00000000000000001000.log.1      what compaction left of it, and of those behind it
//	00000000000000001000.index      derived: offsets and times → positions
//
// The index is sparse: one entry per IndexIntervalBytes of log, in memory. It is
// written beside the log when the log is full (or the engine closes) and read back
// when a reader needs it:
//
//	 0       8         12     16            24      28       32
//	┌────────┬─────────┬──────┬─────────────┬───────┬────────┬──────────────┬──────────────┐
//	│PRGINDX\n│version 4│crc 4 │log bytes 8  │offs. 4│times 4 │{off 4, pos 4}│{time 8,off 4}│
//	└────────┴─────────┴──────┴─────────────┴───────┴────────┴──────────────┴──────────────┘
//	                    crc-32c covers everything behind it
//
// Offsets are relative to the base. An index that is missing, damaged or shorter
// than its log is rebuilt from the log alone; nothing is lost with it and it is
// never synced.
//
//	               Append            Seal
//	(no file) ────────────► active ────────► sealed ───► Remove, once nobody has it open
//
// # Who may call
//
// Write, Append, Cut and Seal: one goroutine at a time (the partition's append lock),
// Size and the searches: any. Readers bound themselves by what they know to be there; the
// file may be longer.
//
// # The tail
//
// Small batches gather in memory, up to 16 KiB of them, and go to the file in one
// write; sooner when somebody acquires the file to read it, or syncs it. So a broker
// with a thousand partitions does not make a system call for each batch of a few
// hundred bytes. The journal has what a crash would take from here.
//
// # Open files
//
// Files bounds how many log files are open. Acquire opens a file if it is not and
// pins it until Release; what nobody has pinned may be closed when another is
// opened. A file with unsynced bytes is synced before that, so that no error of the
// disk is lost with the descriptor.
package segment
