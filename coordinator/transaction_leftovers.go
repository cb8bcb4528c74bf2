package coordinator

import (
	"fmt"

	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// HangingTransaction is open on a partition, and no coordinator will end it.
type HangingTransaction struct {
	Partition *storage.Partition
	Producer  model.ProducerIdentity
	Start     model.Offset
}

// abortLeftOvers ends what is open on partitions although its transaction is
// over. An abort passes over a partition that is offline, so that one broken
// disk does not hold up all the others; when the partition comes back, with a
// start, nobody but us knows that it still waits for a marker. Commits pass over
// nothing, so what is left over was aborted.
//
// A producer that no id knows is another matter: the state of its id was lost,
// and that is not for us to hide. It is reported, for an operator to look at and
// to abort by hand (KIP-664).
func (t *transactions) abortLeftOvers() error {
	owners := t.owners()
	for _, tp := range t.o.Engine.Known() {
		p, ok := t.o.Engine.Partition(tp)
		if !ok || p.Err() != nil {
			continue
		}
		for _, s := range p.Producers() {
			if s.TxnStart == model.NoOffset {
				continue
			}
			producer := model.ProducerIdentity{ID: s.ID, Epoch: s.Epoch}
			record, known := owners[s.ID]
			switch {
			case known && record.Uses(tp, producer):
			case known:
				if _, err := t.WriteMarker(MarkerWrite{
					Partition: p, Producer: producer, Outcome: txn.Abort, CoordinatorEpoch: max(s.CoordinatorEpoch, t.coordinatorEpoch()),
				}); err != nil {
					return fmt.Errorf("abort what %q left open on %s: %w", record.ID, tp, err)
				}
			case t.o.Hangs != nil:
				t.o.Hangs(HangingTransaction{p, producer, s.TxnStart})
			}
		}
	}
	return nil
}

// owners finds the record of every producer id, also of those that were rotated
// away.
func (t *transactions) owners() map[model.ProducerID]txn.Record {
	owners := map[model.ProducerID]txn.Record{}
	for _, s := range t.shards {
		for _, r := range s.ids.Records() {
			owners[r.Producer.ID] = r
			if r.PrevID != model.NoProducerID {
				owners[r.PrevID] = r
			}
		}
	}
	return owners
}

// reachable reports whether every partition is there to be marked. As long as
// one is not, ids are not forgotten: it may hold a transaction of theirs, which
// is recognised by them.
func (t *transactions) reachable() bool {
	for _, tp := range t.o.Engine.Known() {
		if p, ok := t.o.Engine.Partition(tp); ok && p.Err() != nil {
			return false
		}
	}
	return true
}
