package coordinator

import (
	"errors"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage/model"
)

// TransactionOffsets is a group's offsets to be committed with a transaction.
type TransactionOffsets struct {
	TransactionalID string
	// Version and Owner say how the group becomes part of the transaction, as for
	// Produce: V0 of a Client, by Enrol before; else by this very commit.
	Version txn.Version
	Owner   txn.Owner
	Offsets group.CommitOffsets // Producer is set
}

// offsetsTopicID is the id of __consumer_offsets.
var offsetsTopicID = catalog.InternalID(catalog.OffsetsTopic)

// OffsetsParticipant is what a transaction enrols to hold a group's offsets:
// the partition of __consumer_offsets they are written to. The group need not exist.
func (t *transactions) OffsetsParticipant(id string) txn.Participant {
	return txn.Participant{
		TopicPartition: model.TopicPartition{Topic: offsetsTopicID, Partition: shardOf(id, offsetsShards)},
		Name:           catalog.OffsetsTopic,
	}
}

// errNoOffsets keeps an enrolment from being written when the group accepted
// none of the offsets it was for.
var errNoOffsets = errors.New("no offset was acceptable")

// CommitTransactionOffsets stores offsets that become visible when the
// transaction commits, and are dropped when it aborts. The answer has an error
// of package group for each offset. Errors: those of Produce.
func (t *transactions) CommitTransactionOffsets(c TransactionOffsets) machine.Future[[]error] {
	h, err := t.hold(c.TransactionalID)
	if err != nil {
		return machine.Ready[[]error](nil, err)
	}
	defer h.Release()
	answer, err := h.commitOffsets(c)
	if err != nil {
		return machine.Ready[[]error](nil, err)
	}
	return answer
}

func (h heldShard) commitOffsets(c TransactionOffsets) (answer machine.Future[[]error], err error) {
	p := Produce{TransactionalID: c.TransactionalID, Version: c.Version, Owner: c.Owner}
	d, err := h.admit(p, *c.Offsets.Producer, []txn.Participant{h.t.OffsetsParticipant(c.Offsets.Group)})
	if err != nil {
		return answer, err
	}
	if len(d.Facts) == 0 {
		answer, _, err = h.t.o.CommitInTxn(c.Offsets)
		return answer, err
	}
	_, err = h.carryOut(d, func(b machine.Batch) (machine.Sequenced, error) {
		state, err := h.s.log.item(b)
		if err != nil {
			return machine.Sequenced{}, err
		}
		offsets, joint, err := h.t.o.CommitInTxn(c.Offsets, state)
		answer = offsets
		switch {
		case err != nil:
			return machine.Sequenced{}, err
		case joint.Entry == nil:
			return machine.Sequenced{}, errNoOffsets
		}
		return machine.Sequenced{Base: joint.Other(0).Base, Pending: joint.Entry}, nil
	})
	if errors.Is(err, errNoOffsets) {
		err = nil
	}
	return answer, err
}
