package coordinator

import (
	"fmt"
	"unicode/utf16"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
)

// stateLog is a partition of __transaction_state as the log of a shard's facts.
type stateLog struct {
	*machine.LogFacts
	partition *storage.Partition
}

// item is a decision's facts as an append of the engine, for entries where they
// do not stand first.
func (l *stateLog) item(b machine.Batch) (storage.Append, error) {
	builder := batch.NewBuilder(batch.BuilderOptions{})
	for _, r := range b.Records {
		builder.Add(batch.NewRecord{Timestamp: b.Timestamp, Key: r.Key, Value: r.Value})
	}
	view, err := builder.Build()
	if err != nil {
		return storage.Append{}, fmt.Errorf("build transaction state: %w", err)
	}
	return storage.Append{Partition: l.partition, Batch: view, Internal: true}, nil
}

// statePartition places a transactional id as Kafka does: Java's
// String.hashCode without its sign, modulo the partitions.
func statePartition(id string) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(id)) {
		h = 31*h + int32(unit)
	}
	return (h & 0x7fffffff) % transactionShards
}
