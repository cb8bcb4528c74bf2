package segment

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

func TestNamesAreReadBackAndNothingElseIs(t *testing.T) {
	for _, id := range []ID{{}, {Base: 7}, {Base: math.MaxInt64}, {Base: 12, Generation: 1}, {Base: 12, Generation: math.MaxUint32}} {
		for name, log := range map[string]bool{id.LogName(): true, id.IndexName(): false} {
			got, isLog, ok := ParseName(name)
			if !ok || got != id || isLog != log {
				t.Errorf("%q: %+v, log %v, %v", name, got, isLog, ok)
			}
		}
	}
	for _, name := range []string{
		"", "x", "00000000000000000007", "00000000000000000007.", "00000000000000000007.log.0", "00000000000000000007.log.01",
		"00000000000000000007.log.x", "00000000000000000007.logs", "0000000000000000007.log", "000000000000000000007.log",
		"99999999999999999999.log", "-0000000000000000007.log", "00000000000000000007.log.4294967296", "00000000000000000007.log.tmp",
	} {
		if id, _, ok := ParseName(name); ok {
			t.Errorf("%q is %+v", name, id)
		}
	}
}

// build is a batch of n records at an offset.
func build(t testing.TB, base model.Offset, ts model.Timestamp, n, size int) batch.View {
	b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: base})
	for range n {
		b.Add(batch.NewRecord{Timestamp: ts, Value: make([]byte, size)})
	}
	v, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func add(t testing.TB, s *Segment, v batch.View) {
	h := v.Header()
	if err := s.Write(v.Bytes(), s.Size()); err != nil {
		t.Fatal(err)
	}
	s.Append(&h, 1)
}

func newSegment(files *Files, m Meta, every int) *Segment {
	return New(files, "t/0", []string{"t/0", "t", "."}, m, every)
}

// TestSearchesAgreeWithWalkingTheLog builds logs with gaps and compares every
// search with a walk over the batches: while appending, after opening again with the
// index file, and without it.
func TestSearchesAgreeWithWalkingTheLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		memory := vfs.NewMemory()
		every := rapid.IntRange(1, 500).Draw(rt, "interval")
		s := newSegment(NewFiles(memory, 1), Meta{ID: ID{Base: 100}}, every)
		var log []batch.Header
		next := model.Offset(100)
		for i := range rapid.IntRange(1, 60).Draw(rt, "batches") {
			next += model.Offset(rapid.IntRange(0, 2).Draw(rt, fmt.Sprint("gap", i)))
			v := build(t, next, model.Timestamp(rapid.IntRange(0, 50).Draw(rt, fmt.Sprint("ts", i))), rapid.IntRange(1, 3).Draw(rt, fmt.Sprint("n", i)), rapid.IntRange(0, 200).Draw(rt, fmt.Sprint("size", i)))
			add(t, s, v)
			log = append(log, v.Header())
			next = v.NextOffset()
		}
		compare(rt, s, log)
		meta := s.Meta()
		s.Seal()
		s.index.saved.Store(-1)
		if err := forceSave(s); err != nil {
			rt.Fatal(err)
		}
		if err := s.Close(); err != nil {
			rt.Fatal(err)
		}
		compare(rt, s, log)
		compare(rt, newSegment(NewFiles(memory, 1), meta, every), log)
		if err := memory.Remove(s.path(s.id.IndexName())); err != nil {
			rt.Fatal(err)
		}
		compare(rt, newSegment(NewFiles(memory, 1), meta, every), log)
		// Opened again in the middle and appended to.
		cut := rapid.IntRange(0, len(log)).Draw(rt, "cut")
		front := newSegment(NewFiles(vfs.NewMemory(), 1), Meta{ID: ID{Base: 100}}, every)
		for i := range log[:cut] {
			front.Append(&log[i], 1)
		}
		again := newSegment(NewFiles(memory, 1), front.Meta(), every)
		for i := range log[cut:] {
			again.Append(&log[cut+i], 1)
		}
		compare(rt, again, log)
	})
}

// The index file ends with its last entry, the log behind that may hold larger
// timestamps.
func TestASearchByTimeAfterARestartFindsWhatStandsBehindTheLastEntry(t *testing.T) {
	memory := vfs.NewMemory()
	s := newSegment(NewFiles(memory, 1), Meta{}, 1000)
	for i, ts := range []model.Timestamp{10, 20, 30, 99} {
		add(t, s, build(t, model.Offset(i), ts, 1, 300))
	}
	if err := forceSave(s); err != nil {
		t.Fatal(err)
	}
	meta := s.Meta()
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = newSegment(NewFiles(memory, 1), meta, 1000)
	for i := range 10 {
		add(t, s, build(t, model.Offset(4+i), 40+model.Timestamp(i), 1, 300))
	}
	f, ok, err := s.LocateTime(90, s.Size())
	if err != nil || !ok || f.Header.BaseOffset != 3 {
		t.Errorf("found %+v, %v, %v; want offset 3", f, ok, err)
	}
}

