package storage

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// TestReadsAreWhatANaiveReaderWouldReturn compares every kind of request with a
// list of the batches, on a log of many segments, also after a restart.
func TestReadsAreWhatANaiveReaderWouldReturn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := vfs.NewMemory()
		o := Options{FS: fs, JournalFileBytes: 256 << 10, ReserveBytes: -1, MaxOpenFiles: rapid.IntRange(1, 4).Draw(t, "open files")}
		e, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		c := PartitionConfig{
			SegmentBytes:       rapid.Int64Range(300, 3000).Draw(t, "segment"),
			IndexIntervalBytes: rapid.IntRange(1, 600).Draw(t, "interval"),
		}
		p, err := e.OpenPartition(key(1), "t", c)
		if err != nil {
			t.Fatal(err)
		}
		var log []batch.View
		open := map[model.ProducerID]bool{}
		for i := range rapid.IntRange(1, 40).Draw(t, "batches") {
			a := Append{Partition: p, Internal: true, Txn: TxnOpen}
			id := model.ProducerID(rapid.IntRange(0, 2).Draw(t, fmt.Sprint("id", i)))
			values := make([]string, rapid.IntRange(1, 4).Draw(t, fmt.Sprint("records", i)))
			values[0] = strings.Repeat("v", rapid.IntRange(0, 300).Draw(t, fmt.Sprint("size", i)))
			switch k := rapid.IntRange(0, 3).Draw(t, fmt.Sprint("kind", i)); {
			case k == 0 && open[id]:
				a.Batch, open[id] = marker(id, 0, batch.MarkerType(i%2)), false
			case k == 1:
				a.Batch, open[id] = transactional(id, 0, model.NoSequence, values...), true
			default:
				a.Batch = plain(values...)
			}
			pending, err := e.Append(a)
			if err == nil {
				err = pending.Wait(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, a.Batch.Clone())
		}
		compareReads(t, p, log)
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e, err = Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		defer e.Close(t.Context())
		if p, err = e.OpenPartition(key(1), "t", c); err != nil {
			t.Fatal(err)
		}
		compareReads(t, p, log)
	})
}

