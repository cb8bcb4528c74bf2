package machine

import (
	"context"

	"github.com/perigeemq/perigee/storage/model"
)

// Facts is the log of one shard: a partition of an internal topic, or memory
// in tests.
type Facts interface {
	// Append sequences a batch: when it returns, the order is fixed. An error
	// means that nothing was appended.
	Append(b Batch) (Sequenced, error)
	// Replay calls f for every record from the start of the log, in order.
	// Records alias memory that is valid during the call only.
	Replay(ctx context.Context, f func(Record) error) error
}

// Batch is what one decision journals.
type Batch struct {
	Records   []Record // Key and Value only
	Timestamp model.Timestamp
	Producer  *model.ProducerIdentity // nil: outside any transaction
	Effects   []Effect                // what has to join the same entry
	Frees     bool                    // space comes free by it, see storage.Append
}

// Sequenced says where a batch went.
type Sequenced struct {
	Base    model.Offset   // offset of the batch's first record; the others follow it
	At      []model.Offset // each record's offset, where they do not follow one another; else nil
	Pending Pending
}

// offset returns where the i-th record of the batch went.
func (s Sequenced) offset(i int) model.Offset {
	if s.At != nil {
		return s.At[i]
	}
	return s.Base + model.Offset(i)
}

// Pending is an entry whose order is fixed and whose durability is awaited.
// *storage.Pending is one.
type Pending interface {
	Done() <-chan struct{} // closed when the entry is durable, or never will be
	Err() error            // meaningful after Done
	Wait(ctx context.Context) error
}

// Sequence appends a decision's batch, with whatever has to be in the same
// entry. Facts.Append is the plain one. It runs under the shard's lock.
type Sequence func(b Batch) (Sequenced, error)
