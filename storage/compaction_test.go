package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
	"github.com/perigeemq/perigee/storage/vfs"
)

// compacted is a partition under test with the clock it lives by.
type compacted struct {
	clock
	t    testing.TB
	fs   *vfs.Memory
	e    *Engine
	p    *Partition
	c    *compactor
	conf func(*PartitionConfig)
	mem  int64
}

// newCompacted opens a compacted partition in which everything is due at once.
func newCompacted(t testing.TB, change ...func(*PartitionConfig)) *compacted {
	c := &compacted{clock: newClock(), t: t, fs: vfs.NewMemory(), mem: 1 << 20}
	c.conf = func(pc *PartitionConfig) {
		pc.Compact, pc.MinDirtyRatio, pc.DeleteRetention = true, 0.01, time.Hour
		for _, f := range change {
			f(pc)
		}
	}
	c.open()
	return c
}

func (c *compacted) open() {
	c.e = open(c.t, c.fs, c.use, func(o *Options) { o.CleanerMemoryBytes = c.mem })
	c.p = part(c.t, c.e, 1, c.conf)
	c.c = newCompactor(c.e)
}

// restart stops the engine, or cuts its power, and opens it again.
func (c *compacted) restart(crash bool) {
	if crash {
		c.fs = c.fs.Crash(nil)
	} else {
		shut(c.t, c.e)
	}
	checked(c.t, c.fs)
	c.open()
}

// records makes a batch of "key=value" and "key" (a tombstone).
func (c *compacted) records(o batch.BuilderOptions, records ...string) batch.View {
	b := batch.NewBuilder(o)
	for _, r := range records {
		key, value, isValue := strings.Cut(r, "=")
		n := batch.NewRecord{Timestamp: model.Timestamp(c.millis.Load()), Key: []byte(key)}
		if isValue {
			n.Value = []byte(value)
		}
		b.Add(n)
	}
	v, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (c *compacted) put(records ...string) {
	c.t.Helper()
	put(c.t, c.e, Append{Partition: c.p, Batch: c.records(batch.BuilderOptions{}, records...)})
}

// txn appends to the transaction of a producer.
func (c *compacted) txn(id model.ProducerID, records ...string) {
	c.t.Helper()
	o := batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{
		ProducerIdentity: model.ProducerIdentity{ID: id}, BaseSequence: c.sequence(id)}}
	put(c.t, c.e, Append{Partition: c.p, Txn: TxnOpen, Batch: c.records(o, records...)})
}

func (c *compacted) sequence(id model.ProducerID) model.Sequence {
	for _, s := range c.p.Producers() {
		if s.ID == id && s.LastSequence != model.NoSequence {
			return s.LastSequence.Add(1)
		}
	}
	return 0
}

func (c *compacted) end(id model.ProducerID, how batch.MarkerType) {
	c.t.Helper()
	m := batch.NewMarker(batch.Marker{Type: how, Producer: model.ProducerIdentity{ID: id}, Timestamp: model.Timestamp(c.millis.Load())})
	put(c.t, c.e, Append{Partition: c.p, Batch: m, Internal: true})
}

// roll makes what was appended so far sealed.
func (c *compacted) roll() {
	c.t.Helper()
	s := c.p.segments()
	if last := s[len(s)-1]; last.Size() > 0 && !c.p.roll(last, last.Meta().Next) {
		c.t.Fatal("the active segment was not rolled")
	}
}

func (c *compacted) compact() {
	c.t.Helper()
	if err := c.c.run(c.t.Context(), 1); err != nil {
		c.t.Fatalf("compact: %v", err)
	}
}

// contents lists what is there as "offset:key=value", tombstones as "offset:key",
// markers as "offset:commit".
func (c *compacted) contents() (got []string) {
	c.t.Helper()
	err := c.p.Scan(c.t.Context(), 0, func(v batch.View) error {
		if v.IsControl() {
			m, err := v.Marker()
			got = append(got, fmt.Sprintf("%d:%s", v.BaseOffset(), m.Type))
			return err
		}
		for r, err := range v.Records(1 << 30) {
			if err != nil {
				return err
			}
			got = append(got, fmt.Sprintf("%d:%s", r.Offset, show(r)))
		}
		return nil
	})
	if err != nil {
		c.t.Fatalf("scan: %v", err)
	}
	return got
}

func show(r batch.Record) string {
	if r.Value == nil {
		return string(r.Key)
	}
	return string(r.Key) + "=" + string(r.Value)
}

func (c *compacted) want(want string) {
	c.t.Helper()
	if got := strings.Join(c.contents(), " "); got != want {
		c.t.Fatalf("the log holds\n%s, want\n%s", got, want)
	}
}

