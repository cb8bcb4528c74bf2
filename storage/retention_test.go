package storage

import (
	"slices"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
	"github.com/perigeemq/perigee/storage/vfs"
)

// clock is a clock moved by the test, with what tests of old records say.
type clock struct{ *manualClock }

func newClock() clock { return clock{newManualClock()} }

func (c clock) use(o *Options)          { o.Now = c.now }
func (c clock) advance(d time.Duration) { c.add(d.Milliseconds()) }

// dated is a batch of one keyed record with the time of the clock, or one off it.
func (c clock) dated(off time.Duration, key, value string) batch.View {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Add(batch.NewRecord{Timestamp: model.Timestamp(c.millis.Load() + off.Milliseconds()), Key: []byte(key), Value: []byte(value)})
	v, err := b.Build()
	if err != nil {
		panic(err)
	}
	return v
}

func TestRetentionChooses(t *testing.T) {
	const now, day = int64(1_000_000_000), 24 * time.Hour
	ago := func(d time.Duration) model.Timestamp { return model.Timestamp(now - d.Milliseconds()) }
	// meta is a segment of ten offsets and 100 bytes.
	meta := func(n int, newest model.Timestamp) segment.Meta {
		base := model.Offset(10 * n)
		return segment.Meta{ID: segment.ID{Base: base}, Size: 100, Next: base + 10, MaxTimestamp: newest}
	}
	begun := func(metas []segment.Meta, ages ...time.Duration) []segment.Meta {
		for i, a := range ages {
			metas[i].Created = int64(ago(a))
		}
		return metas
	}
	ages := func(ages ...time.Duration) (metas []segment.Meta) {
		for i, a := range ages {
			metas = append(metas, meta(i, ago(a)))
		}
		return metas
	}
	touched := func(m segment.Meta, begun, last time.Duration) segment.Meta {
		m.Created, m.Touched = int64(ago(begun)), int64(ago(last))
		return m
	}
	age, size := PartitionConfig{RetentionAge: 5 * day}, PartitionConfig{RetentionBytes: 250}
	empty := append(ages(9*day, 8*day), segment.Meta{ID: segment.ID{Base: 20}, Next: 20, MaxTimestamp: model.NoTimestamp})
	tests := map[string]struct {
		segments []segment.Meta
		config   PartitionConfig
		high     model.Offset
		want     int
	}{
		"no limits":                                 {ages(9*day, 8*day, 0), PartitionConfig{}, 30, 0},
		"nothing there":                             {nil, age, 0, 0},
		"two of four are past their age":            {ages(9*day, 6*day, 4*day, 0), age, 40, 2},
		"exactly as old as allowed stays":           {ages(5*day, 0), age, 20, 0},
		"an old one behind a young one stays":       {ages(9*day, day, 8*day, 0), age, 40, 1},
		"everything, the active one too":            {ages(9*day, 8*day, 7*day), age, 30, 3},
		"the empty active one stays":                {empty, age, 20, 2},
		"not what is beyond high":                   {ages(9*day, 8*day, 7*day), age, 19, 1},
		"dated tomorrow, but begun long ago":        {begun(ages(-day, 8*day, 0), 9*day, 8*day, day), age, 30, 2},
		"dated tomorrow and active":                 {ages(9*day, -day), age, 20, 1},
		"without timestamps":                        {begun([]segment.Meta{meta(0, model.NoTimestamp), meta(1, ago(0))}, 9*day, 8*day), age, 20, 1},
		"begun by a clock that was behind":          {begun(ages(day, 0), 2*day, 9*day), age, 20, 0},
		"both begun by such a clock":                {begun(ages(day, 0), 10*day, 9*day), age, 20, 0},
		"without timestamps, ended lately":          {begun([]segment.Meta{meta(0, model.NoTimestamp), meta(1, ago(0))}, 9*day, 4*day), age, 20, 0},
		"without timestamps, written to":            {[]segment.Meta{touched(meta(0, model.NoTimestamp), 9*day, day)}, age, 10, 0},
		"without timestamps, left alone":            {[]segment.Meta{touched(meta(0, model.NoTimestamp), 9*day, 6*day)}, age, 10, 1},
		"more than the size by one segment":         {ages(0, 0, 0, 0), size, 40, 1},
		"more than the size by less than a segment": {ages(0, 0, 0), size, 30, 0},
		"the active one never goes for its size":    {ages(0), PartitionConfig{RetentionBytes: 1}, 10, 0},
		"size keeps what is beyond high":            {ages(0, 0, 0, 0, 0), PartitionConfig{RetentionBytes: 1}, 25, 2},
		"age and size: the further one":             {ages(9*day, 0, 0, 0, 0), PartitionConfig{RetentionAge: 5 * day, RetentionBytes: 250}, 50, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			x := chooseExpired(test.segments, test.config, test.high, now)
			if x.segments != test.want {
				t.Fatalf("chose %d segments, want %d", x.segments, test.want)
			}
			if n := x.segments; n > 0 && x.end != model.Offset(10*n) {
				t.Fatalf("%d segments end at %d", n, x.end)
			}
		})
	}
}

