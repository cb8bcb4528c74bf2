package group

import (
	"slices"
	"time"
)

// decideDue is the machine's answer to the clock: groups whose deadlines have
// passed, and now and then the offsets that nobody needs any more.
func (m *Machine) decideDue(now time.Time) decision {
	var d decision
	for _, id := range m.agenda.passed(now) {
		one := m.step(id, now).expire()
		d.Facts = append(d.Facts, one.Facts...)
		d.Replies = append(d.Replies, one.Replies...)
	}
	if m.sweepDue(now) {
		d.Facts = append(d.Facts, m.sweep(now)...)
		d.Facts = append(d.Facts, swept{next: now.Add(m.config.RetentionCheck)})
	}
	return d
}

// expire carries out what the group's deadlines ask for. Nothing may be due: the
// agenda knows a group's deadline only as a lower bound, since heartbeats move it.
func (s *step) expire() decision {
	g := s.g
	if g.unarmed {
		s.arm()
	}
	for id, at := range g.unconfirmed {
		if passed(at, s.now) {
			g.settled = append(g.settled, id)
		}
	}
	gone := len(g.settled) > 0
	dropped := false
	for _, m := range g.ordered() {
		if passed(m.deadline, s.now) {
			s.remove(m.id, ErrUnknownMember)
			dropped = true
		}
	}
	switch {
	case dropped && g.protocolType == MoonProtocol:
		s.settleMoon()
	case dropped:
		s.rebalanceOrProceed()
	case gone:
		s.proceed()
	}
	if passed(g.joinDeadline, s.now) {
		s.joinTimePassed()
	}
	if passed(g.syncDeadline, s.now) {
		s.syncTimePassed()
	}
	return s.decision()
}

// arm starts the sessions of members that came from the log, and the rebalance
// they were caught in: a restart of the broker gives everyone a whole session to
// come back.
func (s *step) arm() {
	s.g.unarmed = false
	for _, m := range s.g.ordered() {
		s.renew(m.id)
	}
	if s.g.state == PreparingRebalance {
		s.g.joinDeadline = s.now.Add(s.g.rebalanceTimeout())
	}
}

// sweepDue reports whether it is time to look for expired offsets. A machine
// that has just begun to hold groups learns its first time by being asked.
func (m *Machine) sweepDue(now time.Time) bool {
	return len(m.groups) > 0 && !m.nextSweep.After(now)
}

// sweep returns what retention removes: offsets, attempt counters, and empty
// groups that have nothing left.
func (m *Machine) sweep(now time.Time) []Fact {
	if m.nextSweep.IsZero() {
		return nil // the first question only sets the time
	}
	var facts []Fact
	for _, id := range sortedKeys(m.groups) {
		g, o := m.groups[id], m.offsets[id]
		kept := 0
		for _, tp := range o.partitions() {
			if m.expired(g, o, tp, now) {
				facts = append(facts, offsetDeleted{group: id, partition: tp})
			} else {
				kept++
			}
		}
		for _, key := range m.attempts.of(id) {
			if now.Sub(m.attempts.counts[key].last) >= m.config.OffsetRetention {
				facts = append(facts, attemptsCleared{key: key})
			}
		}
		if g.state == Empty && len(g.unconfirmed) == 0 && kept == 0 && !o.hasPending() {
			facts = append(facts, m.forget(id)...)
		}
	}
	return facts
}

// expired applies Kafka's rules: an offset's time begins with its commit, in an
// empty group that had members with the last of them leaving; as long as there
// are members, only topics none of them reads are looked at, and only if we can
// tell; an open transaction keeps everything.
func (m *Machine) expired(g *group, o *offsets, tp partition, now time.Time) bool {
	c, ok := o.committed[tp]
	if !ok || len(o.pending[tp]) > 0 {
		return false
	}
	since := c.at
	switch {
	case g.protocolType == "":
	case g.state == Empty:
		since = g.since
	case g.state == Stable:
		topics, known := g.subscribed()
		if !known || slices.Contains(topics, tp.topic) {
			return false
		}
	default:
		return false
	}
	if !c.expires.IsZero() {
		return !c.expires.After(now)
	}
	return now.Sub(since) >= m.config.OffsetRetention
}