func compareReads(t *rapid.T, p *Partition, log []batch.View) {
	b := p.Bounds()
	for range 60 {
		iso := model.Isolation(rapid.IntRange(0, 1).Draw(t, "isolation"))
		r := ReadRequest{
			From: model.Offset(rapid.Int64Range(0, int64(b.End)).Draw(t, "from")), Isolation: iso,
			MaxBytes: rapid.SampledFrom([]int{0, 1, 61, 150, 400, 1000, 1 << 20}).Draw(t, "max"), MinOneBatch: rapid.Bool().Draw(t, "one"),
		}
		stop := b.Visible(iso)
		read, err := p.Read(r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		var got []byte
		if read.Slice != nil {
			if got, err = read.Slice.Bytes(); err != nil || len(got) != read.Slice.Len() {
				t.Fatal(err)
			}
			read.Slice.Release()
		}
		// What comes back is a run of the log's batches from the one that holds From.
		next, n := r.From, 0
		for _, v := range log {
			if v.LastOffset() < r.From || n == len(got) {
				continue
			}
			if n+v.Len() > len(got) || string(got[n:n+v.Len()]) != string(v.Bytes()) || v.BaseOffset() >= stop {
				t.Fatalf("%+v: batch at %d is not at byte %d of the %d read", r, v.BaseOffset(), n, len(got))
			}
			n, next = n+v.Len(), v.NextOffset()
		}
		if n != len(got) || read.Next != next {
			t.Fatalf("%+v: %d of %d bytes are batches of the log, next %d, want %d", r, n, len(got), read.Next, next)
		}
		first := firstFrom(log, r.From)
		switch {
		case r.From >= stop:
			if n > 0 {
				t.Fatalf("%+v: invisible bytes", r)
			}
		case n == 0 && (r.MinOneBatch || first <= r.MaxBytes):
			t.Fatalf("%+v: nothing, the first batch has %d bytes", r, first)
		case n > r.MaxBytes && (n != first || !r.MinOneBatch):
			t.Fatalf("%+v: %d bytes, the first batch has %d", r, n, first)
		}
		if (read.Aborted == nil) != (iso == model.ReadUncommitted) {
			t.Fatalf("%+v: aborted %v", r, read.Aborted)
		}
		if got, want := p.Available(r.From, iso), bytesBetween(log, r.From, stop); got != want {
			t.Fatalf("%+v: %d bytes available, want %d", r, got, want)
		}
	}
}

func firstFrom(log []batch.View, from model.Offset) int {
	for _, v := range log {
		if v.LastOffset() >= from {
			return v.Len()
		}
	}
	return 0
}

func bytesBetween(log []batch.View, from, stop model.Offset) (n int) {
	for _, v := range log {
		if from < stop && v.LastOffset() >= from && v.BaseOffset() < stop {
			n += v.Len()
		}
	}
	return n
}

// A consumer that reads in order never searches: the hint knows where it is.
func TestReadingInOrderOpensNoIndexAndScansNothing(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	e := open(t, fault)
	p := part(t, e, 1)
	for range 50 {
		put(t, e, Append{Partition: p, Batch: plain(strings.Repeat("x", 5000))})
	}
	before := fault.Count(vfs.OpRead)
	reads := 0
	for from := model.Offset(0); from < 50; reads++ {
		r, err := p.Read(ReadRequest{From: from, MaxBytes: math.MaxInt32, Isolation: model.ReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		r.Slice.Release()
		from = r.Next
		if from < 50 {
			t.Fatalf("read up to %d", from)
		}
	}
	for range 20 {
		put(t, e, Append{Partition: p, Batch: plain("x")})
		r, err := p.Read(ReadRequest{From: p.Bounds().High - 1, MaxBytes: math.MaxInt32})
		if err != nil || r.Slice.Len() > 100 {
			t.Fatalf("%+v, %v", r, err)
		}
		r.Slice.Release()
	}
	if n := fault.Count(vfs.OpRead) - before; n > 1 {
		t.Errorf("%d reads of files to find positions", n)
	}
}

func TestReadsOutsideTheLogAreRefused(t *testing.T) {
	e := open(t, vfs.NewMemory())
	p := part(t, e, 1)
	if r, err := p.Read(ReadRequest{From: 0, MaxBytes: 10, Isolation: model.ReadCommitted}); err != nil || r.Slice != nil || r.Aborted == nil {
		t.Errorf("an empty partition: %+v, %v", r, err)
	}
	for range 5 {
		put(t, e, Append{Partition: p, Batch: plain("a", "b")})
	}
	pending, start, err := p.DeleteRecords(3)
	if err != nil || start != 3 || pending.Wait(t.Context()) != nil {
		t.Fatal(start, err)
	}
	for _, from := range []model.Offset{-1, 0, 2, 11} {
		r, err := p.Read(ReadRequest{From: from, MaxBytes: 10})
		if !errors.Is(err, ErrOffsetOutOfRange) || r.Bounds.Start != 3 || r.Bounds.End != 10 {
			t.Errorf("from %d: %+v, %v", from, r, err)
		}
	}
	if r, err := p.Read(ReadRequest{From: 10, MaxBytes: 10}); err != nil || r.Slice != nil || r.Next != 10 {
		t.Errorf("at the end: %+v, %v", r, err)
	}
	if got := values(t, p); !slices.Equal(got[:2], []string{"2:a", "3:b"}) {
		t.Errorf("a batch that holds the start is returned whole: %v", got)
	}
	if _, _, err := p.DeleteRecords(11); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("delete beyond the end: %v", err)
	}
	if _, start, err := p.DeleteRecords(model.NoOffset); err != nil || start != 10 {
		t.Errorf("delete everything: %d, %v", start, err)
	}
}

func TestASliceOutlivesItsSegment(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	p := part(t, e, 1, func(c *PartitionConfig) { c.SegmentBytes = 100 })
	for range 4 {
		put(t, e, Append{Partition: p, Batch: plain("some value")})
	}
	r, err := p.Read(ReadRequest{MaxBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.DeleteRecords(3); err != nil {
		t.Fatal(err)
	}
	dir := "topics/" + p.ID().Topic.String() + "/1"
	within(t, "two of three dead segments removed", func() bool { return len(names(t, fs, dir, ".log")) == 2 })
	if b, err := r.Slice.Bytes(); err != nil || len(b) == 0 {
		t.Errorf("read a dropped segment: %v", err)
	}
	r.Slice.Release()
	r.Slice.Release()
	within(t, "the third removed", func() bool { return len(names(t, fs, dir, ".log")) == 1 })
}

func TestDeletedPartitionsLeaveNothingBehind(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	for n := range 3 {
		put(t, e, Append{Partition: part(t, e, n+1), Batch: plain("x")})
	}
	if err := e.Delete(key(1), key(2)); err != nil {
		t.Fatal(err)
	}
	within(t, "one topic left", func() bool { return len(names(t, fs, "topics", "")) == 1 })
	e = open(t, fs.Crash(nil))
	if got := e.Known(); !slices.Equal(got, []model.TopicPartition{key(3)}) {
		t.Errorf("after a crash: %v", got)
	}
}

// A crash may leave partitions whose deletion is a fact: the catalog says so.
func TestRetainDeletesWhatTheCatalogDoesNotKnow(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	for n := range 3 {
		put(t, e, Append{Partition: part(t, e, n+1), Batch: plain("x")})
	}
	shut(t, e)
	if err := fs.MkdirAll("topics/" + key(9).Topic.String() + "/0"); err != nil {
		t.Fatal(err)
	}
	e = open(t, fs)
	if err := e.Retain(func(tp model.TopicPartition) bool { return tp == key(2) }); err != nil {
		t.Fatal(err)
	}
	if got := e.Known(); !slices.Equal(got, []model.TopicPartition{key(2)}) {
		t.Errorf("known %v", got)
	}
	within(t, "one topic left", func() bool { return len(names(t, fs, "topics", "")) == 1 })
}

func TestOffsetsAreFoundByTime(t *testing.T) {
	e := open(t, vfs.NewMemory())
	p := part(t, e, 1, func(c *PartitionConfig) { c.SegmentBytes, c.IndexIntervalBytes = 400, 1 })
	at := func(times ...model.Timestamp) batch.View {
		b := batch.NewBuilder(batch.BuilderOptions{})
		for _, ts := range times {
			b.Add(batch.NewRecord{Timestamp: ts, Value: []byte("v")})
		}
		v, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var times []model.Timestamp
	for i := range model.Timestamp(20) {
		// Not in order: every third pair is late.
		ts := []model.Timestamp{100 * i, 100*i + 50}
		if i%3 == 2 {
			ts = []model.Timestamp{100*i - 250, 100*i - 240}
		}
		put(t, e, Append{Partition: p, Batch: at(ts...)})
		times = append(times, ts...)
	}
	put(t, e, Append{Partition: p, Batch: transactional(7, 0, model.NoSequence, "open at 1000"), Txn: TxnOpen, Internal: true})
	stable := len(times)
	times = append(times, 1000)
	put(t, e, Append{Partition: p, Batch: at(9000)})
	times = append(times, 9000)
	check := func(start int) {
		t.Helper()
		for _, iso := range []model.Isolation{model.ReadUncommitted, model.ReadCommitted} {
			visible := times
			if iso == model.ReadCommitted {
				visible = times[:stable]
			}
			for ts := model.Timestamp(-10); ts < 9100; ts += 10 {
				want := -1
				for o := start; o < len(visible); o++ {
					if visible[o] >= ts {
						want = o
						break
					}
				}
				got, ok, err := p.OffsetForTimestamp(ts, iso)
				if err != nil || ok != (want >= 0) || ok && (got.Offset != model.Offset(want) || got.Timestamp != times[want] || got.LeaderEpoch != 0) {
					t.Fatalf("isolation %d, time %d: %+v, %v, %v; want offset %d", iso, ts, got, ok, err, want)
				}
			}
			want := start + slices.Index(visible[start:], slices.Max(visible[start:]))
			if got, ok, err := p.MaxTimestamp(iso); err != nil || !ok || got.Offset != model.Offset(want) {
				t.Errorf("isolation %d: max timestamp %+v, %v, %v; want offset %d", iso, got, ok, err, want)
			}
		}
	}
	check(0)
	if pending, _, err := p.DeleteRecords(13); err != nil || pending.Wait(t.Context()) != nil {
		t.Fatal(err)
	}
	check(13)
}

func TestLeaderEpochsTellWhereEachStartEnded(t *testing.T) {
	fs := vfs.NewMemory()
	for range 3 {
		e := open(t, fs)
		p := part(t, e, 1)
		if e.Identity().Incarnation != 1 { // nothing is appended in the second run
			put(t, e, Append{Partition: p, Batch: plain("a", "b", "c")})
		}
		fs = fs.Crash(nil)
	}
	e := open(t, fs)
	p := part(t, e, 1)
	for asked, want := range map[model.LeaderEpoch][2]int64{
		-1: {-1, -1}, 0: {0, 3}, 1: {0, 3}, 2: {2, 6}, 3: {3, 6}, 4: {-1, -1},
	} {
		epoch, end := p.EpochEnd(asked)
		if int64(epoch) != want[0] || int64(end) != want[1] {
			t.Errorf("epoch %d ends as %d at %d, want %v", asked, epoch, end, want)
		}
	}
	for o, want := range map[model.Offset]model.LeaderEpoch{0: 0, 2: 0, 3: 2, 5: 2} {
		if got := p.EpochAt(o); got != want {
			t.Errorf("epoch at %d is %d, want %d", o, got, want)
		}
	}
}
