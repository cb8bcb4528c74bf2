package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// twin is the naive log: everything that was ever appended, by offset.
type twin struct {
	entries []twinEntry
	open    map[model.ProducerID][]int // entries of open transactions
}

type twinEntry struct {
	key, text string
	tombstone bool
	at        int64 // when it was appended
	state     twinState
	marker    int // offset of the one that ended its transaction
}

type twinState uint8

const (
	plainRecord twinState = iota
	undecided
	committed
	aborted
	control
)

func (w *twin) add(now int64, state twinState, records []string) {
	for _, r := range records {
		key, _, isValue := strings.Cut(r, "=")
		w.entries = append(w.entries, twinEntry{key: key, text: r, tombstone: !isValue, at: now, state: state})
	}
}

func (w *twin) end(id model.ProducerID, s twinState) {
	for _, i := range w.open[id] {
		w.entries[i].state, w.entries[i].marker = s, len(w.entries)
	}
	delete(w.open, id)
	w.entries = append(w.entries, twinEntry{text: map[twinState]string{committed: "commit", aborted: "abort"}[s], state: control})
}

// latest is the last readable record of each key in front of an offset.
func (w *twin) latest(end model.Offset) map[string]int {
	last := make(map[string]int)
	for i, e := range w.entries[:end] {
		if e.state == plainRecord || e.state == committed {
			last[e.key] = i
		}
	}
	return last
}

// The log is written, rolled, compacted, stopped and cut at random, and whatever
// stands in it at any time must be what the twin says.
func TestCompactionAgainstItsTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCompacted(property{t, rt}, func(pc *PartitionConfig) {
			pc.SegmentBytes = int64(rapid.IntRange(200, 2000).Draw(rt, "segment bytes"))
		})
		defer func() { c.e.Close(t.Context()) }()
		c.mem = int64(rapid.SampledFrom([]int{1, 1 << 20}).Draw(rt, "memory"))
		c.restart(false)
		w := &twin{open: make(map[model.ProducerID][]int)}
		records := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) string {
			key := rapid.StringMatching("[a-e]").Draw(rt, "key")
			if rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
				return key
			}
			return fmt.Sprintf("%s=%d", key, rapid.IntRange(0, 99).Draw(rt, "value"))
		}), 1, 5)
		producers := rapid.Int64Range(1, 3)
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				r := records.Draw(rt, "records")
				codec := rapid.SampledFrom([]batch.Compression{batch.None, batch.LZ4}).Draw(rt, "codec")
				put(c.t, c.e, Append{Partition: c.p, Batch: c.records(batch.BuilderOptions{Codec: batch.DefaultCodec(codec)}, r...)})
				w.add(c.millis.Load(), plainRecord, r)
			},
			"transactional put": func(rt *rapid.T) {
				id, r := model.ProducerID(producers.Draw(rt, "producer")), records.Draw(rt, "records")
				c.txn(id, r...)
				for i := range r {
					w.open[id] = append(w.open[id], len(w.entries)+i)
				}
				w.add(c.millis.Load(), undecided, r)
			},
			"end": func(rt *rapid.T) {
				id := model.ProducerID(producers.Draw(rt, "producer"))
				if len(w.open[id]) == 0 {
					return
				}
				if rapid.Bool().Draw(rt, "commit") {
					c.end(id, batch.Commit)
					w.end(id, committed)
				} else {
					c.end(id, batch.Abort)
					w.end(id, aborted)
				}
			},
			"roll": func(*rapid.T) {
				if len(w.entries) > 0 {
					c.roll()
				}
			},
			"compact": func(*rapid.T) { c.compact() },
			"wait":    func(*rapid.T) { c.advance(40 * time.Minute) },
			"restart": func(rt *rapid.T) { c.restart(rapid.Bool().Draw(rt, "crash")) },
			"checkpoint": func(*rapid.T) {
				if err := c.e.checkpoint(t.Context(), 1); err != nil {
					rt.Fatal(err)
				}
			},
			"": func(rt *rapid.T) { c.compare(rt, w) },
		})
	})
}

