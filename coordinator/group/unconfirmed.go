package group

import (
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// A new dynamic member is given an id and told to come back with it (KIP-394), so
// that a client that gives up and asks anew leaves no member behind. Until it has
// come back or its session time has passed it is unconfirmed: a rebalance waits for
// it, but it has no place in the group.
//
//	JoinGroup "" ─► memberAnnounced ─► unconfirmed ─┬─ JoinGroup id ─► a member
//	                                                ├─ LeaveGroup id
//	                                                └─ session timeout
//
// Anybody can ask for an id, as often as it likes. So the list is bounded, and it is
// shared by a group and its clones instead of being copied for every decision: a
// clone only notes whom it has settled, and they go when it takes the group's place.

// maxUnconfirmed bounds the list of one group, besides group.max.size, which by
// default does not: more members than start at one time, and a few MB.
const maxUnconfirmed = 10_000

// announce gives a newcomer its id.
func (c JoinGroup) announce(m *Machine, now time.Time) decision {
	g := m.groups[c.Group]
	if g == nil {
		g = newGroup(c.Group, now)
	}
	switch {
	case !g.accepts("", m.config.MaxMembers), g.expected() >= min(m.config.MaxMembers, maxUnconfirmed):
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, ErrGroupFull)}}
	case !g.supports(c.ProtocolType, c.Protocols):
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, ErrInconsistentProtocol)}}
	}
	return decision{
		Facts:   []Fact{memberAnnounced{c.Group, c.NewMember, now, now.Add(c.SessionTimeout)}},
		Replies: []machine.Reply{machine.Refuse(c.Reply, &MemberIDRequired{ID: c.NewMember})},
	}
}

// expects reports whether an id was given out and is still waited for.
func (g *group) expects(id string) bool {
	_, given := g.unconfirmed[id]
	return given && !slices.Contains(g.settled, id)
}

// expected is how many of them there are.
func (g *group) expected() int { return len(g.unconfirmed) - len(g.settled) }

// settle ends the wait for an id; others are ignored.
func (g *group) settle(id string) {
	if g.expects(id) {
		g.settled = append(g.settled, id)
	}
}

// forgetSettled makes it so, once the clone is the group.
func (g *group) forgetSettled() {
	for _, id := range g.settled {
		delete(g.unconfirmed, id)
	}
	g.settled = nil
}
