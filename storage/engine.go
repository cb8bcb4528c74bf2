package storage

import (
	"context"

	"github.com/perigeemq/perigee/storage/model"
)

// Engine owns a data directory.
type Engine struct{}

// Open locks the directory, recovers what a crash left and is ready when it
// returns. The context ends a long recovery early.
func Open(ctx context.Context, o Options) (*Engine, error) { return nil, ErrClosed }

// Identity names the directory and this start.
func (e *Engine) Identity() Identity { return Identity{} }

// OpenPartition returns the partition's handle, new or known; the last
// configuration given wins. There is no I/O until the first append.
func (e *Engine) OpenPartition(tp model.TopicPartition, name string, c PartitionConfig) (*Partition, error) {
	return nil, ErrClosed
}

// Partition returns the handle of an opened partition.
func (e *Engine) Partition(tp model.TopicPartition) (*Partition, bool) { return nil, false }

// Known lists every partition with data on disk, opened or not.
func (e *Engine) Known() []model.TopicPartition { return nil }

// Retain deletes everything on disk that keep does not want: what a crash left of
// topics whose deletion is a fact already. Call it once, after the catalog is known.
func (e *Engine) Retain(keep func(model.TopicPartition) bool) error { return ErrClosed }

// Delete makes the handles dead at once and wakes their waiters. Files go after
// FileDeleteDelay. Unknown partitions are skipped.
func (e *Engine) Delete(tps ...model.TopicPartition) error { return ErrClosed }

// Close stops accepting, syncs, writes a checkpoint and the clean-shutdown mark.
// Twice is harmless.
func (e *Engine) Close(ctx context.Context) error { return nil }
