package producer

import (
	"fmt"

	"github.com/perigeemq/perigee/storage/model"
)

// TxnMode says what a transactional data batch may do to its producer's
// transaction on the partition.
type TxnMode int8

const (
	// TxnNone is for batches without the transactional bit.
	TxnNone TxnMode = iota
	// TxnContinue needs an open transaction of the same producer and epoch.
	TxnContinue
	// TxnOpen opens one if there is none.
	TxnOpen
)

// Batch is what the table needs to know of a data batch or a marker.
type Batch struct {
	ID           model.ProducerID
	Epoch        model.ProducerEpoch
	BaseSequence model.Sequence // model.NoSequence: the sequence is not checked and not remembered
	LastSequence model.Sequence
	First, Last  model.Offset // where it goes; not looked at by the checks
	Timestamp    model.Timestamp

	Transactional bool
	Marker        bool  // ends the producer's transaction
	Abort         bool  // with Marker: rolls back
	Coordinator   int32 // with Marker: the coordinator's epoch
}

// Original is where a repeated batch went the first time.
type Original struct {
	First, Last model.Offset
	Timestamp   model.Timestamp
}

// CheckData decides on a data batch. found tells that it is one of the producer's
// last five. Strict is the rule of transactions version 2 (KAFKA-18202): a producer
// unknown here starts at sequence 0.
//
//	stored                incoming               answer
//	-                     sequence 0             accept
//	-                     sequence > 0           accept, because retention may have taken what came
//	                                             before; strict: ErrOutOfOrderSequence
//	epoch e               one of the last five   the original
//	epoch e               epoch < e              ErrStaleEpoch
//	open transaction      not transactional      ErrInvalidTxnState
//	no open transaction   TxnContinue            ErrTxnNotOpen
//	epoch e               epoch > e, 0           accept
//	epoch e               epoch > e, > 0         ErrOutOfOrderSequence
//	epoch e, last s       s+1, wrapping to 0     accept
//	epoch e, only marker  0                      accept
//	epoch e               anything else          ErrOutOfOrderSequence
func (t *Table) CheckData(b *Batch, mode TxnMode, strict bool) (o Original, found bool, err error) {
	e := t.entries[b.ID]
	if e == nil {
		return Original{}, false, checkUnknown(b, mode, strict)
	}
	if b.Epoch == e.epoch {
		if o, found := e.find(b); found {
			return o, true, nil
		}
	}
	if b.Epoch < e.epoch {
		return Original{}, false, fmt.Errorf("%w: producer %d writes with epoch %d, epoch %d has written here",
			ErrStaleEpoch, b.ID, b.Epoch, e.epoch)
	}
	if err := e.checkTxn(b, mode); err != nil {
		return Original{}, false, err
	}
	return Original{}, false, e.checkSequence(b)
}

func checkUnknown(b *Batch, mode TxnMode, strict bool) error {
	switch {
	case b.Transactional && mode == TxnContinue:
		return ErrTxnNotOpen
	case b.Transactional && mode == TxnNone:
		return fmt.Errorf("%w: a transactional batch of producer %d outside a transaction", ErrInvalidTxnState, b.ID)
	case strict && b.BaseSequence > 0:
		return fmt.Errorf("%w: producer %d is unknown and starts at %d", ErrOutOfOrderSequence, b.ID, b.BaseSequence)
	}
	return nil
}

func (e *entry) checkTxn(b *Batch, mode TxnMode) error {
	open := e.txnFirst != model.NoOffset
	switch {
	case open && !b.Transactional:
		return fmt.Errorf("%w: producer %d has a transaction open since offset %d", ErrInvalidTxnState, b.ID, e.txnFirst)
	case open && b.Epoch != e.epoch:
		return fmt.Errorf("%w: producer %d has a transaction of epoch %d open since offset %d",
			ErrInvalidTxnState, b.ID, e.epoch, e.txnFirst)
	case !b.Transactional || open:
		return nil
	case mode == TxnContinue:
		return ErrTxnNotOpen // bare: it meets the first batch of every transaction
	case mode == TxnNone:
		return fmt.Errorf("%w: a transactional batch of producer %d outside a transaction", ErrInvalidTxnState, b.ID)
	}
	return nil
}

func (e *entry) checkSequence(b *Batch) error {
	if b.BaseSequence == model.NoSequence {
		return nil
	}
	want := model.Sequence(0)
	if last, ok := e.lastSequence(); ok && b.Epoch == e.epoch {
		want = last.Add(1)
	}
	if b.BaseSequence != want {
		return fmt.Errorf("%w: producer %d, epoch %d: %d instead of %d", ErrOutOfOrderSequence, b.ID, b.Epoch, b.BaseSequence, want)
	}
	return nil
}

// CheckMarker decides on a marker. Strict is the rule of transactions version 2:
// the epoch of a marker is larger than that of the transaction it ends.
func (t *Table) CheckMarker(b *Batch, strict bool) error {
	e := t.entries[b.ID]
	switch {
	case e == nil:
		return nil
	case b.Epoch < e.epoch, strict && b.Epoch == e.epoch && e.txnFirst != model.NoOffset:
		return fmt.Errorf("%w: marker of producer %d with epoch %d, epoch %d has written here", ErrStaleEpoch, b.ID, b.Epoch, e.epoch)
	case b.Coordinator < e.coordinator:
		return fmt.Errorf("%w: marker of producer %d from coordinator epoch %d, known is %d",
			ErrStaleCoordinator, b.ID, b.Coordinator, e.coordinator)
	}
	return nil
}
