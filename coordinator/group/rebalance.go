package group

import (
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// rebalanceOrProceed follows every change of the membership: a group at rest
// starts to gather its members, a gathering one may now be complete.
func (s *step) rebalanceOrProceed() {
	if s.g.state == PreparingRebalance {
		s.proceed()
		return
	}
	s.prepare()
}

// prepare begins to gather the members for the next generation.
func (s *step) prepare() {
	g := s.g
	if g.state == CompletingRebalance {
		s.abandonSync()
	}
	g.syncDeadline = time.Time{}
	first := g.state == Empty
	s.enter(PreparingRebalance)
	switch {
	case first && s.config.InitialRebalanceDelay > 0:
		delay := s.config.InitialRebalanceDelay
		g.growing = growth{active: true, delay: delay, remaining: max(0, g.rebalanceTimeout()-delay)}
		g.joinDeadline = s.now.Add(delay)
	case g.everyoneJoined():
		s.completeJoin()
	default:
		g.joinDeadline = s.now.Add(g.rebalanceTimeout())
	}
}

// abandonSync sends everyone who waits for an assignment back to join.
func (s *step) abandonSync() {
	for _, m := range s.g.ordered() {
		m = s.g.edit(m.id)
		if m.sync != nil {
			s.reply(machine.Refuse(m.sync, ErrRebalanceInProgress))
			m.deadline = s.now.Add(m.session)
		}
		m.sync, m.assignment, m.unsynced = nil, nil, false
	}
}

// proceed ends the gathering if nobody is missing. The first generation of a
// group waits for its delay to pass all the same.
func (s *step) proceed() {
	if s.g.state == PreparingRebalance && !s.g.growing.active && s.g.everyoneJoined() {
		s.completeJoin()
	}
}

// joinTimePassed ends the gathering with those who came.
func (s *step) joinTimePassed() {
	g := s.g
	if w := &g.growing; w.active && w.joined && w.remaining > 0 {
		next := min(s.config.InitialRebalanceDelay, w.remaining)
		w.remaining, w.delay, w.joined = max(0, w.remaining-w.delay), next, false
		g.joinDeadline = s.now.Add(next)
		return
	}
	s.completeJoin()
}

// completeJoin begins a generation with the members that have joined. Dynamic
// members that have not are dropped; static ones keep their place until their
// session ends.
func (s *step) completeJoin() {
	g := s.g
	g.joinDeadline, g.growing = time.Time{}, growth{}
	for _, m := range g.ordered() {
		if m.join == nil && m.instance == "" {
			s.remove(m.id, ErrUnknownMember)
		}
	}
	if len(g.members) == 0 {
		s.becomeEmpty()
		return
	}
	if !s.electJoined() {
		// Only static members are left and none is here: wait for them or for the
		// end of their sessions.
		g.joinDeadline = s.now.Add(g.rebalanceTimeout())
		return
	}
	g.generation++
	g.protocol = g.selectProtocol()
	s.enter(CompletingRebalance)
	// The members are told the generation, so no crash may take it back: a member
	// that syncs with it after a restart has to hear that the group rebalances, not
	// that its generation never existed.
	s.journal = true
	g.syncDeadline = s.now.Add(g.rebalanceTimeout())
	for _, m := range g.ordered() {
		m = g.edit(m.id)
		if m.join != nil {
			s.reply(machine.Answer(m.join, s.joined(m.id)))
		}
		m.join, m.fresh, m.unsynced = nil, false, true
		m.deadline = s.now.Add(m.session)
	}
}

// electJoined makes sure that the leader is one of those who joined.
func (s *step) electJoined() bool {
	g := s.g
	if m := g.members[g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.ordered() {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// becomeEmpty is the generation without members.
func (s *step) becomeEmpty() {
	s.g.generation++
	s.g.protocol, s.g.leader = "", ""
	s.g.joinDeadline, s.g.syncDeadline, s.g.growing = time.Time{}, time.Time{}, growth{}
	s.enter(Empty)
	s.journal = true
}

func (c SyncGroup) decide(m *Machine, now time.Time) decision {
	refuse := func(err error) decision {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	if c.Group == "" {
		return refuse(ErrInvalidGroupID)
	}
	g := m.groups[c.Group]
	if err := checkMember(g, c.Caller); err != nil {
		return refuse(err)
	}
	if differs(c.ProtocolType, g.protocolType) || differs(c.Protocol, g.protocol) {
		return refuse(ErrInconsistentProtocol)
	}
	s := m.step(c.Group, now)
	switch g.state {
	case PreparingRebalance:
		return refuse(ErrRebalanceInProgress)
	case CompletingRebalance:
		s.park(c)
		if g.leader == c.Caller.Member {
			s.assign(c.Assignments)
		}
	case Stable:
		s.edit(c.Caller.Member).unsynced = false
		s.renew(c.Caller.Member)
		s.answerSync(c.Reply, c.Caller.Member)
	}
	s.syncProgressed()
	return s.decision()
}

// differs compares with something the client may have left out.
func differs(said, is string) bool { return said != "" && said != is }

// checkMember checks a member that speaks of the current generation. A group
// that is absent or empty knows nobody.
func checkMember(g *group, c Caller) error {
	if g == nil && c.Unchecked {
		return ErrGroupNotFound
	}
	if g == nil {
		return ErrUnknownMember
	}
	if err := g.identify(c); err != nil {
		return err
	}
	if c.Generation != g.generation && !c.Unchecked {
		return ErrIllegalGeneration
	}
	return nil
}

func (s *step) edit(id string) *member { return s.g.edit(id) }

// park keeps a member's sync until the leader has brought the assignments.
func (s *step) park(c SyncGroup) {
	m := s.edit(c.Caller.Member)
	if m.sync != nil {
		s.reply(machine.Refuse(m.sync, ErrRebalanceInProgress))
	}
	m.sync, m.unsynced, m.deadline = c.Reply, false, time.Time{}
}

// assign makes the group Stable with the leader's assignments and answers
// everyone who waits. A member the leader forgot gets nothing to read.
func (s *step) assign(assignments map[string][]byte) {
	s.enter(Stable)
	s.journal = true
	for _, m := range s.g.ordered() {
		m = s.edit(m.id)
		m.assignment = assignments[m.id]
	}
	for _, m := range s.g.ordered() {
		if m.sync != nil {
			s.answerSync(m.sync, m.id)
			m = s.edit(m.id)
			m.sync = nil
			m.deadline = s.now.Add(m.session)
		}
	}
}

func (s *step) answerSync(to *machine.Promise[SyncResult], id string) {
	s.reply(machine.Answer(to, SyncResult{
		ProtocolType: s.g.protocolType, Protocol: s.g.protocol, Assignment: s.g.members[id].assignment,
	}))
}

// syncProgressed stops the clock when nobody owes a sync any more.
func (s *step) syncProgressed() {
	for _, m := range s.g.members {
		if m.unsynced {
			return
		}
	}
	s.g.syncDeadline = time.Time{}
}

// syncTimePassed drops the members that never asked for their assignment.
func (s *step) syncTimePassed() {
	s.g.syncDeadline = time.Time{}
	dropped := false
	for _, m := range s.g.ordered() {
		if m.unsynced {
			s.remove(m.id, ErrUnknownMember)
			dropped = true
		}
	}
	if dropped {
		s.prepare()
	}
}

func (c Heartbeat) decide(m *Machine, now time.Time) decision {
	g := m.groups[c.Group]
	refuse := func(err error) decision {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	if c.Group == "" {
		return refuse(ErrInvalidGroupID)
	}
	if err := checkMember(g, c.Caller); err != nil {
		return refuse(err)
	}
	d := decision{Replies: []machine.Reply{machine.Answer(c.Reply, struct{}{})}}
	if member := g.members[c.Caller.Member]; !member.deadline.IsZero() && !member.fresh {
		d.Facts = []Fact{memberSeen{group: c.Group, member: member.id, deadline: now.Add(member.session)}}
	}
	if g.state == PreparingRebalance {
		d.Replies = []machine.Reply{machine.Refuse(c.Reply, ErrRebalanceInProgress)}
	}
	return d
}

func (c LeaveGroup) decide(m *Machine, now time.Time) decision {
	if c.Group == "" {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, ErrInvalidGroupID)}}
	}
	if m.groups[c.Group] == nil {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, ErrUnknownMember)}}
	}
	s := m.step(c.Group, now)
	results := make([]error, len(c.Members))
	before := len(s.g.members)
	for i, l := range c.Members {
		results[i] = s.leave(l)
	}
	switch {
	case len(s.g.members) == before:
		s.proceed() // somebody the group was expecting may have gone
	case s.g.protocolType == MoonProtocol:
		s.settleMoon()
	default:
		s.rebalanceOrProceed()
	}
	d := s.decision()
	d.Replies = append(d.Replies, machine.Answer(c.Reply, results))
	return d
}

// leave removes one member without looking at what becomes of the group.
func (s *step) leave(l Leaving) error {
	if l.Member == "" {
		id := s.g.static(l.Instance)
		if id == "" {
			return ErrUnknownMember
		}
		s.remove(id, ErrUnknownMember)
		return nil
	}
	if s.g.expects(l.Member) {
		s.g.settle(l.Member)
		return nil
	}
	if err := s.g.identify(Caller{Member: l.Member, Instance: l.Instance}); err != nil {
		return err
	}
	s.remove(l.Member, ErrUnknownMember)
	return nil
}
