package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

const testFileBytes = 16 << 10

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var testTopic = model.TopicID{0: 0xab, 15: 0xcd}

// inline is an entry of one batch that can be told from others by its offset.
func inline(offset int64, bytes int) []Item {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(offset) + byte(i)
	}
	return []Item{{Kind: KindInline, Partition: model.TopicPartition{Topic: testTopic, Partition: 3},
		Offset: model.Offset(offset), SegmentBase: 0, Position: offset * 100, Bytes: b}}
}

// recoverAll replays a journal and returns copies of its entries.
func recoverAll(fs vfs.FS, o RecoverOptions) ([]Record, *Recovered, error) {
	o.FS = fs
	var records []Record
	r, err := Recover(o, func(rec *Record) error {
		c := *rec
		c.Items = slices.Clone(rec.Items)
		for i := range c.Items {
			c.Items[i].Bytes = bytes.Clone(c.Items[i].Bytes)
		}
		records = append(records, c)
		return nil
	})
	return records, r, err
}

func open(t testing.TB, fs vfs.FS, o Options) *Writer {
	t.Helper()
	_, r, err := recoverAll(fs, RecoverOptions{})
	ok(t, err)
	return openAfter(t, fs, r, o)
}

func openAfter(t testing.TB, fs vfs.FS, r *Recovered, o Options) *Writer {
	t.Helper()
	o.FS = fs
	if o.FileBytes == 0 {
		o.FileBytes = testFileBytes
	}
	w, err := Open(r, o)
	ok(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// add enqueues an entry and waits for it.
func add(t testing.TB, w *Writer, items []Item) Queued {
	t.Helper()
	q, err := w.Enqueue(&Entry{Items: items})
	ok(t, err)
	<-q.Group.Done()
	ok(t, q.Group.Err())
	return q
}

// offsets are the first items' offsets: the identity of test entries.
func offsets(records []Record) (out []int64) {
	for _, r := range records {
		out = append(out, int64(r.Items[0].Offset))
	}
	return out
}

func wantOffsets(t *testing.T, records []Record, want ...int64) {
	t.Helper()
	if got := offsets(records); !slices.Equal(got, want) {
		t.Fatalf("replayed %v, want %v", got, want)
	}
}

func TestEveryItemReadsBackAsWritten(t *testing.T) {
	fs := vfs.NewMemory()
	w := open(t, fs, Options{})
	tp := model.TopicPartition{Topic: testTopic, Partition: 7}
	entries := [][]Item{
		{},
		inline(0, 0),
		inline(1, 1),
		{
			{Kind: KindSetStart, Partition: tp, Offset: 9},
			{Kind: KindInline, Partition: tp, Offset: 10, SegmentBase: 4, Position: 5, Bytes: []byte("abc")},
			{Kind: KindReference, Partition: tp, Offset: 11, SegmentBase: 4, Position: 8, Length: 1 << 20, CRC: 0xdeadbeef},
			{Kind: KindInline, Partition: tp, Offset: 12, SegmentBase: 4, Position: 9, Bytes: []byte("defgh")},
			{Kind: KindSetStart, Partition: tp, Offset: 12},
		},
		inline(5, 3*testFileBytes),
		inline(6, 100),
	}
	var queued []Queued
	for _, items := range entries {
		queued = append(queued, add(t, w, items))
	}
	ok(t, w.Close())
	records, r, err := recoverAll(fs, RecoverOptions{})
	ok(t, err)
	if len(records) != len(entries) {
		t.Fatalf("%d entries came back of %d", len(records), len(entries))
	}
	for i, rec := range records {
		if diff := cmp.Diff(entries[i], rec.Items, cmp.Transformer("bytes", func(b []byte) string { return string(b) })); diff != "" && len(rec.Items) > 0 {
			t.Errorf("entry %d: %s", i, diff)
		}
		if rec.Start != queued[i].Start || rec.End != queued[i].End {
			t.Errorf("entry %d stands at %d to %d, was queued at %+v", i, rec.Start, rec.End, queued[i])
		}
	}
	if last := queued[len(queued)-1]; r.End != last.End || r.Tail != "" {
		t.Errorf("ends at %d (%q), want %d", r.End, r.Tail, last.End)
	}
}

func TestReplayBeginsAtAnyEntry(t *testing.T) {
	fs := vfs.NewMemory()
	w := open(t, fs, Options{})
	var starts []LSN
	for i := range int64(40) {
		starts = append(starts, add(t, w, inline(i, 1000)).Start)
	}
	starts = append(starts, w.End())
	ok(t, w.Close())
	for i, from := range starts {
		records, r, err := recoverAll(fs, RecoverOptions{From: from})
		ok(t, err)
		if len(records) != 40-i || r.End != starts[40] {
			t.Fatalf("from entry %d: %d entries, end %d", i, len(records), r.End)
		}
	}
	_, _, err := recoverAll(fs, RecoverOptions{From: starts[3] + 8})
	if _, corrupt := errors.AsType[*CorruptionError](err); !corrupt {
		t.Fatalf("from the middle of an entry: %v", err)
	}
}

func TestTheJournalContinuesAfterEveryRestart(t *testing.T) {
	fs := vfs.NewMemory()
	var want []int64
	for run := range int64(5) {
		w := open(t, fs, Options{})
		for i := range 3 + run {
			want = append(want, run*10+i)
			add(t, w, inline(run*10+i, 3000))
		}
		ok(t, w.Close())
	}
	records, _, err := recoverAll(fs, RecoverOptions{})
	ok(t, err)
	wantOffsets(t, records, want...)
}

// gate is a file system whose journal syncs wait for a permission.
type gate struct {
	vfs.FS
	mu      sync.Mutex
	allowed *sync.Cond
	closed  bool
	waiting int
	syncs   []string
}

func newGate(fs vfs.FS) *gate {
	g := &gate{FS: fs}
	g.allowed = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	g.allowed.Broadcast()
}

// awaitSync returns when a sync waits at the gate.
func (g *gate) awaitSync() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.waiting == 0 {
		g.allowed.Wait()
	}
}

func (g *gate) Open(name string) (vfs.File, error)   { return g.wrap(g.FS.Open(name)) }
func (g *gate) Create(name string) (vfs.File, error) { return g.wrap(g.FS.Create(name)) }
func (g *gate) OpenDirect(name string) (vfs.File, error) {
	return g.wrap(g.FS.OpenDirect(name))
}
func (g *gate) wrap(f vfs.File, err error) (vfs.File, error) {
	return &gatedFile{File: f, g: g}, err
}

type gatedFile struct {
	vfs.File
	g *gate
}

func (f *gatedFile) Sync() error {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.g.waiting++
	f.g.allowed.Broadcast()
	for f.g.closed {
		f.g.allowed.Wait()
	}
	f.g.waiting--
	f.g.syncs = append(f.g.syncs, f.Name())
	return f.File.Sync()
}

// While one sync runs, everything else gathers and shares the next one; hooks run
// in the order of the queue, and before the channel closes.
func TestEntriesGatherBehindTheRunningSync(t *testing.T) {
	g := newGate(vfs.NewMemory())
	var groups []int
	w := open(t, g, Options{FileBytes: 1 << 20, OnGroup: func(s GroupStats) { groups = append(groups, s.Entries) }})
	g.set(true)
	first, err := w.Enqueue(&Entry{Items: inline(0, 10)})
	ok(t, err)
	g.awaitSync()
	var order []int64
	var later []Queued
	for i := range int64(50) {
		q, err := w.Enqueue(&Entry{Items: inline(i+1, 10), Done: func(err error) {
			if err != nil {
				t.Errorf("entry %d: %v", i+1, err)
			}
			order = append(order, i)
		}})
		ok(t, err)
		later = append(later, q)
	}
	barrier := w.Barrier()
	g.set(false)
	<-first.Group.Done()
	<-barrier.Done()
	for i, q := range later {
		if q.Group != later[0].Group || q.Group != barrier {
			t.Fatalf("entry %d is in a group of its own", i)
		}
	}
	ok(t, w.Close())
	if !slices.Equal(groups, []int{1, 50}) || len(order) != 50 || !slices.IsSorted(order) {
		t.Fatalf("groups %v, hooks %v", groups, order)
	}
	if s := w.Stats(); s.Entries != 51 || s.Groups != 2 || s.Syncs != 2 || s.Queued != 0 || s.Synced != s.End {
		t.Fatalf("stats %+v", s)
	}
}

func TestBarrierOfAnIdleJournalIsDone(t *testing.T) {
	w := open(t, vfs.NewMemory(), Options{})
	<-w.Barrier().Done()
	add(t, w, inline(0, 1))
	<-w.Barrier().Done()
	ok(t, w.Barrier().Err())
}

// An entry may name a batch's bytes only after they are durable.
func TestSegmentsAreSyncedBeforeTheEntryThatRefersToThem(t *testing.T) {
	g := newGate(vfs.NewMemory())
	w := open(t, g, Options{FileBytes: 1 << 20})
	g.syncs = nil
	var items []Item
	for i := range 6 {
		f, err := g.Create(fmt.Sprintf("segment%d", i/2))
		ok(t, err)
		if i%2 == 1 {
			f = items[i-1].File
		}
		items = append(items, Item{Kind: KindReference, Offset: model.Offset(i), Length: 1, File: f})
	}
	add(t, w, items)
	if n := len(g.syncs); n != 4 || !strings.HasSuffix(g.syncs[3], fileSuffix) {
		t.Fatalf("synced %q", g.syncs)
	}
}

func TestEnqueueWaitsForRoomInTheQueue(t *testing.T) {
	g := newGate(vfs.NewMemory())
	w := open(t, g, Options{QueueBytes: 10_000})
	g.set(true)
	_, err := w.Enqueue(&Entry{Items: inline(0, 6000)})
	ok(t, err)
	entered := make(chan Queued)
	go func() {
		q, err := w.Enqueue(&Entry{Items: inline(1, 6000)})
		if err != nil {
			t.Error(err)
		}
		entered <- q
	}()
	g.awaitSync()
	select {
	case <-entered:
		t.Fatal("entered a full queue")
	default:
	}
	g.set(false)
	q := <-entered
	<-q.Group.Done()
	ok(t, q.Group.Err())
}

func TestAFailedWriteOrSyncPoisonsForGood(t *testing.T) {
	tests := map[string]vfs.Rule{
		"sync":        {Op: vfs.OpSync, Times: 1, Err: syscall.EIO, DropDirty: true},
		"write":       {Op: vfs.OpWrite, Times: 1, Err: syscall.EIO},
		"short write": {Op: vfs.OpWrite, Times: 1, Err: syscall.ENOSPC, Short: 500},
	}
	for name, rule := range tests {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMemory()
			fault := vfs.NewFault(fs)
			var poisoned []error
			// So large that no next file is made, whose write or sync would be the one.
			w := open(t, fault, Options{FileBytes: 1 << 20, OnPoison: func(err error) { poisoned = append(poisoned, err) }})
			add(t, w, inline(0, 1000))
			fault.Add(rule)
			var hook error
			q, err := w.Enqueue(&Entry{Items: inline(1, 1000), Done: func(err error) { hook = err }})
			ok(t, err)
			<-q.Group.Done()
			for what, err := range map[string]error{"group": q.Group.Err(), "hook": hook, "barrier": w.Barrier().Err(), "close": w.Close()} {
				if !errors.Is(err, ErrPoisoned) || !errors.Is(err, rule.Err) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := w.Enqueue(&Entry{Items: inline(2, 10)}); !errors.Is(err, ErrPoisoned) {
				t.Errorf("a later entry: %v", err)
			}
			if len(poisoned) != 1 {
				t.Errorf("reported %v", poisoned)
			}
			records, _, err := recoverAll(fs.Crash(nil), RecoverOptions{})
			ok(t, err)
			wantOffsets(t, records, 0)
		})
	}
}

