package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// LSN is a position in the journal: bytes of entries since it was created.
type LSN int64

// Kind says what an item is.
type Kind uint8

const (
	// KindInline is a batch appended to a partition, with its bytes.
	KindInline Kind = 1
	// KindReference is a batch appended to a partition whose bytes are only in the
	// segment.
	KindReference Kind = 2
	// KindSetStart raises the start of a partition.
	KindSetStart Kind = 3
)

func (k Kind) String() string {
	switch k {
	case KindInline:
		return "inline"
	case KindReference:
		return "reference"
	case KindSetStart:
		return "set-start"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Item is one change to one partition.
type Item struct {
	Kind      Kind
	Partition model.TopicPartition
	// Offset is the batch's base offset, or with KindSetStart the new start.
	Offset model.Offset
	// SegmentBase and Position say where the batch stands: in the segment that
	// starts at this offset, at this byte. Not used by KindSetStart.
	SegmentBase model.Offset
	Position    int64
	// Bytes is the batch of KindInline. On the way in it aliases the caller's memory,
	// which must stay as it is until Entry.Done. On replay it aliases the reader's,
	// which is valid until the visitor returns.
	Bytes []byte
	// Length and CRC (CRC-32C, see Checksum) describe the bytes of KindReference. CRC
	// may be given for those of KindInline too, with Summed, to save computing it; on
	// replay it is not.
	Length uint32
	CRC    uint32
	Summed bool
	// File is the segment that holds the bytes of KindReference, synced before the
	// entry is written. Not stored: nil on replay.
	File vfs.File
}

// Entry is what is durable together.
type Entry struct {
	Items []Item
	// Sync asks for a sync even with Durability OS. Not stored.
	Sync bool
	// Done, when not nil, is called once by the flusher, in the order of the queue,
	// before the group's channel is closed. A nil error means durable. It must not
	// block, nor call the Writer.
	Done func(err error)

	encoded encoded
}

const (
	entryHeaderBytes = 40
	alignment        = 8
	setStartBytes    = 1 + 16 + 4 + 8
	inlineBytes      = setStartBytes + 8 + 8 + 4
	referenceBytes   = inlineBytes + 4

	// MaxEntryBytes limits the body of one entry, so that a reader can believe a
	// length: far above any transaction's, far below what could not be held in
	// memory.
	MaxEntryBytes = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C of an item by reference.
func Checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// bodyBytes is the encoded length of the items.
func bodyBytes(items []Item) (int64, error) {
	var n int64
	for i := range items {
		switch it := &items[i]; it.Kind {
		case KindInline:
			if int64(len(it.Bytes)) > MaxEntryBytes {
				return 0, &EntryTooLargeError{Bytes: int64(len(it.Bytes))}
			}
			n += inlineBytes + int64(len(it.Bytes))
		case KindReference:
			n += referenceBytes
		case KindSetStart:
			n += setStartBytes
		default:
			return 0, fmt.Errorf("encode item %d: unknown %s", i, it.Kind)
		}
	}
	if n > MaxEntryBytes {
		return 0, &EntryTooLargeError{Bytes: n}
	}
	return n, nil
}

// encoded is an entry ready to be written: every byte but the header fields that
// depend on its place in the journal. It is part of the Entry, and has room for the
// usual one, a single batch, so that an append allocates nothing here.
type encoded struct {
	header [entryHeaderBytes]byte
	// bufs are the pieces in order: the header, item heads from our memory, batches
	// from the caller's, zeros to the alignment.
	bufs  [][]byte
	bytes int64 // their total, a multiple of the alignment

	bufsRoom [4][]byte
	headRoom [referenceBytes]byte
}

var padding [alignment]byte

// encode lays the items out and computes the body's checksum.
func (e *encoded) encode(items []Item) error {
	length, err := bodyBytes(items)
	if err != nil {
		return err
	}
	e.bytes = entryHeaderBytes + align(length)
	e.bufs = append(slices.Grow(e.bufsRoom[:0], 2+2*len(items)), e.header[:])
	heads := slices.Grow(e.headRoom[:0], len(items)*referenceBytes)
	crc, from := uint32(0), 0
	for i := range items {
		heads = appendHead(heads, &items[i])
		if items[i].Kind == KindInline {
			crc = crc32.Update(crc, castagnoli, heads[from:])
			if items[i].Summed {
				crc = batch.Concat(crc, items[i].CRC, int64(len(items[i].Bytes)))
			} else {
				crc = crc32.Update(crc, castagnoli, items[i].Bytes)
			}
			e.bufs = append(e.bufs, heads[from:], items[i].Bytes)
			from = len(heads)
		}
	}
	if from < len(heads) {
		crc = crc32.Update(crc, castagnoli, heads[from:])
		e.bufs = append(e.bufs, heads[from:])
	}
	if pad := align(length) - length; pad > 0 {
		e.bufs = append(e.bufs, padding[:pad])
	}
	binary.BigEndian.PutUint32(e.header[4:], uint32(length))
	binary.BigEndian.PutUint32(e.header[32:], crc)
	binary.BigEndian.PutUint32(e.header[36:], uint32(len(items)))
	return nil
}

func appendHead(b []byte, it *Item) []byte {
	b = append(b, byte(it.Kind))
	b = append(b, it.Partition.Topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(it.Partition.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(it.Offset))
	if it.Kind == KindSetStart {
		return b
	}
	b = binary.BigEndian.AppendUint64(b, uint64(it.SegmentBase))
	b = binary.BigEndian.AppendUint64(b, uint64(it.Position))
	if it.Kind == KindInline {
		return binary.BigEndian.AppendUint32(b, uint32(len(it.Bytes)))
	}
	b = binary.BigEndian.AppendUint32(b, it.Length)
	return binary.BigEndian.AppendUint32(b, it.CRC)
}

// place fills in what depends on where and when the entry is written.
func (e *encoded) place(at, synced LSN, salt uint64) {
	binary.BigEndian.PutUint64(e.header[8:], uint64(at))
	binary.BigEndian.PutUint64(e.header[16:], uint64(synced))
	binary.BigEndian.PutUint64(e.header[24:], salt)
	binary.BigEndian.PutUint32(e.header[0:], Checksum(e.header[4:]))
}

func align(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// header is a decoded entry header.
type header struct {
	length  uint32
	lsn     LSN
	synced  LSN
	salt    uint64
	bodyCRC uint32
	items   uint32
}

// size is what the entry takes up in its file, header and padding included.
func (h header) size() int64 { return entryHeaderBytes + align(int64(h.length)) }

// parseHeader reads an entry header; reason says what is wrong with it, or is
// empty.
func parseHeader(b []byte) (h header, reason string) {
	if len(b) < entryHeaderBytes {
		return h, "entry header cut off"
	}
	h = header{
		length:  binary.BigEndian.Uint32(b[4:]),
		lsn:     LSN(binary.BigEndian.Uint64(b[8:])),
		synced:  LSN(binary.BigEndian.Uint64(b[16:])),
		salt:    binary.BigEndian.Uint64(b[24:]),
		bodyCRC: binary.BigEndian.Uint32(b[32:]),
		items:   binary.BigEndian.Uint32(b[36:]),
	}
	switch {
	case Checksum(b[4:entryHeaderBytes]) != binary.BigEndian.Uint32(b):
		return h, "entry header checksum differs"
	case h.length > MaxEntryBytes:
		return h, fmt.Sprintf("entry of %d bytes is longer than an entry can be", h.length)
	case h.synced > h.lsn:
		return h, fmt.Sprintf("entry at %d claims %d was already durable", h.lsn, h.synced)
	case int64(h.items)*setStartBytes > int64(h.length):
		return h, fmt.Sprintf("%d items cannot stand in %d bytes", h.items, h.length)
	}
	return h, ""
}

// parseItems reads an entry's body, whose checksum the caller has compared. The
// items alias body.
func parseItems(items []Item, body []byte, count uint32) ([]Item, error) {
	for i := range count {
		it, rest, err := parseItem(body)
		if err != nil {
			return nil, fmt.Errorf("item %d of %d: %w", i, count, err)
		}
		items, body = append(items, it), rest
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last item", len(body))
	}
	return items, nil
}

func parseItem(b []byte) (it Item, rest []byte, err error) {
	if len(b) < setStartBytes {
		return it, nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	it.Kind = Kind(b[0])
	copy(it.Partition.Topic[:], b[1:17])
	it.Partition.Partition = int32(binary.BigEndian.Uint32(b[17:]))
	it.Offset = model.Offset(binary.BigEndian.Uint64(b[21:]))
	switch it.Kind {
	case KindSetStart:
		return it, b[setStartBytes:], checkNumbers(&it)
	case KindInline, KindReference:
	default:
		return it, nil, fmt.Errorf("unknown %s", it.Kind)
	}
	if len(b) < inlineBytes {
		return it, nil, fmt.Errorf("%d bytes are too few", len(b))
	}
	it.SegmentBase = model.Offset(binary.BigEndian.Uint64(b[29:]))
	it.Position = int64(binary.BigEndian.Uint64(b[37:]))
	length := binary.BigEndian.Uint32(b[45:])
	if it.Kind == KindReference {
		if len(b) < referenceBytes {
			return it, nil, fmt.Errorf("%d bytes are too few", len(b))
		}
		it.Length, it.CRC = length, binary.BigEndian.Uint32(b[49:])
		return it, b[referenceBytes:], checkNumbers(&it)
	}
	b = b[inlineBytes:]
	if uint64(length) > uint64(len(b)) {
		return it, nil, fmt.Errorf("batch of %d bytes, %d are left", length, len(b))
	}
	it.Bytes = b[:length:length]
	return it, b[length:], checkNumbers(&it)
}

// checkNumbers refuses what no writer of ours can have written and no reader
// should have to think about.
func checkNumbers(it *Item) error {
	if it.Partition.Partition < 0 || it.Offset < 0 || it.SegmentBase < 0 || it.Position < 0 ||
		it.SegmentBase > it.Offset && it.Kind != KindSetStart || it.Position > math.MaxInt64-MaxEntryBytes {
		return fmt.Errorf("%s of partition %d at offset %d, segment %d, position %d makes no sense",
			it.Kind, it.Partition.Partition, it.Offset, it.SegmentBase, it.Position)
	}
	return nil
}
