package model

// Offset numbers the records of one partition, from 0. A control record takes
// an offset too.
type Offset int64

// NoOffset is the wire's "none".
const NoOffset Offset = -1

// LeaderEpoch grows by one at every start of the broker (one incarnation, one
// epoch). Batches carry the epoch they were appended under.
type LeaderEpoch int32

// NoLeaderEpoch is the wire's "unknown": an append that does not say.
const NoLeaderEpoch LeaderEpoch = -1

// Timestamp is milliseconds since the Unix epoch.
type Timestamp int64

// NoTimestamp is the wire's "none".
const NoTimestamp Timestamp = -1

// Bounds are the four positions of a partition that others may see:
// Start ≤ Stable ≤ High ≤ End.
type Bounds struct {
	Start  Offset // first offset that still exists
	Stable Offset // last stable offset: nothing below it belongs to an open transaction
	High   Offset // high watermark: everything below it is durable
	End    Offset // next offset to be assigned; End - High records wait for their sync
}

// Visible is the end of what a reader of the given isolation may see.
func (b Bounds) Visible(i Isolation) Offset {
	if i == ReadCommitted {
		return b.Stable
	}
	return b.High
}