func TestAFailedSegmentSyncPoisons(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	w := open(t, fault, Options{})
	f, err := fault.Create("segment")
	ok(t, err)
	fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "segment", Err: syscall.EIO})
	q, err := w.Enqueue(&Entry{Items: []Item{{Kind: KindReference, File: f}}})
	ok(t, err)
	<-q.Group.Done()
	if !errors.Is(q.Group.Err(), ErrPoisoned) {
		t.Fatalf("got %v", q.Group.Err())
	}
}

// Running out of space for the next file refuses entries before their order is
// fixed; when there is space again the journal goes on.
func TestNoSpaceForTheNextFileRefusesAndRecovers(t *testing.T) {
	fs := vfs.NewMemory()
	fault := vfs.NewFault(fs)
	w := open(t, fault, Options{})
	fault.Add(vfs.Rule{Op: vfs.OpCreate, Err: syscall.ENOSPC})
	var last int64
	for refused := false; !refused; {
		q, err := w.Enqueue(&Entry{Items: inline(last, 1000)})
		switch {
		case errors.Is(err, ErrFull) && errors.Is(err, syscall.ENOSPC):
			refused = true
		case err != nil:
			t.Fatal(err)
		default:
			<-q.Group.Done()
			ok(t, q.Group.Err())
			last++
			awaitIdlePreparer(w)
		}
	}
	if last < 8 {
		t.Fatalf("refused after %d entries", last)
	}
	fault.Clear()
	for {
		q, err := w.Enqueue(&Entry{Items: inline(last, 1000)})
		if errors.Is(err, ErrFull) {
			awaitIdlePreparer(w)
			continue
		}
		ok(t, err)
		<-q.Group.Done()
		ok(t, q.Group.Err())
		break
	}
	ok(t, w.Close())
	records, _, err := recoverAll(fs, RecoverOptions{})
	ok(t, err)
	if len(records) != int(last)+1 {
		t.Fatalf("%d entries of %d", len(records), last+1)
	}
}

