package journal

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Durability says when an entry is done.
type Durability uint8

const (
	// Fsync: after fdatasync returned.
	Fsync Durability = iota
	// OS: after the write returned. It survives the end of the process, not that of
	// the machine.
	OS
)

// Options of a Writer. The zero value means the default written beside it.
type Options struct {
	FS         vfs.FS
	FileBytes  int64 // of one file, header included; 16 MiB. The first files after a start without spares are smaller
	Durability Durability
	// SyncDelay is slept before every sync, to make a slow disk for tests.
	SyncDelay time.Duration
	// QueueBytes is how much may wait for the flusher before Enqueue blocks: 64 MiB,
	// what a disk of 100 MB/s writes in the shortest client timeout seen in use. An
	// entry larger than that waits until the queue is empty.
	QueueBytes int64
	// Spares is how many old files are kept to be used again; 2, as many as a
	// checkpoint's pause fills while it runs.
	Spares int
	// SegmentSyncs is how many segments are synced at once; 4.
	SegmentSyncs int
	// OnGroup and OnPoison run on the flusher and must not block.
	OnGroup  func(GroupStats)
	OnPoison func(error)
}

// A new file is filled with zeros before it is used, and the first one while the
// broker starts. So that one is small, unless there is an old one to use again, and
// each further new one is larger, made while the one before it fills.
const (
	firstFileBytes = 1 << 20
	fileGrowth     = 2
)

func (o Options) withDefaults() Options {
	o.FileBytes = max(orDefault(o.FileBytes, 16<<20), 2*fileHeaderBytes)
	o.FileBytes = (o.FileBytes + pageBytes - 1) &^ (pageBytes - 1)
	o.QueueBytes = orDefault(o.QueueBytes, 64<<20)
	o.Spares = orDefault(o.Spares, 2)
	o.SegmentSyncs = orDefault(o.SegmentSyncs, 4)
	return o
}

