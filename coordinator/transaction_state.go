package coordinator

import (
	"context"
	"fmt"
	"unicode/utf16"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
)

// stateLog is a partition of __transaction_state as the log of a shard's facts.
type stateLog struct {
	engine    *storage.Engine
	partition *storage.Partition
}

// Append implements machine.Facts.
func (l *stateLog) Append(b machine.Batch) (machine.Sequenced, error) {
	view, err := l.batch(b)
	if err != nil {
		return machine.Sequenced{}, err
	}
	pending, err := l.engine.Append(storage.Append{Partition: l.partition, Batch: view, Internal: true})
	if err != nil {
		return machine.Sequenced{}, err
	}
	return machine.Sequenced{Base: pending.At(0).Base, Pending: pending}, nil
}

// batch is the record batch of a decision's facts.
func (l *stateLog) batch(b machine.Batch) (batch.View, error) {
	builder := batch.NewBuilder(batch.BuilderOptions{})
	for _, r := range b.Records {
		builder.Add(batch.NewRecord{Timestamp: b.Timestamp, Key: r.Key, Value: r.Value})
	}
	view, err := builder.Build()
	if err != nil {
		return view, fmt.Errorf("build transaction state: %w", err)
	}
	return view, nil
}

// Replay implements machine.Facts.
func (l *stateLog) Replay(ctx context.Context, f func(machine.Record) error) error {
	return l.partition.Scan(ctx, l.partition.Bounds().Start, func(v batch.View) error {
		for r, err := range v.Records(batch.MaxDecompressedBytes) {
			if err != nil {
				return fmt.Errorf("read transaction state at offset %d: %w", v.BaseOffset(), err)
			}
			if err := f(machine.Record{Key: r.Key, Value: r.Value, Offset: r.Offset, Timestamp: r.Timestamp}); err != nil {
				return err
			}
		}
		return nil
	})
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