func awaitIdlePreparer(w *Writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.mu.next == nil && w.dueLocked() > w.mu.made {
		w.files.Wait()
	}
}

func TestClosedJournalRefuses(t *testing.T) {
	w := open(t, vfs.NewMemory(), Options{})
	add(t, w, inline(0, 1))
	ok(t, w.Close())
	ok(t, w.Close())
	if _, err := w.Enqueue(&Entry{Items: inline(1, 1)}); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	for _, d := range []Durability{Fsync, OS} {
		g := newGate(vfs.NewMemory())
		w := open(t, g, Options{Durability: d})
		for i := range int64(100) {
			_, err := w.Enqueue(&Entry{Items: inline(i, 1000)})
			ok(t, err)
		}
		ok(t, w.Close())
		records, _, err := recoverAll(g.FS.(*vfs.Memory).Crash(nil), RecoverOptions{})
		ok(t, err)
		if len(records) != 100 {
			t.Fatalf("durability %d: %d entries", d, len(records))
		}
	}
}

func TestWithoutFsyncNothingIsSyncedPerEntry(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	w := open(t, fault, Options{Durability: OS, FileBytes: 1 << 20})
	before := fault.Count(vfs.OpSync)
	for i := range int64(5) {
		add(t, w, inline(i, 10))
	}
	if n := fault.Count(vfs.OpSync) - before; n != 0 {
		t.Fatalf("%d syncs", n)
	}
}

