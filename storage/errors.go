package storage

import (
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/vfs"
)

// What the engine answers. An error may be wrapped with the step that met it;
// use errors.Is. Unless said otherwise nothing was changed.
var (
	// ErrOutOfOrderSequence: the batch is not the producer's next one here, and
	// not one of its last five either.
	ErrOutOfOrderSequence = producer.ErrOutOfOrderSequence
	// ErrStaleProducerEpoch: a newer epoch of this producer has written here.
	ErrStaleProducerEpoch = producer.ErrStaleEpoch
	// ErrStaleCoordinatorEpoch: the marker comes from a coordinator that has been
	// replaced.
	ErrStaleCoordinatorEpoch = producer.ErrStaleCoordinator
	// ErrInvalidTxnState: the producer has an open transaction here and the batch
	// does not belong to it.
	ErrInvalidTxnState = producer.ErrInvalidTxnState
	// ErrTxnNotOpen: TxnContinue found no open transaction of this producer and
	// epoch. The caller asks its coordinator and calls again with TxnOpen.
	ErrTxnNotOpen = producer.ErrTxnNotOpen
	// ErrStaleLeaderEpoch: the caller believes in another incarnation.
	ErrStaleLeaderEpoch = errors.New("stale leader epoch")
	// ErrOffsetOutOfRange: below Start or beyond End.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrPartitionDeleted: the handle is dead for ever.
	ErrPartitionDeleted = errors.New("partition deleted")
	// ErrPartitionOffline: the partition's files cannot be trusted or used; the
	// error says why. The others go on.
	ErrPartitionOffline = errors.New("partition offline")
	// ErrStorageFull: the free space is at the reserve, or the process has no
	// descriptor for another file. Retriable.
	ErrStorageFull = errors.New("storage full")
	// ErrPoisoned: a sync failed. What was appended and not yet acknowledged may
	// or may not exist after the restart. The process is about to exit.
	ErrPoisoned = journal.ErrPoisoned
	// ErrClosed: the engine is closing or closed.
	ErrClosed = errors.New("engine closed")
)

// CorruptionError is the one mark for bytes that cannot be what was written.
type CorruptionError = vfs.CorruptionError

// AppendError names the item that made the engine refuse a whole call.
type AppendError struct {
	Index     int // into the appends given
	Partition model.TopicPartition
	Err       error
}

func (e *AppendError) Error() string {
	return fmt.Sprintf("append %d to %s: %v", e.Index, e.Partition, e.Err)
}

func (e *AppendError) Unwrap() error { return e.Err }
