// Package batch owns Kafka's record batch, format version 2: the unit in which
// records are produced, stored, compressed, checksummed and fetched.
//
// The bytes, big endian:
//
//	offset  size
//	     0     8  base offset            ┐ patched in place by the log,
//	     8     4  length of what follows │ (the length is not patched)
//	    12     4  partition leader epoch ┘ all outside the checksum
//	    16     1  magic, always 2
//	    17     4  CRC-32C of everything from byte 21 to the end
//	    21     2  attributes
//	                bits 0-2  codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
//	                bit  3    timestamps: 0 create time, 1 log append time
//	                bit  4    transactional
//	                bit  5    control (a marker)
//	                bit  6    base timestamp is a delete horizon (KIP-534)
//	    23     4  last offset delta
//	    27     8  base timestamp, or the delete horizon; milliseconds
//	    35     8  max timestamp; every record's timestamp when bit 3 is set
//	    43     8  producer id, -1 none
//	    51     2  producer epoch
//	    53     4  base sequence
//	    57     4  record count
//	    61     …  the records, compressed as one piece when a codec is named
//
// One record, every number but the attributes a zigzag varint:
//
//	length │ attributes (1 byte, 0) │ timestamp delta │ offset delta
//	key length, -1 null │ key │ value length, -1 null │ value
//	header count │ { key length │ key │ value length, -1 null │ value } …
//
// Three depths of trust, from cheap to dear:
//
//	ParseHeader  61 bytes: lengths and magic. For segment scans.
//	Parse        a whole batch: the above, the checksum, the counts.
//	Validate     what a produce request may contain: walks every record, and
//	             decompresses to do so.
//
// Accept is the produce path as one call: Parse, Validate, and the rewrites a
// topic may ask for (log append time, another codec). Everything else that
// changes bytes under the checksum stands in rewrite.go, in its own function.
//
// Nothing here has state, takes locks or starts goroutines; every function may
// be called from any goroutine. A View aliases its bytes: see there until when.
// Offsets, producer state, files and the meaning of a transaction are left to
// the packages above.
package batch
