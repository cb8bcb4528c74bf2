package checker

import (
	"cmp"
	"maps"
	"slices"
)

// owners judges producer ids and epochs.
func (c *check) owners() {
	c.producerIDs()
	c.fencing()
}

// producerIDs: an id has one owner for ever, an epoch is handed out once and
// epochs never go back.
func (c *check) producerIDs() {
	inits := slices.Clone(c.h.Inits)
	slices.SortFunc(inits, func(a, b Init) int { return cmp.Compare(a.Completed, b.Completed) })
	owner := map[int64]string{}
	handed := map[int64][]Init{}
	for i, in := range inits {
		if other, ok := owner[in.PID]; ok && (other != in.ID || in.ID == "") {
			c.flag("I14", "producer id %d was given to %q and to %q", in.PID, other, in.ID)
		}
		owner[in.PID] = in.ID
		for _, earlier := range handed[in.PID] {
			if earlier.Epoch == in.Epoch && !in.Retried && !earlier.Retried {
				c.flag("I14", "producer %d epoch %d was handed out twice", in.PID, in.Epoch)
			}
			if earlier.before(inits[i].Span) && earlier.Epoch > in.Epoch {
				c.flag("I14", "producer %d was given epoch %d after %d", in.PID, in.Epoch, earlier.Epoch)
			}
		}
		handed[in.PID] = append(handed[in.PID], in)
	}
}

// fencing: what is sent after somebody newer was told that he owns the id is
// not acknowledged and gets no offset.
func (c *check) fencing() {
	byID := map[string][]Init{}
	for _, in := range c.h.Inits {
		if in.ID != "" {
			byID[in.ID] = append(byID[in.ID], in)
		}
	}
	for i := range c.h.Txns {
		t := &c.h.Txns[i]
		for _, a := range t.Appends {
			newer, ok := newerOwner(byID[t.ID], t, a.Span)
			if ok && (a.Outcome == Done || len(c.logged[a.Value]) > 0) {
				c.flag("I11", "value %d of %s was written after producer %d epoch %d owned the id", a.Value, t.name(), newer.PID, newer.Epoch)
			}
		}
	}
}

// newerOwner finds an Init that was answered before the span began and took the
// id from the transaction's producer. A producer id that the same id was given
// later is newer whatever its epoch.
func newerOwner(inits []Init, t *Txn, s Span) (Init, bool) {
	var own Span
	for _, in := range inits {
		if in.PID == t.PID && (own == Span{} || in.Invoked < own.Invoked) {
			own = in.Span
		}
	}
	for _, in := range inits {
		newer := in.PID == t.PID && in.Epoch > t.Epoch || in.PID != t.PID && own.before(in.Span)
		if newer && in.Span.before(s) {
			return in, true
		}
	}
	return Init{}, false
}

// offsets: an input is consumed exactly if an output made from it is committed.
func (c *check) offsets() {
	type input struct {
		group     string
		partition int32
	}
	outputs := map[Source]int{}
	for _, v := range slices.Sorted(maps.Keys(c.committed)) {
		if o := c.origins[v]; o.append != nil && o.append.Source != nil {
			outputs[*o.append.Source]++
		}
	}
	want := map[input]int64{}
	for i := range c.h.Txns {
		t := &c.h.Txns[i]
		commit, known := t.decision()
		if !(known && commit) && !c.visible(t) {
			continue
		}
		for _, s := range t.Sources {
			in := input{s.Group, s.Partition}
			want[in] = max(want[in], s.Offset+1)
		}
	}
	for source, n := range outputs {
		if n > 1 {
			c.flag("I7", "input %d/%d of group %s has %d committed outputs", source.Partition, source.Offset, source.Group, n)
		}
	}
	c.groupsAdvance()
	for _, g := range c.h.Final.Groups {
		if w, ok := want[input{g.Group, g.Partition}]; ok && g.Offset != w {
			c.flag("I7", "group %s stands at %d/%d, its committed transactions say %d", g.Group, g.Partition, g.Offset, w)
		}
	}
}

// groupsAdvance: a group whose offsets only transactions move, forward, is never
// seen further back than before. It also measures for how long an offset was
// unstable at a stretch.
func (c *check) groupsAdvance() {
	polls := slices.Clone(c.h.Offsets)
	slices.SortStableFunc(polls, func(a, b GroupOffset) int { return cmp.Compare(a.Completed, b.Completed) })
	type group struct {
		name      string
		partition int32
	}
	last := map[group]GroupOffset{}
	unstable := map[group]int64{} // since when
	for _, o := range polls {
		g := group{o.Group, o.Partition}
		since, waiting := unstable[g]
		if o.Unstable && !waiting {
			unstable[g] = o.Invoked
		}
		if waiting {
			c.report.LongestUnstable = max(c.report.LongestUnstable, o.Completed-since)
		}
		if o.Unstable {
			continue
		}
		delete(unstable, g)
		if before, ok := last[g]; ok && before.before(o.Span) && o.Offset < before.Offset {
			c.flag("I7", "group %s stood at %d/%d after %d", o.Group, o.Partition, o.Offset, before.Offset)
		}
		last[g] = o
	}
}