func retire(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.retire(t.Context(), 1); err != nil {
		t.Fatalf("retention: %v", err)
	}
}

// Segments go when they are old, the active one too, and stay gone after a restart.
func TestRetentionByAge(t *testing.T) {
	fs, c := vfs.NewMemory(), newClock()
	e := open(t, fs, c.use)
	config := func(pc *PartitionConfig) {
		pc.Delete, pc.RetentionAge, pc.SegmentAge = true, time.Hour, 10*time.Minute
	}
	p := part(t, e, 1, config)
	forever := part(t, e, 2, func(pc *PartitionConfig) { config(pc); pc.Delete = false })
	for range 6 {
		for _, p := range []*Partition{p, forever} {
			put(t, e, Append{Partition: p, Batch: c.dated(0, "", "x")})
		}
		c.advance(20 * time.Minute)
	}
	retire(t, e)
	if b := p.Bounds(); b.Start != 3 || b.High != 6 {
		t.Fatalf("after two hours: %+v", b)
	}
	c.advance(2 * time.Hour)
	retire(t, e)
	if b := p.Bounds(); b.Start != 6 || len(values(t, p)) != 0 {
		t.Fatalf("when all is old: %+v, %q", b, values(t, p))
	}
	put(t, e, Append{Partition: p, Batch: c.dated(0, "", "new")})
	retire(t, e)
	want := []string{"6:new"}
	for restart := range 3 {
		if got := values(t, p); !slices.Equal(got, want) || p.Bounds().Start != 6 {
			t.Fatalf("restart %d: %q, %+v", restart, got, p.Bounds())
		}
		if got := values(t, forever); len(got) != 6 {
			t.Fatalf("restart %d: without a policy %q", restart, got)
		}
		if restart == 1 {
			fs = fs.Crash(nil)
		} else {
			shut(t, e)
		}
		e = open(t, fs, c.use)
		p, forever = part(t, e, 1, config), part(t, e, 2)
	}
}

// Records from the future keep their segment no longer than others.
func TestRecordsFromTheFutureAreRetired(t *testing.T) {
	c := newClock()
	e := open(t, vfs.NewMemory(), c.use)
	p := part(t, e, 1, func(pc *PartitionConfig) {
		pc.Delete, pc.RetentionAge, pc.SegmentAge = true, time.Hour, time.Hour
	})
	put(t, e, Append{Partition: p, Batch: c.dated(1000*time.Hour, "", "misdated")})
	for range 4 {
		c.advance(40 * time.Minute)
		retire(t, e)
	}
	if b := p.Bounds(); b.Start != 1 {
		t.Fatalf("after %v: %+v", 160*time.Minute, b)
	}
}

func TestRetentionBySize(t *testing.T) {
	c := newClock()
	e := open(t, vfs.NewMemory(), c.use)
	size := int64(c.dated(0, "", "x").Len())
	p := part(t, e, 1, func(pc *PartitionConfig) {
		pc.Delete, pc.RetentionBytes, pc.SegmentBytes = true, 5*size, 2*size
	})
	for range 11 {
		put(t, e, Append{Partition: p, Batch: c.dated(0, "", "x")})
	}
	retire(t, e)
	if b := p.Bounds(); b.Start != 6 {
		t.Fatalf("bounds %+v", b)
	}
	if got := p.Stats(); got.Bytes != 5*size || got.Segments != 3 {
		t.Fatalf("stats %+v", got)
	}
}

// What was rolled back below the start is forgotten, so that the list of a partition
// does not grow for as long as it lives; what reaches beyond the start is not.
func TestTheAbortedListEndsWithTheStart(t *testing.T) {
	e := open(t, vfs.NewMemory())
	p := part(t, e, 1)
	for id := range model.ProducerID(3) {
		put(t, e, Append{Partition: p, Batch: transactional(id, 0, 0, "x"), Txn: TxnOpen})
		put(t, e, Append{Partition: p, Batch: marker(id, 1, batch.Abort), Internal: true})
	}
	pending, _, err := p.DeleteRecords(3) // inside the second transaction
	if err != nil {
		t.Fatal(err)
	}
	if err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	list := p.mu.producers.Aborted()
	p.mu.Unlock()
	if len(list) != 2 || list[0].First != 2 {
		t.Errorf("aborted %+v", list)
	}
}
