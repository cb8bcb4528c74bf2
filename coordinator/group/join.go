package group

import (
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// freshMemberTimeout bounds how long a new member's join may be parked: it does
// not know its id, so it cannot send heartbeats, and a client that gave up would
// otherwise stay for ever. Kafka's value.
const freshMemberTimeout = 5 * time.Minute

// step is a decision about one group in the making: a clone of the group, and
// what the change of it answers.
type step struct {
	config  *Config
	now     time.Time
	g       *group
	replies []machine.Reply
	journal bool // the group has to survive a restart in this state
	lost    bool // a member went
}

// decision is the step as data. A group that lost a member is journaled even in
// the middle of a rebalance: brought back by a restart, the member would have its
// whole session again, and a broker that restarts often enough could keep the
// others waiting for it for ever.
func (s *step) decision() decision {
	return decision{Facts: []Fact{groupChanged{group: s.g, journal: s.journal || s.lost}}, Replies: s.replies}
}

func (s *step) reply(r machine.Reply) { s.replies = append(s.replies, r) }

func (s *step) enter(state State) {
	s.g.previous, s.g.state, s.g.since = s.g.state, state, s.now
}

func (c JoinGroup) decide(m *Machine, now time.Time) decision {
	refuse := func(err error) decision {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	if err := c.check(m.config); err != nil {
		return refuse(err)
	}
	if m.groups[c.Group] == nil && c.Member != "" {
		return refuse(ErrUnknownMember)
	}
	if c.RequireKnownMember && c.Member == "" && c.Instance == "" {
		return c.announce(m, now)
	}
	s := m.step(c.Group, now)
	if !s.g.accepts(c.Member, m.config.MaxMembers) {
		if s.g.members[c.Member] == nil {
			return refuse(ErrGroupFull)
		}
		// The group was made smaller: the last to rejoin have to go.
		s.remove(c.Member, ErrGroupFull)
		s.reply(machine.Refuse(c.Reply, ErrGroupFull))
		s.proceed()
		return s.decision()
	}
	if !s.g.supports(c.ProtocolType, c.Protocols) {
		return refuse(ErrInconsistentProtocol)
	}
	if c.Member == "" {
		s.joinNew(c)
	} else if err := s.joinAgain(c); err != nil {
		return refuse(err)
	}
	return s.decision()
}

// check refuses what no group could take.
func (c JoinGroup) check(config *Config) error {
	switch {
	case c.Group == "":
		return ErrInvalidGroupID
	case c.SessionTimeout < config.MinSession || c.SessionTimeout > config.MaxSession:
		return ErrInvalidSessionTimeout
	case c.ProtocolType == MoonProtocol:
		return ErrInconsistentProtocol // its members do not join: see Attach
	case tooLong(c.Group, c.NewMember, c.Instance, c.ClientID, c.ClientHost, c.ProtocolType):
		return ErrInvalidCommand
	}
	for _, p := range c.Protocols {
		if tooLong(p.Name) {
			return ErrInvalidCommand
		}
	}
	return nil
}

// joinNew admits somebody without a member id.
func (s *step) joinNew(c JoinGroup) {
	if c.Instance != "" {
		if old := s.g.static(c.Instance); old != "" {
			s.replaceStatic(c, old)
			return
		}
		s.add(c, c.NewMember)
		return
	}
	s.add(c, c.NewMember)
}

// joinAgain admits somebody who says who it is.
func (s *step) joinAgain(c JoinGroup) error {
	if c.Instance == "" && s.g.expects(c.Member) {
		s.add(c, c.Member)
		return nil
	}
	if err := s.g.identify(Caller{Member: c.Member, Instance: c.Instance}); err != nil {
		return err
	}
	same := sameProtocols(s.g.members[c.Member].protocols, c.Protocols)
	switch {
	case s.g.state == CompletingRebalance && same:
		// The answer to its first join got lost.
		s.answerCurrent(c)
	case s.g.state == Stable && same && s.g.leader != c.Member:
		s.answerCurrent(c)
	default:
		// A leader rejoins to say that the topics have changed, others when their
		// subscription has.
		s.update(c, c.Member)
		s.rebalanceOrProceed()
	}
	return nil
}

// answerCurrent tells a member the generation it already belongs to.
func (s *step) answerCurrent(c JoinGroup) {
	r := s.joined(c.Member)
	s.renew(c.Member)
	s.reply(machine.Answer(c.Reply, r))
}

// joined is a member's view of the current generation.
func (s *step) joined(id string) JoinResult {
	r := JoinResult{
		Member: id, Generation: s.g.generation, ProtocolType: s.g.protocolType, Protocol: s.g.protocol, Leader: s.g.leader,
	}
	if id == s.g.leader {
		r.Members = s.g.leaderView()
	}
	return r
}

// add makes a member of a newcomer and parks its join.
func (s *step) add(c JoinGroup, id string) {
	g := s.g
	if g.state == PreparingRebalance && g.growing.active {
		g.growing.joined = true
	}
	if len(g.members) == 0 {
		g.protocolType = c.ProtocolType
	}
	g.joins++
	g.members[id] = &member{
		id: id, instance: c.Instance, clientID: c.ClientID, clientHost: c.ClientHost, order: g.joins, fresh: true,
		session: c.SessionTimeout, rebalance: c.RebalanceTimeout, protocols: c.Protocols,
		join: c.Reply, deadline: s.now.Add(freshMemberTimeout),
	}
	g.settle(id)
	if g.leader == "" {
		g.leader = id
	}
	s.rebalanceOrProceed()
}

// update takes over what a rejoining member says about itself and parks its join.
func (s *step) update(c JoinGroup, id string) {
	m := s.g.edit(id)
	if m.join != nil {
		// The client gave up on its earlier call and sent another.
		s.reply(machine.Refuse(m.join, ErrRebalanceInProgress))
	}
	m.protocols, m.session, m.rebalance = c.Protocols, c.SessionTimeout, c.RebalanceTimeout
	m.join = c.Reply
	if !m.fresh {
		m.deadline = time.Time{}
	}
}

// replaceStatic lets a restarted static member take its old place under a new
// member id. If nothing changes for the others, no rebalance is needed.
func (s *step) replaceStatic(c JoinGroup, old string) {
	g := s.g
	oldLeader := g.leader
	m := g.edit(old)
	if m.join != nil {
		s.reply(machine.Refuse(m.join, ErrFencedInstance))
	}
	if m.sync != nil {
		s.reply(machine.Refuse(m.sync, ErrFencedInstance))
	}
	m.id, m.join, m.sync = c.NewMember, nil, nil
	m.clientID, m.clientHost = c.ClientID, c.ClientHost
	delete(g.members, old)
	g.members[m.id] = m
	if g.leader == old {
		g.leader = m.id
	}
	s.update(c, m.id)
	m = g.members[m.id]
	if g.state != Stable || g.selectProtocol() != g.protocol {
		s.rebalanceOrProceed()
		return
	}
	s.journal = true
	m.join = nil
	s.renew(m.id)
	r := s.joined(m.id)
	if g.leader == m.id {
		if c.CanSkipAssignment {
			r.SkipAssignment = true
		} else {
			// Told that it leads, an older client would assign and sync; told of the
			// old leader, it syncs as a follower and gets its assignment back.
			r.Leader, r.Members = oldLeader, nil
		}
	}
	s.reply(machine.Answer(c.Reply, r))
}

// renew starts a member's session anew.
func (s *step) renew(id string) {
	m := s.g.edit(id)
	m.deadline = s.now.Add(m.session)
}

// remove drops a member and refuses what it waits for.
func (s *step) remove(id string, why error) {
	m := s.g.members[id]
	s.lost = s.lost || !m.fresh && s.g.protocolType != MoonProtocol
	if m.join != nil {
		s.reply(machine.Refuse(m.join, why))
	}
	if m.sync != nil {
		s.reply(machine.Refuse(m.sync, why))
	}
	delete(s.g.members, id)
	if s.g.leader == id {
		s.g.leader = ""
		for _, m := range s.g.ordered() {
			s.g.leader = m.id
			break
		}
	}
}
