package coordinator

import (
	"fmt"

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
