package storage

import (
	"context"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
)

// ReadRequest asks for whole batches from an offset on.
type ReadRequest struct {
	From        model.Offset
	MaxBytes    int
	MinOneBatch bool // return the first batch even if it is larger than MaxBytes
	Isolation   model.Isolation
}

// AbortedTxn is a rolled back transaction a read_committed reader has to hide.
type AbortedTxn = producer.Aborted

// Read is what one read found. Release its Slice.
type Read struct {
	Slice  *Slice // nil when there is nothing to return
	Bounds model.Bounds
	// Aborted is nil unless read_committed, then not nil, sorted by First, for
	// [From, Next).
	Aborted []AbortedTxn
	Next    model.Offset // where to read on
}

// Read returns whole batches of one segment from the one that holds From. Errors:
// ErrOffsetOutOfRange, ErrPartitionDeleted, ErrPartitionOffline, *CorruptionError.
func (p *Partition) Read(r ReadRequest) (Read, error) { return Read{}, ErrClosed }

// Available is how many bytes a read from there could return, 0 when none or
// when it would fail.
func (p *Partition) Available(from model.Offset, i model.Isolation) int { return 0 }

// Scan walks whole batches from an offset up to High. The View is good until fn
// returns.
func (p *Partition) Scan(ctx context.Context, from model.Offset, fn func(batch.View) error) error {
	return ErrClosed
}
