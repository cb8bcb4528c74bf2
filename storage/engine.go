package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
)

// Names in the data directory; doc.go draws it.
const (
	topicsDirectory = "topics"
	lockFile        = "LOCK"
	identityFile    = "identity.json"
	root            = "."
)

// Engine owns a data directory.
type Engine struct {
	o        Options
	lock     io.Closer
	identity Identity
	journal  *journal.Writer
	files    *segment.Files
	space    space
	jobs     *scheduler
	reaper   reaper
	outbox   outbox

	partitions struct {
		sync.RWMutex
		known   map[model.TopicPartition]*known
		nextSeq uint64
	}

	checkpoints checkpoints

	closed   atomic.Bool
	poisoned atomic.Pointer[error]
	closing  sync.Once
	closeErr error
}

// known is a partition with its handle; opened when the coordinator has asked for it.
type known struct {
	*Partition
	opened bool
}

// Open locks the directory, recovers what a crash left and is ready when it
// returns. The context ends a long recovery early. Errors: *vfs.LockedError,
// *ForeignDirectoryError, *VersionError, *CorruptionError, and what the file
// system says.
func Open(ctx context.Context, o Options) (*Engine, error) {
	o = o.withDefaults()
	lock, err := o.FS.Lock(lockFile)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	e := &Engine{o: o, lock: lock, files: segment.NewFiles(o.FS, o.MaxOpenFiles)}
	e.files.OnSyncError(func(err *segment.SyncError) { e.poisonThen(err, e.later) })
	e.partitions.known = make(map[model.TopicPartition]*known)
	e.space = space{fs: o.FS, reserve: o.ReserveBytes, events: &e.o.Events}
	e.space.exhausted() // nobody has asked yet
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return e, nil
}

func (e *Engine) start(ctx context.Context) error {
	clean, err := e.identify()
	if err != nil {
		return err
	}
	recovered, repaired, err := e.recover(ctx, clean)
	if err != nil {
		return err
	}
	if err := e.outnumber(); err != nil {
		return err
	}
	e.journal, err = journal.Open(recovered, journal.Options{
		FS: e.o.FS, FileBytes: e.o.JournalFileBytes,
		Spares:     int(e.o.JournalBytes/2/e.o.JournalFileBytes) + 1, // what a checkpoint frees
		Durability: journal.Durability(e.o.Durability), SyncDelay: e.o.SyncDelay,
		OnGroup: e.flushed, OnPoison: func(err error) { e.poison(err) },
	})
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	e.checkpoints.unsaved.Add(recovered.Bytes) // beside what entries referred to
	e.jobs = startScheduler(e.o.Workers, e.backgroundJobs(), e.o.Events.backgroundError)
	if repaired {
		if err := e.checkpoint(ctx, e.jobs.id()); err != nil {
			e.jobs.stop()
			return errors.Join(err, e.journal.Close(), e.closeFiles())
		}
	}
	if e.checkpoints.unsaved.Load() >= e.o.JournalBytes/2 {
		e.jobs.kick(jobCheckpoint) // runs too short to take one must not add up
	}
	// What recovery left to do.
	e.jobs.kick(jobOutbox)
	e.jobs.kick(jobReap)
	return nil
}

// Identity names the directory and this start.
func (e *Engine) Identity() Identity { return e.identity }

func (e *Engine) nowMillis() int64 { return e.o.Now().UnixMilli() }

// usable is nil while appends are taken.
func (e *Engine) usable() error {
	if err := e.poisoned.Load(); err != nil {
		return *err
	}
	if e.closed.Load() {
		return ErrClosed
	}
	return nil
}

// poison ends all appending: a sync has failed and nobody knows what is durable.
func (e *Engine) poison(cause error) error {
	return e.poisonThen(cause, func(announce func()) { announce() })
}

// poisonThen lets the caller say when it may be announced.
func (e *Engine) poisonThen(cause error, when func(announce func())) error {
	err := cause
	if !errors.Is(err, ErrPoisoned) {
		err = fmt.Errorf("%w: %w", ErrPoisoned, cause)
	}
	if e.poisoned.CompareAndSwap(nil, &err) {
		when(func() { e.o.Events.poisoned(err) })
	}
	return *e.poisoned.Load()
}