func TestTheLatestValueOfEachKeyStays(t *testing.T) {
	c := newCompacted(t)
	c.put("a=1", "b=1", "a=2")
	c.put("c=1")
	c.roll()
	c.put("b=2", "d=1")
	c.roll()
	c.put("a=3")
	c.compact()
	c.want("2:a=2 3:c=1 4:b=2 5:d=1 6:a=3")
	c.roll()
	c.compact()
	c.want("3:c=1 4:b=2 5:d=1 6:a=3")
	for _, crash := range []bool{false, true} {
		c.restart(crash)
		c.want("3:c=1 4:b=2 5:d=1 6:a=3")
	}
	c.put("c=2")
	c.roll()
	c.compact()
	c.want("4:b=2 5:d=1 6:a=3 7:c=2")
	if n := c.p.Stats().Segments; n != 2 {
		t.Fatalf("%d segments are left", n)
	}
}

// A batch keeps its last offset, so that a consumer that has read it goes on behind
// it and not at its last record, and its codec.
func TestAThinnedBatchKeepsItsShape(t *testing.T) {
	for _, codec := range []batch.Compression{batch.None, batch.Gzip, batch.Zstd} {
		c := newCompacted(t)
		put(t, c.e, Append{Partition: c.p, Batch: c.records(batch.BuilderOptions{Codec: batch.DefaultCodec(codec)}, "a=1", "b=1", "c=1", "a=2")})
		c.put("c=2")
		c.put("a=3")
		c.roll()
		c.compact()
		c.want("1:b=1 4:c=2 5:a=3")
		r, err := c.p.Read(ReadRequest{MaxBytes: 1, MinOneBatch: true})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Slice.Bytes()
		r.Slice.Release()
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := batch.Parse(b)
		if err != nil || v.BaseOffset() != 0 || v.LastOffset() != 3 || v.Count() != 1 || v.Compression() != codec || r.Next != 4 {
			t.Errorf("%v: %+v, next %d, %v", codec, v.Header(), r.Next, err)
		}
	}
}

// A tombstone stays readable for delete.retention.ms from the pass that left it
// alone with its key, then it goes, also when nothing new is written.
func TestTombstonesGoAfterTheirTime(t *testing.T) {
	c := newCompacted(t)
	c.put("a=1", "b=1")
	c.put("a")
	c.roll()
	c.compact()
	c.want("1:b=1 2:a")
	c.advance(59 * time.Minute)
	c.compact()
	c.want("1:b=1 2:a")
	c.restart(false)
	c.advance(2 * time.Minute)
	c.compact()
	c.want("1:b=1")
}

func TestRecordsWithoutKeyGo(t *testing.T) {
	c := newCompacted(t)
	put(t, c.e, Append{Partition: c.p, Batch: plain("x", "y")})
	c.put("=empty")
	c.roll()
	c.compact()
	c.want("2:=empty")
}

