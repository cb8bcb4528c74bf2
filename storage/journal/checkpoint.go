package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	iofs "io/fs"
	"strconv"
	"strings"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Checkpoint says what is already safe outside the journal.
//
// Its file, format version 1, numbers big-endian:
//
//	 0         8         12    16           24         32       40
//	┌─────────┬─────────┬─────┬────────────┬──────────┬────────┬─────────┐
//	│PRGCKPT\n│version 4│crc 4│generation 8│position 8│length 8│payload …│
//	└─────────┴─────────┴─────┴────────────┴──────────┴────────┴─────────┘
//	                     crc-32c of everything but itself
//
// The newest two generations are kept, each in a file named by its generation.
type Checkpoint struct {
	// Generation counts the checkpoints of a data directory from 1. 0 means there is
	// none. WriteCheckpoint assigns it.
	Generation uint64
	// Position is where replay begins: everything below it is in synced segments.
	Position LSN
	// Payload is the engine's: what it knows of its partitions at Position.
	Payload []byte
	// Skipped names the damage of a newer generation that was passed over. Only
	// ReadCheckpoint sets it.
	Skipped *CorruptionError
}

const (
	checkpointMagic       = "PRGCKPT\n"
	checkpointHeaderBytes = 40
	checkpointPrefix      = "checkpoint-"
	temporarySuffix       = ".tmp"

	// MaxCheckpointBytes limits a checkpoint's file: above what a million partitions
	// need, below what could not be read at start.
	MaxCheckpointBytes = 1 << 30
)

func (c *Checkpoint) encode() []byte {
	b := make([]byte, checkpointHeaderBytes, checkpointHeaderBytes+len(c.Payload))
	copy(b, checkpointMagic)
	binary.BigEndian.PutUint32(b[8:], formatVersion)
	binary.BigEndian.PutUint64(b[16:], c.Generation)
	binary.BigEndian.PutUint64(b[24:], uint64(c.Position))
	binary.BigEndian.PutUint64(b[32:], uint64(len(c.Payload)))
	b = append(b, c.Payload...)
	binary.BigEndian.PutUint32(b[12:], checkpointChecksum(b))
	return b
}

func checkpointChecksum(b []byte) uint32 {
	var head [16]byte
	copy(head[:12], b)
	return Checksum(head[:]) ^ Checksum(b[16:])
}

func parseCheckpoint(name string, generation uint64, b []byte) (c Checkpoint, err error) {
	damaged := func(offset int64, reason string) (Checkpoint, error) {
		return Checkpoint{}, &CorruptionError{File: name, Offset: offset, Reason: reason}
	}
	switch {
	case len(b) < checkpointHeaderBytes:
		return damaged(int64(len(b)), "checkpoint header cut off")
	case string(b[:8]) != checkpointMagic:
		return damaged(0, "not a checkpoint")
	case checkpointChecksum(b) != binary.BigEndian.Uint32(b[12:]):
		return damaged(12, "checkpoint checksum differs")
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != formatVersion {
		return c, &VersionError{File: name, Version: v}
	}
	c.Generation = binary.BigEndian.Uint64(b[16:])
	c.Position = LSN(binary.BigEndian.Uint64(b[24:]))
	c.Payload = b[checkpointHeaderBytes:]
	switch {
	case c.Generation != generation:
		return damaged(16, fmt.Sprintf("checkpoint of generation %d under the name of another", c.Generation))
	case c.Position < 0:
		return damaged(24, "checkpoint of a negative position")
	case binary.BigEndian.Uint64(b[32:]) != uint64(len(c.Payload)):
		return damaged(32, "checkpoint length differs")
	}
	return c, nil
}

// WriteCheckpoint makes c the newest checkpoint, atomically: after a crash it is
// there whole or not at all. It returns the position of the one before: below it
// the journal may be trimmed, and either generation can still be recovered from.
func WriteCheckpoint(fs vfs.FS, dir string, c Checkpoint) (trim LSN, err error) {
	known, err := generations(fs, dir)
	if err != nil {
		return 0, err
	}
	c.Generation = 1
	if len(known) > 0 {
		c.Generation = known[0] + 1
		if previous, err := load(fs, dir, known[0]); err == nil {
			trim = previous.Position
		}
	}
	if int64(len(c.Payload)) > MaxCheckpointBytes-checkpointHeaderBytes {
		return 0, fmt.Errorf("write checkpoint: %d bytes exceed the limit of %d", len(c.Payload), int64(MaxCheckpointBytes))
	}
	if err := vfs.WriteFile(fs, dir, checkpointName(c.Generation), c.encode()); err != nil {
		return 0, fmt.Errorf("write checkpoint: %w", err)
	}
	for _, old := range known[min(1, len(known)):] {
		if err := fs.Remove(dir + "/" + checkpointName(old)); err != nil {
			return 0, fmt.Errorf("remove old checkpoint: %w", err)
		}
	}
	return trim, nil
}

// KeptFrom is the position from which the journal must still be whole: that of the
// checkpoint before the newest, or of the newest if that one is damaged; 0 while
// there are fewer than two.
func KeptFrom(fs vfs.FS, dir string) (LSN, error) {
	known, err := generations(fs, dir)
	if err != nil || len(known) < 2 {
		return 0, err
	}
	for _, g := range []uint64{known[1], known[0]} {
		c, err := load(fs, dir, g)
		if _, damaged := errors.AsType[*CorruptionError](err); !damaged {
			return c.Position, err
		}
	}
	return 0, nil
}

// ReadCheckpoint returns the newest checkpoint that is whole, or one of
// generation 0. A damaged newest one is passed over for the one before, when
// there is one: that only lengthens the replay. Otherwise the damage is the error.
func ReadCheckpoint(fs vfs.FS, dir string) (Checkpoint, error) {
	known, err := generations(fs, dir)
	if err != nil {
		return Checkpoint{}, err
	}
	var skipped *CorruptionError
	for _, g := range known {
		c, err := load(fs, dir, g)
		if err == nil {
			c.Skipped = skipped
			return c, nil
		}
		damage, ok := errors.AsType[*CorruptionError](err)
		if !ok {
			return Checkpoint{}, err
		}
		if skipped == nil {
			skipped = damage
		}
	}
	if skipped != nil {
		return Checkpoint{}, skipped
	}
	return Checkpoint{}, nil
}

func load(fs vfs.FS, dir string, generation uint64) (Checkpoint, error) {
	name := dir + "/" + checkpointName(generation)
	b, err := vfs.ReadFile(fs, name, MaxCheckpointBytes)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	return parseCheckpoint(name, generation, b)
}

func checkpointName(generation uint64) string {
	return fmt.Sprintf("%s%020d", checkpointPrefix, generation)
}

// generations lists the checkpoints of a directory, newest first.
func generations(fs vfs.FS, dir string) (found []uint64, err error) {
	infos, err := fs.ReadDir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	for _, i := range infos {
		digits, ok := strings.CutPrefix(i.Name, checkpointPrefix)
		if g, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && len(digits) == 20 {
			found = append([]uint64{g}, found...)
		}
	}
	return found, nil
}
