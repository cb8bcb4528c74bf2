package checker

import "slices"

// deadLetters: a record that was given up is written to the dead-letter topic
// once, with its group past it; one that was given back comes again.
func (c *check) deadLetters() {
	seen := map[Source]bool{}
	for _, d := range c.h.Final.Dead {
		if seen[d.Source] {
			c.flag("I17", "the record of group %s at %d/%d is dead twice", d.Group, d.Partition, d.Offset)
		}
		seen[d.Source] = true
		if d.Settled <= d.Offset {
			c.flag("I17", "group %s stands at %d in front of its dead record %d/%d", d.Group, d.Settled, d.Partition, d.Offset)
		}
	}
	for i := range c.h.Nacks {
		n := &c.h.Nacks[i]
		switch {
		case n.Outcome == Done && n.Dead && !seen[n.Source]:
			c.flag("I17", "the record of group %s at %d/%d was said to be dead and is not among the dead", n.Group, n.Partition, n.Offset)
		case n.Outcome == Done && !n.Dead && !seen[n.Source] && !c.cameAgain(n):
			c.flag("I17", "group %s gave %d/%d back; it is past it and was not handed it again", n.Group, n.Partition, n.Offset)
		}
	}
	for s := range seen {
		if !slices.ContainsFunc(c.h.Nacks, func(n Nack) bool { return n.Source == s && n.Outcome != Refused }) && len(c.h.Nacks) > 0 {
			c.flag("I17", "the record of group %s at %d/%d is dead and nobody gave it back", s.Group, s.Partition, s.Offset)
		}
	}
}

// cameAgain reports whether a record that was given back was delivered again,
// or may have been, or is still to come.
func (c *check) cameAgain(n *Nack) bool {
	for _, g := range c.h.Final.Settled {
		if g.Group == n.Group && g.Partition == n.Partition && g.Offset <= n.Offset {
			return true
		}
	}
	return slices.ContainsFunc(c.h.Deliveries, func(d Delivery) bool {
		later := d.Group == n.Group && d.Completed > n.Completed
		return later && (d.Outcome == Unknown || slices.Contains(d.Offsets, n.Offset))
	})
}