// Aborted records go with the first pass; a marker stays while a record of its
// transaction is there, and then for delete.retention.ms.
func TestTransactionsAreCompacted(t *testing.T) {
	c := newCompacted(t)
	c.txn(1, "a=1", "b=1")
	c.txn(2, "a=aborted")
	c.end(2, batch.Abort)
	c.end(1, batch.Commit)
	c.put("c=1")
	c.roll()
	c.compact()
	c.want("0:a=1 1:b=1 3:abort 4:commit 5:c=1")
	c.put("a=2")
	c.roll()
	c.compact()
	c.want("1:b=1 3:abort 4:commit 5:c=1 6:a=2")
	c.advance(2 * time.Hour)
	c.compact()
	c.want("1:b=1 4:commit 5:c=1 6:a=2")
	if a := c.p.view2(t).aborted; len(a) != 0 {
		t.Fatalf("aborted transactions without a marker: %+v", a)
	}
	c.put("b=2")
	c.roll()
	c.compact()
	c.want("4:commit 5:c=1 6:a=2 7:b=2")
	c.advance(2 * time.Hour)
	// A crash takes back what no checkpoint has.
	if err := c.e.checkpoint(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.restart(true)
	c.compact()
	c.want("5:c=1 6:a=2 7:b=2")
}

func (p *Partition) view2(t testing.TB) *view {
	t.Helper()
	v, err := p.view()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Nothing at or behind the first open transaction is touched.
func TestCompactionStopsAtAnOpenTransaction(t *testing.T) {
	c := newCompacted(t)
	c.put("a=1", "a=2")
	c.roll()
	c.txn(1, "b=1")
	c.put("a=3")
	c.roll()
	c.put("a=4")
	c.roll()
	c.compact()
	c.want("1:a=2 2:b=1 3:a=3 4:a=4")
	c.end(1, batch.Commit)
	c.roll()
	c.compact()
	c.want("2:b=1 4:a=4 5:commit")
}

func TestCompactionLags(t *testing.T) {
	t.Run("min keeps young records", func(t *testing.T) {
		c := newCompacted(t, func(pc *PartitionConfig) { pc.MinCompactionLag = time.Hour })
		c.put("a=1", "a=2")
		c.roll()
		c.advance(40 * time.Minute)
		c.put("a=3", "a=4")
		c.roll()
		c.compact()
		c.want("0:a=1 1:a=2 2:a=3 3:a=4")
		c.advance(30 * time.Minute)
		c.compact()
		c.want("1:a=2 2:a=3 3:a=4")
	})
	// What clients' test suites set: segment.ms 500, max.compaction.lag.ms 100, and
	// nothing more is written.
	t.Run("max compacts an idle partition", func(t *testing.T) {
		c := newCompacted(t, func(pc *PartitionConfig) {
			pc.SegmentAge, pc.MaxCompactionLag, pc.MinDirtyRatio = 500*time.Millisecond, 100*time.Millisecond, 1
		})
		c.put("a=1")
		c.put("a=2")
		c.compact()
		c.want("0:a=1 1:a=2")
		c.advance(100 * time.Millisecond)
		c.compact()
		c.want("1:a=2")
	})
	t.Run("the dirty ratio waits", func(t *testing.T) {
		c := newCompacted(t, func(pc *PartitionConfig) { pc.MinDirtyRatio = 0.6 })
		c.put("a=1", "b=1")
		c.roll()
		c.compact()
		c.put("a=2", "b=2")
		c.roll()
		c.compact()
		c.want("0:a=1 1:b=1 2:a=2 3:b=2")
		c.put("a=3", "b=3")
		c.roll()
		c.compact()
		c.want("4:a=3 5:b=3")
	})
}

// With too little memory for all keys one pass does a part, and the next goes on.
func TestCompactionWithinItsMemory(t *testing.T) {
	c := newCompacted(t)
	c.mem = 1
	c.restart(false)
	var want []string
	for round := range 2 {
		for k := range 500 {
			c.put(fmt.Sprintf("k%d=%d", k, round))
			if round == 1 {
				want = append(want, fmt.Sprintf("%d:k%d=1", 500+k, k))
			}
		}
	}
	c.roll()
	passes := 0
	c.e.o.Events.Compacted = func(Compacted) { passes++ }
	c.compact()
	c.want(strings.Join(want, " "))
	if passes < 10 {
		t.Fatalf("%d passes", passes)
	}
}

func TestBothPoliciesAtOnce(t *testing.T) {
	c := newCompacted(t, func(pc *PartitionConfig) { pc.Delete, pc.RetentionAge = true, 3*time.Hour })
	c.put("a=1", "b=1")
	c.roll()
	c.advance(2 * time.Hour)
	c.put("a=2")
	c.roll()
	c.compact()
	retire(t, c.e)
	c.want("1:b=1 2:a=2")
	// The two segments are one since the pass, as young as its youngest record.
	c.advance(2 * time.Hour)
	retire(t, c.e)
	c.want("1:b=1 2:a=2")
	c.advance(2 * time.Hour)
	retire(t, c.e)
	c.want("")
	if b := c.p.Bounds(); b.Start != 3 || b.End != 3 {
		t.Fatalf("bounds %+v", b)
	}
}

func TestCompactionReportsDamageAndLeavesThePartitionAlone(t *testing.T) {
	c := newCompacted(t)
	c.put("a=1", "a=2")
	c.roll()
	s := c.p.segments()[0]
	if err := s.Write([]byte{0xff}, s.Size()-1); err != nil {
		t.Fatal(err)
	}
	if err := c.c.run(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Fatalf("got %v", err)
	}
	if err := c.c.run(t.Context(), 2); err != nil {
		t.Fatalf("met again: %v", err)
	}
	if got := c.p.segments(); !slices.Equal(got[:1], []*segment.Segment{s}) {
		t.Fatal("the damaged segment was replaced")
	}
}

func TestKeyMapRemembersWhatFits(t *testing.T) {
	m := newKeyMap(1 << 16)
	n := 0
	for m.put(fmt.Appendf(nil, "key %d", n), model.Offset(n)) {
		n++
	}
	if n < leastKeys || int64(len(m.slots))*slotBytes > 1<<16 {
		t.Fatalf("%d keys in %d slots", n, len(m.slots))
	}
	for i := range n {
		if !m.put(fmt.Appendf(nil, "key %d", i), model.Offset(1000+i)) {
			t.Fatalf("no room for a key that is there")
		}
		if o, ok := m.last(fmt.Appendf(nil, "key %d", i)); !ok || o != model.Offset(1000+i) {
			t.Fatalf("key %d: %d, %v", i, o, ok)
		}
	}
	if _, ok := m.last([]byte("another")); ok {
		t.Fatal("found a key that is not there")
	}
}
