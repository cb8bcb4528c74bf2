package checker

import (
	"cmp"
	"maps"
	"slices"
)

// reads judges every response against the final log and against each other.
func (c *check) reads() {
	values := c.byPlace()
	position := map[string]map[int32]int64{} // reader → partition → next offset expected
	for i := range c.h.Responses {
		r := &c.h.Responses[i]
		for _, rec := range r.records() {
			c.immutable(values, place{r.Partition, rec.Offset}, rec.Value)
			c.lasting(r.Partition, rec)
		}
		if r.Committed {
			c.committedRead(r)
		}
		if r.Reader != "" {
			c.forward(position, r)
		}
	}
	c.ownReads()
}

// records are the values a response held, delivered or not.
func (r *Response) records() []Record {
	all := slices.Clone(r.Delivered)
	for _, b := range r.Batches {
		all = append(all, b.Values...)
	}
	return all
}

// byPlace collects which value an offset was acknowledged or finally read with.
func (c *check) byPlace() map[place]Value {
	values := map[place]Value{}
	for _, v := range slices.Sorted(maps.Keys(c.logged)) {
		for _, at := range c.logged[v] {
			c.immutable(values, at, v)
		}
	}
	for _, t := range c.h.Txns {
		for _, a := range t.Appends {
			if a.Outcome == Done && a.Offset >= 0 {
				c.immutable(values, place{a.Partition, a.Offset}, a.Value)
			}
		}
	}
	return values
}

func (c *check) immutable(values map[place]Value, at place, v Value) {
	if other, ok := values[at]; ok && other != v {
		c.flag("I10", "offset %d/%d held %d and %d", at.partition, at.offset, other, v)
	}
	values[at] = v
}

// lasting: what was read is there in the end, unless it may be gone by right.
func (c *check) lasting(partition int32, rec Record) {
	log := c.h.Final.Log[partition]
	known := rec.Offset < log.Next || log.Next >= log.High // the rest was not read
	if rec.Offset < log.Start || !known || slices.Contains(c.h.Final.Compacted, partition) {
		return
	}
	if !slices.Contains(c.logged[rec.Value], place{partition, rec.Offset}) {
		c.flag("I10", "value %d was read at %d/%d and is not there in the end", rec.Value, partition, rec.Offset)
	}
}

// committedRead: a read_committed reader is handed exactly the committed
// records of the range it covered.
func (c *check) committedRead(r *Response) {
	got := map[int64]Value{}
	for _, rec := range r.Delivered {
		got[rec.Offset] = rec.Value
		if t := c.origins[rec.Value].txn; t != nil {
			if commit, known := t.decision(); known && !commit {
				c.flag("I1", "value %d of the aborted %s was read at %d/%d", rec.Value, t.name(), r.Partition, rec.Offset)
			}
		}
		if rec.Offset >= r.Stable {
			c.flag("I16", "offset %d/%d was read, the stable offset was %d", r.Partition, rec.Offset, r.Stable)
		}
	}
	final := c.inOrder[r.Partition]
	from, _ := slices.BinarySearchFunc(final, r.From, func(rec Record, at int64) int { return cmp.Compare(rec.Offset, at) })
	for _, rec := range final[from:] {
		if rec.Offset >= r.Next {
			break
		}
		if _, ok := got[rec.Offset]; !ok && !c.superseded(r.Partition, rec) {
			c.flag("I5", "a read of %d/[%d, %d) left out the committed value %d at %d", r.Partition, r.From, r.Next, rec.Value, rec.Offset)
		}
	}
}

// forward: within one assignment a consumer reads each offset once, in order.
func (c *check) forward(position map[string]map[int32]int64, r *Response) {
	if position[r.Reader] == nil {
		position[r.Reader] = map[int32]int64{}
	}
	next, started := position[r.Reader][r.Partition]
	if started && r.From != next {
		c.flag("I15", "reader %s continued %d at %d instead of %d", r.Reader, r.Partition, r.From, next)
	}
	last := r.From - 1
	for _, rec := range r.Delivered {
		if rec.Offset <= last {
			c.flag("I15", "reader %s was handed offset %d/%d after %d", r.Reader, r.Partition, rec.Offset, last)
		}
		last = rec.Offset
	}
	position[r.Reader][r.Partition] = r.Next
}