func TestUnwritableEntriesAreRefused(t *testing.T) {
	w := open(t, vfs.NewMemory(), Options{})
	if _, err := w.Enqueue(&Entry{Items: []Item{{Kind: 9}}}); err == nil {
		t.Error("took an item of no known kind")
	}
	huge := make([]byte, MaxEntryBytes/2+1)
	_, err := w.Enqueue(&Entry{Items: []Item{{Kind: KindInline, Bytes: huge}, {Kind: KindInline, Bytes: huge}}})
	if _, tooLarge := errors.AsType[*EntryTooLargeError](err); !tooLarge {
		t.Errorf("took an entry beyond the limit: %v", err)
	}
	if w.End() != 0 {
		t.Errorf("refused entries took positions up to %d", w.End())
	}
}

func TestSyncDelayIsSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, vfs.NewMemory(), Options{SyncDelay: time.Hour})
		began := time.Now()
		add(t, w, inline(0, 1))
		if took := time.Since(began); took != time.Hour {
			t.Fatalf("synced after %v", took)
		}
		ok(t, w.Close())
	})
}

// Trim frees whole files below a position, and they are used again under new
// names; what they held is never read.
func TestTrimmedFilesAreUsedAgain(t *testing.T) {
	fs := vfs.NewMemory()
	w := open(t, fs, Options{Spares: 2})
	var from LSN
	for i := range int64(200) {
		q := add(t, w, inline(i, 1000))
		if i%20 == 19 {
			from = q.Start
			ok(t, w.Trim(from))
		}
	}
	s := w.Stats()
	if s.Recycled < 5 || s.Files > 3 {
		t.Fatalf("stats %+v", s)
	}
	infos, err := fs.ReadDir(Directory)
	ok(t, err)
	if len(infos) > 6 {
		t.Fatalf("%d files are left", len(infos))
	}
	ok(t, w.Close())
	records, r, err := recoverAll(fs, RecoverOptions{From: from, Keep: from})
	ok(t, err)
	wantOffsets(t, records, 199)

	w = openAfter(t, fs, r, Options{Spares: 2})
	if s := w.Stats(); s.Recycled == 0 { // the file after this one may be on its way too
		t.Fatalf("stats after the restart: %+v", s)
	}
	add(t, w, inline(200, 10))
	ok(t, w.Close())
	records, _, err = recoverAll(fs, RecoverOptions{From: from})
	ok(t, err)
	wantOffsets(t, records, 199, 200)
}

