package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Anomaly is one violation.
type Anomaly struct {
	Invariant string // "I1" … "I18"
	Detail    string
}

func (a Anomaly) String() string { return a.Invariant + ": " + a.Detail }

// Report is the judgement of a history.
type Report struct {
	Anomalies []Anomaly
	Txns      int // looked at
	Committed int
	Aborted   int
	Undecided int // nobody was told how they ended
	Values    int
	WWCycles  int // cycles with write-write edges: legal
	// LongestUnstable is how long a group's offset was unstable at a stretch, on
	// the history's clock.
	LongestUnstable int64
}

// Check judges a history.
func Check(h *History) Report {
	c := newCheck(h)
	c.values()       // I2 I3 I4 I18
	c.reads()        // I1 I5 I10 I15 I16
	c.responses()    // I9
	c.watermarks()   // I8
	c.owners()       // I11 I14
	c.decisions()    // I12
	c.offsets()      // I7
	c.deadLetters()  // I17
	c.quiet()        // I13
	c.dependencies() // I6
	return c.report
}

// place is where a value stands.
type place struct {
	partition int32
	offset    int64
}

// origin is who wrote a value.
type origin struct {
	txn    *Txn
	append *Append
}

type check struct {
	h         *History
	report    Report
	origins   map[Value]origin
	committed map[Value][]place   // in the final read_committed scan
	logged    map[Value][]place   // in the final log
	read      map[*Txn]bool       // a read_committed reader was handed a value of it
	markers   map[int32][]Batch   // of every partition, as far as anybody saw them, by offset
	seen      map[int32][]reach   // the offsets somebody read, joined, by offset
	inOrder   map[int32][]Record  // the final read_committed scan, by offset
	newest    map[recordKey]int64 // the largest offset in it
}

type recordKey struct {
	partition int32
	key       string
}

// reach is offsets from, to before next.
type reach struct{ from, next int64 }

func newCheck(h *History) *check {
	c := &check{
		h: h, origins: map[Value]origin{}, committed: map[Value][]place{}, logged: map[Value][]place{},
		read: map[*Txn]bool{}, markers: map[int32][]Batch{}, seen: map[int32][]reach{}, inOrder: map[int32][]Record{},
		newest: map[recordKey]int64{},
	}
	for i := range h.Txns {
		t := &h.Txns[i]
		c.report.Txns++
		switch commit, known := t.decision(); {
		case !known:
			c.report.Undecided++
		case commit:
			c.report.Committed++
		default:
			c.report.Aborted++
		}
		for j := range t.Appends {
			c.origins[t.Appends[j].Value] = origin{t, &t.Appends[j]}
		}
	}
	c.report.Values = len(c.origins)
	for p, records := range h.Final.Committed {
		c.inOrder[p] = slices.SortedStableFunc(slices.Values(records), func(a, b Record) int { return cmp.Compare(a.Offset, b.Offset) })
		for _, r := range records {
			c.newest[recordKey{p, r.Key}] = max(c.newest[recordKey{p, r.Key}], r.Offset)
			c.committed[r.Value] = append(c.committed[r.Value], place{p, r.Offset})
		}
	}
	for p, log := range h.Final.Log {
		for _, b := range log.Batches {
			for _, r := range b.Values {
				c.logged[r.Value] = append(c.logged[r.Value], place{p, r.Offset})
			}
		}
	}
	c.collect()
	return c
}

// collect gathers what responses tell about transactions: a final log that was
// cut or compacted does not tell all of it.
func (c *check) collect() {
	for p, r := range c.h.Final.Log {
		c.see(p, &r)
	}
	for i := range c.h.Responses {
		r := &c.h.Responses[i]
		c.see(r.Partition, r)
		for _, d := range r.Delivered {
			if t := c.origins[d.Value].txn; r.Committed && t != nil {
				c.read[t] = true
			}
		}
	}
	for p, markers := range c.markers {
		slices.SortStableFunc(markers, func(a, b Batch) int { return cmp.Compare(a.First, b.First) })
		c.markers[p] = slices.CompactFunc(markers, func(a, b Batch) bool { return a.First == b.First })
	}
	for p, ranges := range c.seen {
		c.seen[p] = join(ranges)
	}
}

