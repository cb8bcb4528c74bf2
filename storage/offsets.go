package storage

import "github.com/perigeemq/perigee/storage/model"

// TimestampOffset is the answer to a search by time.
type TimestampOffset struct {
	Timestamp   model.Timestamp
	Offset      model.Offset
	LeaderEpoch model.LeaderEpoch
}

// OffsetForTimestamp finds the first visible record at or after ts; false when
// there is none.
func (p *Partition) OffsetForTimestamp(ts model.Timestamp, i model.Isolation) (TimestampOffset, bool, error) {
	return TimestampOffset{}, false, ErrClosed
}

// MaxTimestamp finds the first visible record with the largest timestamp; false
// when there is no record.
func (p *Partition) MaxTimestamp(i model.Isolation) (TimestampOffset, bool, error) {
	return TimestampOffset{}, false, ErrClosed
}

// EpochEnd answers OffsetForLeaderEpoch: the largest epoch not above the one asked
// for, and the offset where it ends. Both are "none" for an epoch from the future.
func (p *Partition) EpochEnd(epoch model.LeaderEpoch) (model.LeaderEpoch, model.Offset) {
	return model.NoLeaderEpoch, model.NoOffset
}

// EpochAt is the leader epoch the record at an offset was appended under.
func (p *Partition) EpochAt(o model.Offset) model.LeaderEpoch { return model.NoLeaderEpoch }