// A restart must not use files again that the checkpoint before the last needs.
func TestARestartKeepsWhatTheOlderCheckpointNeeds(t *testing.T) {
	fs := vfs.NewMemory()
	w := open(t, fs, Options{})
	var starts []LSN
	for i := range int64(60) {
		starts = append(starts, add(t, w, inline(i, 1000)).Start)
	}
	ok(t, w.Close())
	for _, keep := range []LSN{0, starts[20]} {
		_, r, err := recoverAll(fs, RecoverOptions{From: starts[50], Keep: keep})
		ok(t, err)
		w = openAfter(t, fs, r, Options{})
		add(t, w, inline(99, 1))
		ok(t, w.Close())
		records, _, err := recoverAll(fs, RecoverOptions{From: keep})
		ok(t, err)
		if n := len(records); n < 40 {
			t.Fatalf("kept from %d: %d entries are left", keep, n)
		}
	}
}

func TestRecoverOfNothingIsANewJournal(t *testing.T) {
	for name, prepare := range map[string]func(vfs.FS) error{
		"no directory":    func(vfs.FS) error { return nil },
		"empty directory": func(fs vfs.FS) error { return fs.MkdirAll(Directory) },
	} {
		fs := vfs.NewMemory()
		ok(t, prepare(fs))
		records, r, err := recoverAll(fs, RecoverOptions{})
		if len(records) != 0 || err != nil || r.End != 0 {
			t.Errorf("%s: %d entries, %+v, %v", name, len(records), r, err)
		}
	}
}

func TestAFileOfALaterReleaseIsNotTouched(t *testing.T) {
	fs := vfs.NewMemory()
	w := open(t, fs, Options{})
	ok(t, w.Close())
	f, err := fs.Open(Directory + "/" + fileName(1))
	ok(t, err)
	b := make([]byte, fileHeaderUsed)
	_, err = f.ReadAt(b, 0)
	ok(t, err)
	binary.BigEndian.PutUint32(b[8:], formatVersion+1)
	binary.BigEndian.PutUint32(b[12:], headerChecksum(b))
	_, err = f.WriteAt(b, 0)
	ok(t, err)
	_, _, err = recoverAll(fs, RecoverOptions{Repair: true})
	if _, later := errors.AsType[*VersionError](err); !later {
		t.Fatalf("got %v", err)
	}
}
