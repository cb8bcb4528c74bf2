package journal

import (
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/storage/vfs"
)

var (
	// ErrPoisoned says that a write or sync of the journal, or of a segment an entry
	// refers to, failed. What is on the disk is unknown; the process must end.
	ErrPoisoned = errors.New("journal is poisoned by a failed write or sync")
	// ErrClosed says that the Writer accepts nothing more.
	ErrClosed = errors.New("journal is closed")
	// ErrFull says that the entry was refused because the disk had no room for the
	// next journal file. Nothing was done; later attempts may succeed.
	ErrFull = errors.New("no space for another journal file")
)

// EntryTooLargeError says that an entry exceeds MaxEntryBytes.
type EntryTooLargeError struct {
	Bytes int64
}

func (e *EntryTooLargeError) Error() string {
	return fmt.Sprintf("journal entry of %d bytes exceeds the limit of %d", e.Bytes, int64(MaxEntryBytes))
}

// CorruptionError says that something durable is damaged: replaying what comes
// before it would silently lose what was promised.
type CorruptionError = vfs.CorruptionError