// OpenPartition returns the partition's handle, new or known; the last
// configuration given wins. There is no I/O until the first append. A partition
// that has been deleted is ErrPartitionDeleted.
func (e *Engine) OpenPartition(tp model.TopicPartition, name string, c PartitionConfig) (*Partition, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	if tp.Partition < 0 {
		return nil, fmt.Errorf("open partition %s: negative number", tp)
	}
	e.partitions.Lock()
	defer e.partitions.Unlock()
	if e.partitions.known[tp] == nil && e.reaperHas(tp) {
		// A topic id is used once: whoever comes back to it holds an old one.
		return nil, ErrPartitionDeleted
	}
	k := e.knownLocked(tp)
	k.opened = true
	k.name.Store(&name)
	k.SetConfig(c)
	return k.Partition, nil
}

func (e *Engine) knownLocked(tp model.TopicPartition) *known {
	k := e.partitions.known[tp]
	if k == nil {
		e.partitions.nextSeq++
		k = &known{Partition: newPartition(e, tp, e.partitions.nextSeq)}
		e.partitions.known[tp] = k
	}
	return k
}

// Partition returns the handle of an opened partition.
func (e *Engine) Partition(tp model.TopicPartition) (*Partition, bool) {
	e.partitions.RLock()
	defer e.partitions.RUnlock()
	if k := e.partitions.known[tp]; k != nil && k.opened {
		return k.Partition, true
	}
	return nil, false
}

// Known lists every partition with data on disk, opened or not.
func (e *Engine) Known() []model.TopicPartition {
	var tps []model.TopicPartition
	for _, p := range e.all() {
		if p.end.Load() > 0 {
			tps = append(tps, p.tp)
		}
	}
	return tps
}

// all lists the partitions by seq.
func (e *Engine) all() []*Partition {
	e.partitions.RLock()
	ps := make([]*Partition, 0, len(e.partitions.known))
	for _, k := range e.partitions.known {
		ps = append(ps, k.Partition)
	}
	e.partitions.RUnlock()
	slices.SortFunc(ps, func(a, b *Partition) int { return int(a.seq) - int(b.seq) })
	return ps
}

// Close stops accepting, syncs, writes a checkpoint and the clean-shutdown mark.
// When the context ends first the journal is still closed and everything
// acknowledged is safe, but the next start has to recover. Twice is harmless.
func (e *Engine) Close(ctx context.Context) error {
	e.closing.Do(func() { e.closeErr = e.close(ctx) })
	return e.closeErr
}

func (e *Engine) close(ctx context.Context) error {
	e.closed.Store(true)
	for _, p := range e.all() {
		p.mu.Lock() // behind the appends that are under way
		p.kill(ErrClosed)
		p.mu.Unlock()
	}
	e.jobs.stop()
	e.outbox.deliver()
	clean := e.poisoned.Load() == nil && ctx.Err() == nil
	var errs []error
	if clean {
		e.saveIndexes(ctx)
		errs = append(errs, e.checkpoint(ctx, e.jobs.id()))
	}
	errs = append(errs, e.journal.Close())
	errs = append(errs, e.closeFiles())
	if err := errors.Join(errs...); err != nil || !clean {
		return errors.Join(err, ctx.Err(), e.lock.Close())
	}
	return errors.Join(e.markClean(), e.lock.Close())
}

// closeScanBytes is how much of a log is read at Close to have its index complete.
const closeScanBytes = 4 << 20

// saveIndexes writes the index files that no roll has written.
func (e *Engine) saveIndexes(ctx context.Context) {
	for _, p := range e.all() {
		for _, s := range p.segments() {
			if ctx.Err() != nil {
				return // they are derived
			}
			// A failure costs the next reader time and nothing else.
			_ = s.SaveIndex(closeScanBytes)
		}
	}
}

// closeFiles closes what no reader has pinned.
func (e *Engine) closeFiles() error {
	var errs []error
	for _, p := range e.all() {
		for _, s := range p.segments() {
			errs = append(errs, s.Close())
		}
	}
	e.reaper.Lock()
	defer e.reaper.Unlock()
	for _, o := range e.reaper.queue {
		for _, s := range o.segments {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
