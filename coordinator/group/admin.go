package group

import (
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

func (c DescribeGroup) decide(m *Machine, _ time.Time) decision {
	reply := machine.Refuse(c.Reply, ErrGroupNotFound)
	if g := m.groups[c.Group]; g != nil {
		reply = machine.Answer(c.Reply, g.describe())
	}
	return decision{Replies: []machine.Reply{reply}}
}

func (c ListGroups) decide(m *Machine, _ time.Time) decision {
	list := make([]Listing, 0, len(m.groups))
	for _, id := range sortedKeys(m.groups) {
		g := m.groups[id]
		list = append(list, Listing{ID: id, ProtocolType: g.protocolType, State: g.state, Members: len(g.members)})
	}
	return decision{Replies: []machine.Reply{machine.Answer(c.Reply, list)}}
}

func (c DeleteGroup) decide(m *Machine, _ time.Time) decision {
	refuse := func(err error) decision {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	g := m.groups[c.Group]
	switch {
	case g == nil:
		return refuse(ErrGroupNotFound)
	case g.state != Empty:
		return refuse(ErrNonEmptyGroup)
	}
	return decision{
		Facts:   m.forget(c.Group),
		Replies: []machine.Reply{machine.Answer(c.Reply, struct{}{})},
	}
}

// forget returns the tombstones of everything a group has: its offsets, pending
// ones included, its attempt counters and itself.
func (m *Machine) forget(id string) []Fact {
	var facts []Fact
	for _, tp := range m.offsets[id].all() {
		facts = append(facts, offsetDeleted{group: id, partition: tp})
	}
	facts = append(facts, groupDeleted{group: id})
	for _, key := range m.attempts.of(id) {
		facts = append(facts, attemptsCleared{key: key})
	}
	return facts
}
