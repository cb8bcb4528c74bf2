package storage

import (
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// TxnMode says what a transactional data batch may do to the partition's
// transaction of its producer.
type TxnMode int8

const (
	// TxnNone: for batches without the transactional bit, and for markers.
	TxnNone TxnMode = iota
	// TxnContinue: only if this (producer, epoch) has an open transaction here
	// already; else ErrTxnNotOpen.
	TxnContinue
	// TxnOpen: open one if there is none. The caller has enrolled the partition
	// with the coordinator and holds what keeps the transaction from ending.
	TxnOpen
)

// Append is one batch for one partition.
type Append struct {
	Partition *Partition
	// Batch is validated. Its base offset and leader epoch are patched in place;
	// its bytes belong to the engine until the Pending is done.
	Batch       batch.View
	LeaderEpoch model.LeaderEpoch // what the caller believes in; model.NoLeaderEpoch or 0 for "do not check"
	Txn         TxnMode
	Strict      bool // transactions v2: a producer unknown here starts at sequence 0
	Internal    bool // coordinator facts and markers
}

// Append fixes the order of all batches as one journal entry and returns; after a
// crash all of them exist or none does. Every item is checked before anything
// changes: one refusal (*AppendError) refuses the whole call and leaves no trace.
// Safe for concurrent use. The caller waits for the Pending before it tells anyone.
func (e *Engine) Append(appends ...Append) (*Pending, error) { return nil, ErrClosed }

// Barrier is done when everything sequenced so far is durable.
func (e *Engine) Barrier() *Pending { return nil }