// forceSave writes the index file of a log that is too small to need one.
func forceSave(s *Segment) error {
	if err := s.fill(math.MaxInt64); err != nil {
		return err
	}
	f, err := s.files.fs.Create(s.path(s.id.IndexName()))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(s.index.encode(s.Size()), 0)
	s.index.saved.Store(s.Size())
	return err
}

func compare(t *rapid.T, s *Segment, log []batch.Header) {
	pos := make([]int64, len(log)+1)
	for i, h := range log {
		pos[i+1] = pos[i] + int64(h.Len)
	}
	for range 20 {
		end := rapid.IntRange(0, len(log)).Draw(t, "end")
		first := func(want func(batch.Header) bool) int {
			for i, h := range log[:end] {
				if want(h) {
					return i
				}
			}
			return -1
		}
		expect := func(what string, f Found, ok bool, err error, want int) {
			if err != nil || ok != (want >= 0) || ok && (f.Pos != pos[want] || f.Header != log[want]) {
				t.Fatalf("%s in front of batch %d: %+v, %v, %v; want batch %d", what, end, f, ok, err, want)
			}
		}
		o := model.Offset(rapid.IntRange(95, int(log[len(log)-1].NextOffset())+3).Draw(t, "offset"))
		f, ok, err := s.Locate(o, pos[end])
		expect(fmt.Sprint("offset ", o), f, ok, err, first(func(h batch.Header) bool { return h.LastOffset() >= o }))

		ts := model.Timestamp(rapid.IntRange(-1, 52).Draw(t, "time"))
		f, ok, err = s.LocateTime(ts, pos[end])
		expect(fmt.Sprint("time ", ts), f, ok, err, first(func(h batch.Header) bool { return h.MaxTimestamp >= ts }))

		top := -1
		for i, h := range log[:end] {
			if h.LastOffset() >= o && (top < 0 || h.MaxTimestamp > log[top].MaxTimestamp) {
				top = i
			}
		}
		f, ok, err = s.MaxTime(o, pos[end])
		expect(fmt.Sprint("largest time from ", o), f, ok, err, top)

		if end == 0 {
			continue
		}
		begin := rapid.IntRange(0, end-1).Draw(t, "begin")
		limit := rapid.Int64Range(0, pos[len(log)]+10).Draw(t, "bytes")
		one := rapid.Bool().Draw(t, "one")
		want := begin
		for want < end && log[want].BaseOffset < o && (pos[want+1]-pos[begin] <= limit || one && want == begin) {
			want++
		}
		x, err := s.Measure(pos[begin], limit, one, pos[end], o)
		if o <= log[begin].BaseOffset {
			continue // Measure is not asked for what is not visible
		}
		if err != nil || x.End != pos[want] || want < end && (x.Next > log[want].BaseOffset || x.Next <= log[max(want-1, 0)].LastOffset() && want > begin) {
			t.Fatalf("%d bytes from batch %d in front of batch %d and offset %d: %+v, %v; want up to batch %d", limit, begin, end, o, x, err, want)
		}
	}
	m := s.Meta()
	if m.Size != pos[len(log)] || m.Next != log[len(log)-1].NextOffset() {
		t.Fatalf("meta %+v", m)
	}
}

func TestMetaRemembersTheFirstOfTheLargestTimestamps(t *testing.T) {
	s := newSegment(NewFiles(vfs.NewMemory(), 1), Meta{ID: ID{Base: 10}}, 100)
	for i, ts := range []model.Timestamp{5, 9, 9, 3} {
		add(t, s, build(t, model.Offset(10+i), ts, 1, 1))
	}
	if m := s.Meta(); m.MaxTimestamp != 9 || m.MaxTimestampBase != 11 || m.Created != 1 || m.Next != 14 {
		t.Errorf("meta %+v", m)
	}
}

func TestOnlySoManyFilesAreOpen(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	files := NewFiles(fault, 3)
	var segments []*Segment
	for i := range 10 {
		s := newSegment(files, Meta{ID: ID{Base: model.Offset(i * 10)}}, 100)
		add(t, s, build(t, model.Offset(i*10), 1, 1, 1))
		segments = append(segments, s)
	}
	if n := files.Open(); n > 3 {
		t.Errorf("%d files are open", n)
	}
	// What was closed had been synced: nobody would hear of its errors later.
	if n := fault.Count(vfs.OpSync); n != 7 {
		t.Errorf("%d syncs for 7 closed files", n)
	}
	// Pinned ones stay open, however many.
	for _, s := range segments {
		f, err := s.Acquire()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Release()
		defer func() {
			if _, err := f.ReadAt(make([]byte, 61), 0); err != nil {
				t.Errorf("a pinned file was closed: %v", err)
			}
		}()
	}
	if n := files.Open(); n != 10 {
		t.Errorf("%d files are open, 10 are pinned", n)
	}
}

