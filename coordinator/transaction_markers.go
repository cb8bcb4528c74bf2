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

// ending is the end of one transaction on its way into the log.
type ending struct {
	markers    txn.Markers
	timestamp  model.Timestamp
	partitions []markedPartition
}

// markedPartition is a participant that gets a marker.
type markedPartition struct {
	*storage.Partition
	coordinatorEpoch int32
}

// sequenceEnd appends a decision's record together with the markers of the
// transaction it ends.
func (t *transactions) sequenceEnd(s *transactionShard, b machine.Batch) (machine.Sequenced, error) {
	if len(b.Effects) == 0 {
		return s.log.Append(b)
	}
	state, err := s.log.item(b)
	if err != nil {
		return machine.Sequenced{}, err
	}
	e := ending{markers: b.Effects[0].(txn.Markers), timestamp: b.Timestamp}
	e.partitions = t.participants(e.markers)
	for {
		pending, err := t.appendEnd(state, e)
		if err == nil {
			return machine.Sequenced{Base: pending.At(0).Base, Pending: pending}, nil
		}
		if !e.concede(err) {
			return machine.Sequenced{}, err
		}
	}
}

// participants returns the handles of the participants that still exist. What
// became of a deleted topic's transaction no longer matters to anybody. An
// abort passes over a partition that is offline, too: one broken disk must not
// keep the last stable offset of every other partition where it is, and what
// is left open there is aborted by the start that brings it back, see
// abortLeftOvers. A commit does not.
func (t *transactions) participants(m txn.Markers) []markedPartition {
	var marked []markedPartition
	for _, participant := range m.Partitions {
		p, ok := t.o.Engine.Partition(participant.TopicPartition)
		if !ok || errors.Is(p.Err(), storage.ErrPartitionDeleted) {
			continue
		}
		if m.Outcome == txn.Abort && p.Err() != nil {
			continue
		}
		marked = append(marked, markedPartition{p, t.coordinatorEpoch()})
	}
	return marked
}

// coordinatorEpoch is the epoch of every shard of this start.
func (t *transactions) coordinatorEpoch() int32 { return int32(t.o.Engine.Identity().Incarnation) }

// appendEnd is one try. The record stands first in the entry.
func (t *transactions) appendEnd(state storage.Append, e ending) (*storage.Pending, error) {
	appends := []storage.Append{state}
	var offsets []int32
	for _, p := range e.partitions {
		appends = append(appends, storage.Append{Partition: p.Partition, Batch: e.marker(p), Internal: true})
		if p.ID().Topic == offsetsTopicID {
			offsets = append(offsets, p.ID().Partition)
		}
	}
	sequence := func() (*storage.Pending, error) { return t.o.Engine.Append(appends...) }
	if len(offsets) == 0 {
		return sequence()
	}
	slices.Sort(offsets)
	return t.o.Settle(offsets, e.markers.Producer.ID, e.markers.Outcome == txn.Commit, sequence)
}

func (e ending) marker(p markedPartition) batch.View {
	return batch.NewMarker(batch.Marker{
		Type:             batch.MarkerType(e.markers.Outcome),
		Producer:         e.markers.Producer,
		CoordinatorEpoch: p.coordinatorEpoch,
		Timestamp:        e.timestamp,
	})
}

// concede changes the ending so that the next try gets past what refused this
// one, and reports whether there was anything to change. A participant may
// have been deleted since it was looked up. And an operator may have ended the
// transaction there with WriteTxnMarkers: with a newer producer epoch, which
// settles it, or with a coordinator epoch above ours, which we then have to use.
func (e *ending) concede(err error) bool {
	var refused *storage.AppendError
	if !errors.As(err, &refused) || refused.Index == 0 || refused.Index > len(e.partitions) {
		return false
	}
	i := refused.Index - 1
	switch {
	case errors.Is(err, storage.ErrPartitionDeleted),
		errors.Is(err, storage.ErrStaleProducerEpoch),
		errors.Is(err, storage.ErrPartitionOffline) && e.markers.Outcome == txn.Abort:
		e.partitions = slices.Delete(e.partitions, i, i+1)
		return true
	case errors.Is(err, storage.ErrStaleCoordinatorEpoch):
		return e.partitions[i].raise(e.markers.Producer.ID)
	}
	return false
}

// raise takes over the coordinator epoch the partition has seen.
func (p *markedPartition) raise(id model.ProducerID) bool {
	for _, known := range p.Producers() {
		if known.ID == id && known.CoordinatorEpoch > p.coordinatorEpoch {
			p.coordinatorEpoch = known.CoordinatorEpoch
			return true
		}
	}
	return false
}

// MarkerWrite is one partition of a WriteTxnMarkers request.
type MarkerWrite struct {
	Partition        *storage.Partition
	Producer         model.ProducerIdentity
	Outcome          txn.Outcome
	CoordinatorEpoch int32
	Version          txn.Version // V2: the marker's epoch is above the transaction's
}

// WriteMarker ends a transaction on one partition from outside, for an operator
// who found it hanging. The coordinator's own ends do not come here, and the
// id's record does not change. Errors: storage.ErrStaleProducerEpoch,
// storage.ErrStaleCoordinatorEpoch, and the engine's others.
func (t *transactions) WriteMarker(w MarkerWrite) (*storage.Pending, error) {
	e := ending{
		markers:   txn.Markers{Producer: w.Producer, Outcome: w.Outcome},
		timestamp: model.Timestamp(t.o.Now().UnixMilli()),
	}
	sequence := func() (*storage.Pending, error) {
		return t.o.Engine.Append(storage.Append{
			Partition: w.Partition,
			Batch:     e.marker(markedPartition{w.Partition, w.CoordinatorEpoch}),
			Strict:    w.Version >= txn.V2,
			Internal:  true,
		})
	}
	if id := w.Partition.ID(); id.Topic == offsetsTopicID {
		return t.o.Settle([]int32{id.Partition}, w.Producer.ID, w.Outcome == txn.Commit, sequence)
	}
	pending, err := sequence()
	if err != nil {
		return nil, fmt.Errorf("append marker: %w", err)
	}
	return pending, nil
}
