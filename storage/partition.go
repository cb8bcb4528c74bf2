package storage

import (
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
)

// Partition is one log. All methods are safe for concurrent use.
type Partition struct {
	tp   model.TopicPartition
	name string
}

// ID is the partition's key.
func (p *Partition) ID() model.TopicPartition { return p.tp }

// Name is the topic's name, for messages only.
func (p *Partition) Name() string { return p.name }

// Bounds is one consistent view of the four positions.
func (p *Partition) Bounds() model.Bounds { return model.Bounds{} }

// Err is nil while the partition can be used, else ErrPartitionDeleted or
// ErrPartitionOffline with the reason.
func (p *Partition) Err() error { return nil }

// Producers lists the producers known to the partition, by ascending id. It shows
// what is sequenced, which may be ahead of what is durable.
func (p *Partition) Producers() []producer.State { return nil }

// DeleteRecords raises Start to before, model.NoOffset meaning High, and returns
// the new Start. Done when durable.
func (p *Partition) DeleteRecords(before model.Offset) (*Pending, model.Offset, error) {
	return nil, 0, ErrClosed
}

// SetConfig takes effect at once.
func (p *Partition) SetConfig(c PartitionConfig) {}

// Config is the configuration in force, defaults filled in.
func (p *Partition) Config() PartitionConfig { return PartitionConfig{} }

// PartitionStats is a snapshot for metrics and DescribeLogDirs.
type PartitionStats struct {
	Bytes      int64
	Segments   int
	DirtyRatio float64 // of the bytes compaction may look at, how many it has not; 0 unless compacted
	Producers  int
	OpenTxns   int
	Aborted    int
}

// Stats is a snapshot.
func (p *Partition) Stats() PartitionStats { return PartitionStats{} }