func TestRemoveWaitsForReaders(t *testing.T) {
	memory := vfs.NewMemory()
	s := newSegment(NewFiles(memory, 3), Meta{}, 100)
	add(t, s, build(t, 0, 1, 1, 1))
	if _, err := s.Acquire(); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.Remove(); removed || err != nil {
		t.Errorf("removed under a reader: %v, %v", removed, err)
	}
	s.Release()
	if removed, err := s.Remove(); !removed || err != nil {
		t.Errorf("not removed: %v, %v", removed, err)
	}
	if _, err := memory.Stat(s.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	if _, err := s.Acquire(); !errors.Is(err, ErrRemoved) {
		t.Errorf("opened after removal: %v", err)
	}
}

func TestSyncCoversTheBytesAndTheName(t *testing.T) {
	memory := vfs.NewMemory()
	s := newSegment(NewFiles(memory, 3), Meta{}, 100)
	v := build(t, 0, 1, 1, 50)
	add(t, s, v)
	for _, want := range []bool{true, false} {
		if synced, err := s.Sync(); synced != want || err != nil {
			t.Errorf("synced %v, want %v: %v", synced, want, err)
		}
	}
	got, err := vfs.ReadFile(memory.Crash(nil), s.Path(), 1000)
	if err != nil || !bytes.Equal(got, v.Bytes()) {
		t.Errorf("%d bytes survived, %v", len(got), err)
	}
}

func TestCutRemovesWhatWasNeverAppended(t *testing.T) {
	memory := vfs.NewMemory()
	s := newSegment(NewFiles(memory, 3), Meta{}, 100)
	add(t, s, build(t, 0, 1, 1, 50))
	if err := s.Write(make([]byte, 33), s.Size()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{33, 0} {
		if cut, err := s.Cut(); cut != want || err != nil {
			t.Errorf("cut %d, want %d: %v", cut, want, err)
		}
	}
}

func TestDamagedHeadersAreNamed(t *testing.T) {
	good := build(t, 5, 1, 2, 20)
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		at     int64
	}{
		"magic":                 {func(b []byte) []byte { b[good.Len()+16] = 9; return b }, int64(good.Len())},
		"length beyond the end": {func(b []byte) []byte { b[good.Len()+9] = 1; return b }, int64(good.Len())},
		"length zero":           {func(b []byte) []byte { copy(b[good.Len()+8:], []byte{0, 0, 0, 0}); return b }, int64(good.Len())},
		"offset runs backwards": {func(b []byte) []byte { b[good.Len()+7] = 6; return b }, int64(good.Len())},
		"first below the base":  {func(b []byte) []byte { b[7] = 4; return b }, 0},
		"the file ends early":   {func(b []byte) []byte { return b[:len(b)-1] }, int64(2*good.Len() - 1)},
		"the file is not there": {func(b []byte) []byte { return nil }, 0},
		"header cut at the end": {func(b []byte) []byte { return append(b, 0, 0, 0) }, int64(2 * good.Len())},
	} {
		t.Run(name, func(t *testing.T) {
			memory := vfs.NewMemory()
			second := good.Clone()
			second.SetBaseOffset(7)
			b := c.change(append(bytes.Clone(good.Bytes()), second.Bytes()...))
			m := Meta{ID: ID{Base: 5}, Size: max(int64(len(b)), int64(2*good.Len())), Next: 9}
			if b != nil {
				if err := memory.MkdirAll("t/0"); err != nil {
					t.Fatal(err)
				}
				if err := vfs.WriteFile(memory, "t/0", m.LogName(), b); err != nil {
					t.Fatal(err)
				}
			}
			s := newSegment(NewFiles(memory, 1), m, 100)
			err := s.Headers(0, m.Size, func(*batch.Header, int64) bool { return true })
			damage, ok := errors.AsType[*CorruptionError](err)
			if !ok || damage.Offset != c.at || damage.File != "t/0/00000000000000000005.log" {
				t.Errorf("%v, want damage at byte %d", err, c.at)
			}
		})
	}
}

var update = flag.Bool("update", false, "rewrite the golden file")

// sampleIndex has five batches of 100 bytes.
func sampleIndex() *index {
	var x index
	for i := range model.Offset(5) {
		x.addLocked(0, &batch.Header{BaseOffset: i, MaxTimestamp: model.Timestamp(i * 10), Len: 100}, int64(i)*100, 50)
	}
	return &x
}

// Later versions must still read what this one writes.
func TestTheIndexFileIsTheGoldenOne(t *testing.T) {
	const path = "testdata/index.hex"
	got := hex.Dump(sampleIndex().encode(500))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("the index is\n%swant\n%s%v", got, want, err)
	}
}

func FuzzDecodeIndex(f *testing.F) {
	f.Add(sampleIndex().encode(500))
	f.Add([]byte(indexMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, covered, reason := decodeIndex(b)
		if reason == "" && !bytes.Equal(got.encode(covered), b) {
			t.Error("encoded again it is different")
		}
	})
}