// join sorts ranges and makes one of those that touch.
func join(ranges []reach) []reach {
	slices.SortFunc(ranges, func(a, b reach) int { return cmp.Compare(a.from, b.from) })
	joined := ranges[:1]
	for _, r := range ranges[1:] {
		if last := &joined[len(joined)-1]; r.from <= last.next {
			last.next = max(last.next, r.next)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

func (c *check) see(p int32, r *Response) {
	c.seen[p] = append(c.seen[p], reach{r.From, r.Next})
	for _, b := range r.Batches {
		if b.Control {
			c.markers[p] = append(c.markers[p], b)
		}
	}
}

func (c *check) flag(invariant, format string, args ...any) {
	c.report.Anomalies = append(c.report.Anomalies, Anomaly{invariant, fmt.Sprintf(format, args...)})
}

// visible reports whether anything of a transaction is in the final committed view.
func (c *check) visible(t *Txn) bool {
	return slices.ContainsFunc(t.Appends, func(a Append) bool { return len(c.committed[a.Value]) > 0 })
}

// values judges the final state: what is there, how often, and of whom.
func (c *check) values() {
	for i := range c.h.Txns {
		t := &c.h.Txns[i]
		commit, known := t.decision()
		seen := c.visible(t) || c.read[t]
		for _, a := range t.Appends {
			there := len(c.committed[a.Value]) > 0
			switch {
			case !there && c.removed(a):
			case a.Outcome == Refused && len(c.logged[a.Value]) > 0:
				c.flag("I18", "value %d was refused and stands in the log at %v", a.Value, c.logged[a.Value])
			case there && known && !commit:
				c.flag("I4", "value %d of the aborted %s is in the committed view", a.Value, t.name())
			case there && !known && !t.mayCommit():
				c.flag("I4", "value %d of %s, which nobody tried to commit, is in the committed view", a.Value, t.name())
			case !there && a.Outcome == Done && known && commit:
				c.flag("I2", "value %d of the committed %s is gone", a.Value, t.name())
			case !there && a.Outcome == Done && !known && seen:
				c.flag("I4", "%s is visible without its value %d", t.name(), a.Value)
			}
		}
	}
	for _, v := range slices.Sorted(maps.Keys(c.committed)) {
		if places := c.committed[v]; len(places) > 1 {
			c.flag("I3", "value %d is committed %d times: %v", v, len(places), places)
		}
	}
}

// removed reports whether a value may be gone by right: from the front of a log
// that was cut there, or because compaction kept a newer value of its key.
func (c *check) removed(a Append) bool {
	if a.Outcome != Done {
		return false
	}
	if a.Offset < c.h.Final.Log[a.Partition].Start {
		return true
	}
	return c.superseded(a.Partition, Record{Offset: a.Offset, Key: a.Key})
}

// superseded reports whether compaction may remove a committed record. It need
// not be gone for ever: a crash may bring back what the files were before.
func (c *check) superseded(partition int32, r Record) bool {
	return slices.Contains(c.h.Final.Compacted, partition) && c.newest[recordKey{partition, r.Key}] > r.Offset
}

func (t *Txn) name() string {
	return fmt.Sprintf("transaction of %s (producer %d epoch %d, worker %d %s)", t.ID, t.PID, t.Epoch, t.Worker, t.Protocol)
}

// decisions: an end that was acknowledged is never reversed.
func (c *check) decisions() {
	for i := range c.h.Txns {
		t := &c.h.Txns[i]
		committed, aborted := false, false
		for _, e := range t.Endings {
			if e.Outcome == Done {
				committed = committed || e.Commit
				aborted = aborted || !e.Commit
			}
		}
		if committed && aborted {
			c.flag("I12", "%s was told both outcomes", t.name())
		}
	}
}

// quiet: when everything has ended, nothing is left open.
func (c *check) quiet() {
	for _, p := range slices.Sorted(maps.Keys(c.h.Final.Log)) {
		if r := c.h.Final.Log[p]; r.Stable != r.High || (r.End >= 0 && r.End != r.High) {
			c.flag("I13", "partition %d: stable %d, high %d, end %d", p, r.Stable, r.High, r.End)
		}
	}
	for _, o := range c.h.Final.Groups {
		if o.Unstable {
			c.flag("I13", "group %s partition %d: the offset is still unstable", o.Group, o.Partition)
		}
	}
	for _, p := range c.h.Final.OpenAt {
		c.flag("I13", "partition %d has an open transaction", p)
	}
	for _, id := range c.h.Final.Ongoing {
		c.flag("I13", "transactional id %s is still ongoing", id)
	}
}
