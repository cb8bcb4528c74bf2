package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// ErrControlBatch: a client sent a marker. INVALID_RECORD.
var ErrControlBatch = errors.New("clients may not write control batches")

// Produce is batches to be appended in one entry: all of them or none.
type Produce struct {
	// TransactionalID is whose transaction a transactional batch belongs to.
	TransactionalID string
	// Version and Owner say how a partition becomes part of that transaction.
	// V0 of a Client: it has been enrolled before, by Enrol. V2, and any Session:
	// by this very append, in the same entry.
	Version txn.Version
	Owner   txn.Owner

	Batches []ProduceBatch
	With    []storage.Append // joins the entry behind the batches: a session's memo
}

// ProduceBatch is one batch for one partition, validated.
type ProduceBatch struct {
	Partition *storage.Partition
	Batch     batch.View // its bytes are the engine's until the Pending is done
}

func (p Produce) implicit() bool { return p.Owner == txn.Session || p.Version >= txn.V2 }

// Produce fixes the order of the batches and returns; items of the Pending are
// the batches in their order. A batch that repeats one of its producer's last
// five is a success with the offset of the first.
//
// A transactional batch must find its partition enrolled in the ongoing
// transaction of its transactional id. The common case is told by the
// partition itself: its producer has a transaction open there, which only an
// enrolment can have opened and only a marker can close, and both are ordered
// by the partition's append lock. Otherwise the id's shard decides, and keeps
// its lock until the batch is in the log, so that no end can come between the
// check and the append (KAFKA-14402).
//
// Errors: ErrControlBatch, those of txn.Enrol and txn.Verify,
// txn.ErrNotEnrolled, and the engine's; none of the batches was appended then.
func (t *transactions) Produce(p Produce) (*storage.Pending, error) {
	var room [2]storage.Append // for the usual call, without an allocation
	appends, err := p.appends(room[:0], storage.TxnContinue)
	if err != nil {
		return nil, err
	}
	pending, err := t.o.Engine.Append(appends...)
	if !p.mayOpen(err) {
		return pending, err
	}
	return t.openAndProduce(p)
}

// mayOpen reports whether the partition refused because it knows no transaction
// of this producer and epoch. One of another epoch is no better than none: who
// is right is for the coordinator to say.
func (p Produce) mayOpen(refusal error) bool {
	if errors.Is(refusal, storage.ErrTxnNotOpen) {
		return true
	}
	_, partitions := p.transactional()
	return errors.Is(refusal, storage.ErrInvalidTxnState) && len(partitions) > 0
}

// appends translates the batches for the engine, into room as far as that reaches.
func (p Produce) appends(room []storage.Append, mode storage.TxnMode) ([]storage.Append, error) {
	appends := slices.Grow(room, len(p.Batches)+len(p.With)+1)
	for _, b := range p.Batches {
		a := storage.Append{Partition: b.Partition, Batch: b.Batch}
		switch attributes := b.Batch.Attributes(); {
		case attributes.IsControl():
			return nil, ErrControlBatch
		case attributes.IsTransactional():
			a.Txn = mode
			a.Strict = p.Version >= txn.V2
		}
		appends = append(appends, a)
	}
	return append(appends, p.With...), nil
}

// openAndProduce is Produce for batches that open their transaction on a
// partition.
func (t *transactions) openAndProduce(p Produce) (*storage.Pending, error) {
	producer, partitions := p.transactional()
	h, err := t.hold(p.TransactionalID)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	d, err := h.admit(p, producer, partitions)
	if err != nil {
		return nil, err
	}
	appends, err := p.appends(nil, storage.TxnOpen)
	if err != nil {
		return nil, err
	}
	if len(d.Facts) == 0 {
		return t.o.Engine.Append(appends...)
	}
	return h.appendWith(d, appends)
}

// admit decides whether partitions may be written inside p's transaction, and
// enrols them if that is how its owner does it.
func (h heldShard) admit(p Produce, producer model.ProducerIdentity, partitions []txn.Participant) (txn.Decision, error) {
	if !p.implicit() {
		d, err := h.consider(txn.Verify{ID: p.TransactionalID, Producer: producer, Partitions: partitions})
		switch {
		case err != nil:
			return d, err
		case len(d.Missing) > 0:
			return d, fmt.Errorf("%w: %s-%d", txn.ErrNotEnrolled, d.Missing[0].Name, d.Missing[0].Partition)
		}
		return d, d.Err
	}
	d, err := h.consider(txn.Enrol{ID: p.TransactionalID, Producer: producer, Partitions: partitions, Version: p.Version})
	return d, errors.Join(err, d.Err)
}

// appendWith appends batches and the record of a decision as one entry. The
// batches stand first: their places are the caller's.
func (h heldShard) appendWith(d txn.Decision, appends []storage.Append) (*storage.Pending, error) {
	var pending *storage.Pending
	_, err := h.carryOut(d, func(b machine.Batch) (machine.Sequenced, error) {
		state, err := h.s.log.item(b)
		if err != nil {
			return machine.Sequenced{}, err
		}
		appends = append(appends, state)
		if pending, err = h.t.o.Engine.Append(appends...); err != nil {
			return machine.Sequenced{}, err
		}
		return machine.Sequenced{Base: pending.At(len(appends) - 1).Base, Pending: pending}, nil
	})
	return pending, err
}

// transactional returns the producer and the partitions of the transactional
// batches. All batches of one call have one producer; the front ends see to it.
func (p Produce) transactional() (model.ProducerIdentity, []txn.Participant) {
	var producer model.ProducerIdentity
	var partitions []txn.Participant
	for _, b := range p.Batches {
		if b.Batch.IsTransactional() {
			producer = model.ProducerIdentity{ID: b.Batch.ProducerID(), Epoch: b.Batch.ProducerEpoch()}
			partitions = append(partitions, txn.Participant{TopicPartition: b.Partition.ID(), Name: b.Partition.Name()})
		}
	}
	return producer, partitions
}