// ownReads: an open transaction does not read its own values.
func (c *check) ownReads() {
	for i := range c.h.Txns {
		t := &c.h.Txns[i]
		for _, v := range t.Reads {
			if c.origins[v].txn == t {
				c.flag("I16", "%s read its own value %d before it ended", t.name(), v)
			}
		}
	}
}

// responses: every transactional batch below the stable offset of a
// read_committed response is committed, or covered by the response's own list.
func (c *check) responses() {
	for i := range c.h.Responses {
		r := &c.h.Responses[i]
		if !r.Committed {
			continue
		}
		for _, b := range r.Batches {
			if b.Control || !b.Transactional || b.First >= r.Stable {
				continue
			}
			aborted, known := c.ended(r, b)
			if listed := r.hides(b); known && listed != aborted {
				c.flag("I9", "batch %d/%d of producer %d: listed as aborted %v, aborted %v", r.Partition, b.First, b.PID, listed, aborted)
			}
		}
	}
}

// hides applies the aborted list as clients do: an entry hides its producer's
// batches from its first offset to the next abort marker.
func (r *Response) hides(b Batch) bool {
	hidden := false
	for _, a := range r.Aborted {
		if a.PID == b.PID && a.First <= b.First && !r.markerBetween(a, b) {
			hidden = true
		}
	}
	return hidden
}

func (r *Response) markerBetween(a AbortedTxn, b Batch) bool {
	return slices.ContainsFunc(r.Batches, func(m Batch) bool {
		return m.Control && !m.Commit && m.PID == a.PID && m.First >= a.First && m.First < b.First
	})
}

// ended looks for the marker that ended the batch's transaction: among those
// anybody saw, if everything up to it was seen, or, where compaction may have
// removed some, in the response.
func (c *check) ended(r *Response, b Batch) (aborted, known bool) {
	markers := c.markers[r.Partition]
	if slices.Contains(c.h.Final.Compacted, r.Partition) {
		markers = r.Batches
	}
	from, _ := slices.BinarySearchFunc(markers, b.Last+1, func(m Batch, at int64) int { return cmp.Compare(m.First, at) })
	for _, m := range markers[from:] {
		if m.Control && m.PID == b.PID {
			gapless := slices.ContainsFunc(c.seen[r.Partition], func(s reach) bool { return s.from <= b.Last+1 && m.First < s.next })
			return !m.Commit, gapless
		}
	}
	return false, false
}

// watermarks: what one reader was told, a later one is not told less.
func (c *check) watermarks() {
	all := slices.Clone(c.h.Responses)
	for p, r := range c.h.Final.Log {
		r.Partition = p
		r.Span = Span{Invoked: 1<<63 - 2, Completed: 1<<63 - 1}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b Response) int { return cmp.Compare(a.Completed, b.Completed) })
	byInvocation := slices.Clone(all)
	slices.SortStableFunc(byInvocation, func(a, b Response) int { return cmp.Compare(a.Invoked, b.Invoked) })

	type marks struct{ stable, high int64 }
	known := map[int32]marks{}
	done := 0
	for _, r := range byInvocation {
		for ; done < len(all) && all[done].Completed < r.Invoked; done++ {
			k := known[all[done].Partition]
			known[all[done].Partition] = marks{max(k.stable, all[done].Stable), max(k.high, all[done].High)}
		}
		k := known[r.Partition]
		if r.Stable < k.stable {
			c.flag("I8", "partition %d: stable offset %d after %d", r.Partition, r.Stable, k.stable)
		}
		if r.High < k.high {
			c.flag("I8", "partition %d: high watermark %d after %d", r.Partition, r.High, k.high)
		}
		if r.Stable > r.High {
			c.flag("I8", "partition %d: stable offset %d above high watermark %d", r.Partition, r.Stable, r.High)
		}
	}
}