func orDefault[T int | int64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// GroupStats describes one turn of the flusher.
type GroupStats struct {
	Entries  int
	Bytes    int64
	Segments int           // synced for items by reference
	Took     time.Duration // from the first segment's sync to the journal's
}

// Stats is a snapshot of a Writer.
type Stats struct {
	Entries, Groups, Syncs, Bytes int64 // written since Open; Syncs of the journal only
	Rotations, Recycled           int64 // files begun, and how many of them were old ones
	Queued                        int64 // bytes waiting
	Files                         int   // that hold entries
	End, Synced                   LSN   // what is sequenced, what is done
}

// Group is what one turn of the flusher completes.
type Group struct {
	done chan struct{}
	err  error
}

// Done is closed after the hooks of all its entries have run.
func (g *Group) Done() <-chan struct{} { return g.done }

// Err is nil when the entries are durable. Only after Done.
func (g *Group) Err() error { return g.err }

// Queued tells where an entry stands.
type Queued struct {
	Group      *Group
	Start, End LSN // End is the LSN of the next entry
}

// Writer appends to the journal. All methods may be called from any goroutine.
type Writer struct {
	o   Options
	dir string

	mu struct {
		sync.Mutex
		queue    []queued
		bytes    int64  // in queue and in the flusher's hands
		end      LSN    // of the next entry
		synced   LSN    // everything below is done
		open     *Group // of queue; nil when the queue is empty
		flushing *Group // in the flusher's hands, or nil
		closing  bool
		err      error // why nothing more is accepted

		used       []span // files with entries, the last one is current
		limit      LSN    // an entry that ends beyond does not fit into the current file
		spares     []string
		nextBytes  int64 // size of the next file when it is not an old one
		nextNumber uint64
		size       int64   // of the current file
		consumed   int64   // of it, header included
		next       *file   // prepared
		made       float64 // how much of a file on its way to be next is filled, 0 to 1
		want       bool    // somebody waits for next
		nextErr    error   // why the last attempt failed
		stats      Stats
	}
	work  sync.Cond // queue, closing: for the flusher
	room  sync.Cond // bytes, err: for Enqueue
	files sync.Cond // want: for the preparer; next, nextErr: for the flusher

	// Owned by the flusher.
	current *file
	out     buffer // its offset is that of the next entry in current
	durable LSN    // below it everything was synced

	running sync.WaitGroup
}

// file is a journal file open for writing.
type file struct {
	vfs.File
	header  fileHeader
	size    int64 // allocated, header included
	filled  int64 // of it
	ready   bool  // name and header are durable
	started bool  // the header on the disk carries start
}

type queued struct {
	encoded *encoded // the caller's again after done
	bytes   int64
	at      LSN
	refs    []vfs.File
	sync    bool // see Entry
	done    func(error)
}

// Open continues the journal behind what Recover found, in a new file. Recover
// and Open are given the same file system.
func Open(r *Recovered, o Options) (*Writer, error) {
	w := &Writer{o: o.withDefaults(), dir: r.dir, durable: r.End}
	w.work.L, w.room.L, w.files.L = &w.mu, &w.mu, &w.mu
	w.mu.end, w.mu.synced = r.End, r.End
	w.mu.used, w.mu.nextNumber, w.mu.nextBytes = slices.Clone(r.used), r.nextNumber, min(firstFileBytes, w.o.FileBytes)
	if err := w.begin(r); err != nil {
		return nil, err
	}
	w.running.Add(2)
	go w.labelled("journal flusher", w.flushLoop)
	go w.labelled("journal preparer", w.prepareLoop)
	return w, nil
}

func (w *Writer) labelled(name string, loop func()) {
	defer w.running.Done()
	pprof.Do(context.Background(), pprof.Labels("goroutine", name), func(context.Context) { loop() })
}

// begin sorts out the files of the last run and makes the first one of this. Its
// start is durable before anything is written, so that an empty journal can be
// told from a lost one.
func (w *Writer) begin(r *Recovered) error {
	if err := w.o.FS.MkdirAll(w.dir); err != nil {
		return fmt.Errorf("make journal directory: %w", err)
	}
	if err := w.o.FS.SyncDir(path.Dir(w.dir)); err != nil {
		return fmt.Errorf("sync directory of the journal: %w", err)
	}
	if err := w.settle(r); err != nil {
		return err
	}
	for _, name := range r.dropped {
		if err := w.o.FS.Rename(name, name+damagedSuffix); err != nil {
			return fmt.Errorf("set damaged journal file aside: %w", err)
		}
	}
	if err := w.keepSpares(r.spares); err != nil {
		return err
	}
	var f *file
	for f == nil || !f.ready {
		var err error
		if f, err = w.prepare(f); err != nil {
			return err
		}
	}
	f.header.start, f.started = r.End, true
	if _, err := f.WriteAt(f.header.encode(), 0); err != nil {
		return errors.Join(fmt.Errorf("write journal file header: %w", err), f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync journal file: %w", err), f.Close())
	}
	w.use(f)
	return nil
}

// settle makes durable what Recover has replayed. A process that was killed between
// its last write and the sync leaves entries that are read back and shown, and that a
// power cut would still take. Files before the last one were synced when it was begun.
func (w *Writer) settle(r *Recovered) error {
	if r.Entries == 0 || len(r.used) == 0 {
		return nil
	}
	f, err := w.o.FS.Open(r.used[len(r.used)-1].path)
	if err != nil {
		return fmt.Errorf("open journal file: %w", err)
	}
	if err := f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync journal file: %w", err), f.Close())
	}
	return f.Close()
}

// Enqueue puts an entry at the end of the journal. When it returns the entry's
// place is fixed, and it and its bytes are the Writer's until Done. It blocks while the
// queue is full. ErrFull and *EntryTooLargeError refuse this entry;
// ErrPoisoned and ErrClosed are final. After an error Done is never called.
func (w *Writer) Enqueue(e *Entry) (Queued, error) {
	enc := &e.encoded
	if err := enc.encode(e.Items); err != nil {
		return Queued{}, err
	}
	q := queued{encoded: enc, bytes: enc.bytes, refs: references(e.Items), sync: e.Sync, done: e.Done}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.mu.err == nil && w.mu.bytes > 0 && w.mu.bytes+enc.bytes > w.o.QueueBytes {
		w.room.Wait()
	}
	if w.mu.err != nil {
		return Queued{}, w.mu.err
	}
	if err := w.checkRoomLocked(enc.bytes); err != nil {
		return Queued{}, err
	}
	q.at = w.mu.end
	w.mu.end += LSN(enc.bytes)
	w.mu.bytes += enc.bytes
	w.mu.queue = append(w.mu.queue, q)
	if w.mu.open == nil {
		w.mu.open = &Group{done: make(chan struct{})}
		w.work.Signal()
	}
	return Queued{Group: w.mu.open, Start: q.at, End: w.mu.end}, nil
}

// checkRoomLocked refuses an entry that would need a file which could not be made.
// Once sequenced, an entry that cannot be written poisons the journal.
func (w *Writer) checkRoomLocked(n int64) error {
	if w.mu.nextErr == nil || w.mu.next != nil || w.mu.end+LSN(n) <= w.mu.limit {
		return nil
	}
	w.wantFileLocked()
	return fmt.Errorf("%w: %w", ErrFull, w.mu.nextErr)
}

func references(items []Item) (files []vfs.File) {
	for i := range items {
		if items[i].Kind == KindReference && items[i].File != nil {
			files = append(files, items[i].File)
		}
	}
	return files
}

// Barrier is done when everything sequenced so far is.
func (w *Writer) Barrier() *Group {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.open != nil:
		return w.mu.open
	case w.mu.flushing != nil:
		return w.mu.flushing
	}
	g := &Group{done: make(chan struct{})}
	if errors.Is(w.mu.err, ErrPoisoned) {
		g.err = w.mu.err
	}
	close(g.done)
	return g
}

// End is the LSN of the next entry.
func (w *Writer) End() LSN {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.end
}

// Stats returns a snapshot.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.mu.stats
	s.Queued, s.Files, s.End, s.Synced = w.mu.bytes, len(w.mu.used), w.mu.end, w.mu.synced
	return s
}

// Close accepts nothing more, writes what is queued, syncs and returns when both
// goroutines have ended. Twice is harmless. A poisoned journal returns why.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.mu.closing = true
	if w.mu.err == nil {
		w.mu.err = ErrClosed
	}
	w.work.Broadcast()
	w.room.Broadcast()
	w.files.Broadcast()
	w.mu.Unlock()
	w.running.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(w.mu.err, ErrPoisoned) {
		return w.mu.err
	}
	return nil
}
