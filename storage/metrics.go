package storage

import "github.com/perigeemq/perigee/storage/journal"

// Stats is a snapshot of an engine for metrics.
type Stats struct {
	Journal     journal.Stats
	Partitions  int
	OpenFiles   int   // segment files
	Checkpoints int64 // since Open
	Obsolete    int   // groups of files that wait to be deleted
	StorageLow  bool  // appends are being refused
}

// Stats is a snapshot. What depends on a partition is in Partition.Stats.
func (e *Engine) Stats() Stats {
	e.partitions.RLock()
	partitions := len(e.partitions.known)
	e.partitions.RUnlock()
	e.reaper.Lock()
	waiting := len(e.reaper.queue)
	e.reaper.Unlock()
	return Stats{
		Journal: e.journal.Stats(), Partitions: partitions, OpenFiles: e.files.Open(),
		Checkpoints: int64(e.checkpoints.taken.Load()), Obsolete: waiting, StorageLow: e.space.low.Load(),
	}
}
