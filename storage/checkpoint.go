package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/segment"
)

// A checkpoint lets the journal be shorter. It is taken while appends go on:
//
//	1  position := end of the journal          everything below it is in what 2 sees
//	2  capture each partition under its lock   one at a time: states are of different moments
//	3  wait until the journal has synced       so that no state has what a crash takes back
//	4  sync the segments                       without locks
//	5  write the checkpoint, trim the journal
//
// Replay from the position meets appends that the captured state has already: they
// lie below the partition's end and are skipped.
type checkpoints struct {
	sync.Mutex // one at a time
	// begun is the number of the one that is being taken, or was taken last. One that
	// fails gives its number to the next, so that numbers count what is on the disk.
	begun atomic.Uint64
	taken atomic.Uint64 // the last one that is durable
	// unsaved is what a crash now would have to replay, in bytes since the last one
	// began: of the journal, and of the batches it only refers to.
	unsaved atomic.Int64
	due     atomic.Bool // one has been asked for since the last one began
}

// segmentSyncs is how many segments are synced at once when nothing else waits for
// the disk, which gains from a few. While appends go on it is one: each sync more is
// one more that an acknowledgement may have to wait behind.
const segmentSyncs = 4

// flushed is the journal's report of one group.
func (e *Engine) flushed(g journal.GroupStats) {
	// Half, because the journal is kept from the checkpoint before the last.
	if e.checkpoints.unsaved.Add(g.Bytes) >= e.o.JournalBytes/2 && !e.checkpoints.due.Swap(true) {
		e.jobs.kick(jobCheckpoint)
	}
	e.o.Events.flushed(Flushed{Entries: g.Entries, Bytes: g.Bytes, Segments: g.Segments, Took: g.Took})
}

// checkpoint takes one. It is what frees space, so that the journal gives up spare
// files for it when there is none.
func (e *Engine) checkpoint(ctx context.Context, id uint64) error {
	for {
		err := e.takeCheckpoint(ctx, id)
		if !noSpace(err) {
			return err
		}
		if gave, failed := e.journal.GiveUpSpare(); failed != nil || !gave {
			return errors.Join(err, failed)
		}
	}
}

func (e *Engine) takeCheckpoint(ctx context.Context, id uint64) error {
	e.checkpoints.Lock()
	defer e.checkpoints.Unlock()
	began := time.Now()
	e.checkpoints.unsaved.Store(0)
	e.checkpoints.due.Store(false)
	number := e.checkpoints.taken.Load() + 1
	e.checkpoints.begun.Store(number)
	position := e.journal.End()
	payload, dirty, partitions := e.capture()
	if err := e.syncJournal(ctx); err != nil {
		return err
	}
	parallel := 1
	if e.closed.Load() {
		parallel = segmentSyncs
	}
	synced, err := e.syncAll(dirty, parallel)
	if err != nil {
		return err
	}
	// A segment may have been clean only because its bytes are lost.
	if err := e.poisoned.Load(); err != nil {
		return *err
	}
	trim, err := journal.WriteCheckpoint(e.o.FS, root, journal.Checkpoint{Position: position, Payload: payload})
	if err != nil {
		return err
	}
	e.checkpoints.taken.Store(number)
	if err := e.journal.Trim(trim); err != nil {
		return err
	}
	e.o.Events.checkpointTaken(CheckpointInfo{
		Job: id, Partitions: partitions, Synced: synced, Bytes: int64(len(payload)), Took: time.Since(began),
	})
	return nil
}

// syncJournal waits until everything sequenced so far is durable, with Durability OS
// too: the checkpoint will name a position, and the journal must reach it.
func (e *Engine) syncJournal(ctx context.Context) error {
	pending := e.Barrier()
	if e.o.Durability == OS {
		queued, err := e.journal.Enqueue(&journal.Entry{Sync: true})
		if err != nil {
			return e.journalError(err)
		}
		pending.group = queued.Group
	}
	return pending.Wait(context.WithoutCancel(ctx))
}

// capture encodes every partition's sequenced state and lists the segments that
// must be synced before it is true.
func (e *Engine) capture() (payload []byte, dirty []*segment.Segment, partitions int) {
	payload = beginPayload(nil)
	for _, p := range e.all() {
		p.mu.Lock() // first of all: the first append may be queued and not entered yet
		if p.end.Load() == 0 {
			p.mu.Unlock()
			continue
		}
		segments := p.segments()
		payload = p.appendState(payload, segments)
		p.mu.Unlock()
		partitions++
		for _, s := range segments {
			if s.Dirty() {
				dirty = append(dirty, s)
			}
		}
	}
	return finishPayload(payload, partitions), dirty, partitions
}

// syncAll syncs segments, a few at a time. A file that is gone belongs to a
// partition that has been deleted or is offline.
func (e *Engine) syncAll(segments []*segment.Segment, parallel int) (synced int, err error) {
	var count atomic.Int64
	errs := make([]error, min(parallel, len(segments)))
	var wg sync.WaitGroup
	for part := range errs {
		wg.Go(func() {
			for i := part; i < len(segments); i += parallel {
				done, err := segments[i].Sync()
				if done {
					count.Add(1)
				}
				if err != nil && !gone(err) {
					errs[part] = err
					return
				}
			}
		})
	}
	wg.Wait()
	err = errors.Join(errs...)
	if failed, ok := errors.AsType[*segment.SyncError](err); ok {
		return int(count.Load()), e.poison(failed)
	}
	if err != nil {
		err = fmt.Errorf("sync segments: %w", err)
	}
	return int(count.Load()), err
}

func gone(err error) bool {
	_, corrupt := errors.AsType[*CorruptionError](err)
	return corrupt || errors.Is(err, fs.ErrNotExist) || errors.Is(err, segment.ErrRemoved)
}
