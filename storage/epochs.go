package storage

import (
	"sort"

	"github.com/perigeemq/perigee/storage/model"
)

// epochStart is where the batches of one leader epoch begin.
type epochStart struct {
	Epoch model.LeaderEpoch
	Start model.Offset
}

// epochs is a partition's history of leader epochs, ascending. It is replaced,
// never changed, so that readers need no lock.
type epochs []epochStart

// with returns the history after a batch: the same one unless the epoch is new.
func (h epochs) with(e model.LeaderEpoch, base model.Offset) epochs {
	if len(h) > 0 && h[len(h)-1].Epoch >= e {
		return h
	}
	return append(h[:len(h):len(h)], epochStart{Epoch: e, Start: base})
}

// at is the epoch of the batch that holds an offset, model.NoLeaderEpoch in front
// of the first one.
func (h epochs) at(o model.Offset) model.LeaderEpoch {
	i := sort.Search(len(h), func(i int) bool { return h[i].Start > o })
	if i == 0 {
		return model.NoLeaderEpoch
	}
	return h[i-1].Epoch
}

// end answers OffsetForLeaderEpoch as Kafka's epoch cache does: the largest epoch
// not above the asked one and where the next one begins. current is the epoch of
// this start, which owns everything from end on even before its first batch.
//
//	asked                       answer
//	current                     current, end
//	above current               none
//	in the history, or a gap    the epoch at or below it, start of the one above it
//	below the first one         the asked one, start of the first
func (h epochs) end(asked, current model.LeaderEpoch, end model.Offset) (model.LeaderEpoch, model.Offset) {
	switch {
	case asked < 0 || asked > current:
		return model.NoLeaderEpoch, model.NoOffset
	case asked == current:
		return current, end
	}
	i := sort.Search(len(h), func(i int) bool { return h[i].Epoch > asked })
	next := end
	if i < len(h) {
		next = h[i].Start
	}
	if i == 0 {
		return asked, next
	}
	return h[i-1].Epoch, next
}

// from forgets the epochs that ended at or below the start of the log.
func (h epochs) from(start model.Offset) epochs {
	n := 0
	for n+1 < len(h) && h[n+1].Start <= start {
		n++
	}
	return h[n:]
}