// property is a test whose failures are a property's, so that they are made small.
type property struct {
	testing.TB
	rt *rapid.T
}

func (p property) Fatal(args ...any)                 { p.rt.Fatal(args...) }
func (p property) Fatalf(format string, args ...any) { p.rt.Fatalf(format, args...) }
func (p property) Errorf(format string, args ...any) { p.rt.Errorf(format, args...) }
func (p property) Cleanup(func())                    {} // one property opens many engines

// compare holds the log against the twin: in full, and as a consumer of each
// isolation would see it.
func (c *compacted) compare(rt *rapid.T, w *twin) {
	b := c.p.Bounds()
	if b.High != model.Offset(len(w.entries)) {
		rt.Fatalf("high is %d of %d", b.High, len(w.entries))
	}
	there := make(map[int]bool)
	for _, line := range c.contents() {
		var o int
		text := strings.SplitN(line, ":", 2)[1]
		fmt.Sscan(line, &o)
		if w.entries[o].text != text {
			rt.Fatalf("offset %d holds %q, appended was %q", o, text, w.entries[o].text)
		}
		there[o] = true
	}
	cleaned := model.Offset(c.p.cleaned.Load())
	keep := w.latest(b.Stable)
	for key, i := range keep {
		if e := w.entries[i]; !there[i] && (!e.tombstone || c.millis.Load()-e.at < time.Hour.Milliseconds()) {
			rt.Fatalf("the last record of %q, offset %d, is gone", key, i)
		}
	}
	known := w.latest(cleaned)
	for i, e := range w.entries[:cleaned] {
		if e.state != control && there[i] && (e.state == aborted || known[e.key] != i) {
			rt.Fatalf("offset %d, %q, is there behind a compaction up to %d", i, e.text, cleaned)
		}
	}
	for i := range there {
		if e := w.entries[i]; e.state == committed && !there[e.marker] {
			rt.Fatalf("offset %d, %q, is there, the marker of its transaction at %d is gone", i, e.text, e.marker)
		}
	}
	for from := range b.Stable {
		c.consume(rt, w, from, there)
	}
}

// consume reads like a read_committed client from an offset: it hides the records
// of a producer from the first offset of an aborted transaction to its marker. It
// must see every readable record that is there, and no other.
func (c *compacted) consume(rt *rapid.T, w *twin, from model.Offset, there map[int]bool) {
	seen := make(map[int]bool)
	stable := c.p.Bounds().Stable
	for at := from; at < stable; {
		r, err := c.p.Read(ReadRequest{From: at, MaxBytes: 300, MinOneBatch: true, Isolation: model.ReadCommitted})
		if err != nil || r.Next <= at {
			rt.Fatalf("read from %d: next %d, %v", at, r.Next, err)
		}
		if r.Slice != nil {
			if err := client(r, at, seen); err != nil {
				rt.Fatalf("read from %d: %v", at, err)
			}
		}
		at = r.Next
	}
	for i := int(from); i < int(stable); i++ {
		e := w.entries[i]
		if readable := there[i] && (e.state == plainRecord || e.state == committed); readable != seen[i] {
			rt.Fatalf("a consumer from %d: offset %d, %q, state %d: seen %v", from, i, e.text, e.state, seen[i])
		}
	}
}

func client(r Read, from model.Offset, seen map[int]bool) error {
	pending := slices.Clone(r.Aborted)
	hidden := make(map[model.ProducerID]bool)
	return scanSlice(r.Slice, func(v batch.View) error {
		for len(pending) > 0 && pending[0].First <= v.LastOffset() {
			hidden[pending[0].ProducerID] = true
			pending = pending[1:]
		}
		if v.IsControl() {
			m, err := v.Marker()
			if m.Type == batch.Abort {
				delete(hidden, v.ProducerID())
			}
			return err
		}
		if v.IsTransactional() && hidden[v.ProducerID()] {
			return nil
		}
		for rec, err := range v.Records(1 << 20) {
			if err != nil {
				return err
			}
			if rec.Offset >= from {
				seen[int(rec.Offset)] = true
			}
		}
		return nil
	})
}
