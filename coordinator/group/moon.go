package group

import (
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// moonAssignor is the name MoonMQ groups show to Kafka's tools.
const moonAssignor = "range"

func (c Attach) decide(m *Machine, now time.Time) decision {
	refuse := func(err error) decision {
		return decision{Replies: []machine.Reply{machine.Refuse(c.Reply, err)}}
	}
	switch {
	case c.Group == "":
		return refuse(ErrInvalidGroupID)
	case tooLong(c.Group, c.Member, c.ClientID, c.Host):
		return refuse(ErrInvalidCommand)
	}
	s := m.step(c.Group, now)
	if len(s.g.members) > 0 && s.g.protocolType != MoonProtocol {
		return refuse(ErrInconsistentProtocol)
	}
	if s.g.members[c.Member] == nil && len(s.g.members) >= m.config.MaxMembers {
		return refuse(ErrGroupFull)
	}
	s.attach(c)
	d := s.decision()
	d.Replies = append(d.Replies, machine.Answer(c.Reply, struct{}{}))
	return d
}

// attach makes or renews a member. There is no barrier: who reads what follows
// from the members alone.
func (s *step) attach(c Attach) {
	g := s.g
	topics := slices.Compact(slices.Sorted(slices.Values(c.Topics)))
	old := g.members[c.Member]
	next := &member{
		id: c.Member, clientID: c.ClientID, clientHost: c.Host, session: c.Session, rebalance: c.Session,
		topics: topics, protocols: []Protocol{{Name: moonAssignor, Metadata: EncodeSubscription(topics)}},
		deadline: s.now.Add(c.Session),
	}
	if old != nil {
		next.order = old.order
	} else {
		g.joins++
		next.order = g.joins
	}
	g.protocolType = MoonProtocol
	g.members[c.Member] = next
	if old == nil || !slices.Equal(old.topics, topics) {
		s.settleMoon()
	}
}

// settleMoon begins a generation at once.
func (s *step) settleMoon() {
	g := s.g
	if len(g.members) == 0 {
		s.becomeEmpty()
		return
	}
	g.generation++
	g.protocol = moonAssignor
	if g.members[g.leader] == nil {
		g.leader = g.ordered()[0].id
	}
	if g.state != Stable {
		s.enter(Stable)
	}
}

// AssignRange shares topics among MoonMQ members: for each topic its subscribers
// by id (bytewise), its partitions in order, each gets the same number and the
// first ones one more. count gives a topic's number of partitions. A subscriber
// left without partitions still has the topic, with none.
func AssignRange(members []Member, count func(topic string) int32) map[string]map[string][]int32 {
	subscribers := map[string][]string{}
	assigned := map[string]map[string][]int32{}
	for _, m := range members {
		assigned[m.ID] = map[string][]int32{}
		for _, topic := range m.Topics {
			subscribers[topic] = append(subscribers[topic], m.ID)
		}
	}
	for topic, ids := range subscribers {
		slices.Sort(ids)
		partitions, n := int(count(topic)), len(ids)
		next := int32(0)
		for i, id := range ids {
			share := partitions / n
			if i < partitions%n {
				share++
			}
			own := make([]int32, 0, share)
			for range share {
				own = append(own, next)
				next++
			}
			assigned[id][topic] = own
		}
	}
	return assigned
}
