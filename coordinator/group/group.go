package group

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// State is where a group stands between two generations.
type State int8

const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
)

// String is Kafka's name of the state.
func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// MoonProtocol is the protocol type of groups whose members speak MoonMQ.
const MoonProtocol = "moonmq"

// consumerProtocol is the protocol type whose member metadata is a consumer's
// subscription.
const consumerProtocol = "consumer"

// atOnce is a deadline that has passed whatever the clock says; the zero time
// means none.
var atOnce = time.Unix(0, 0)

// group is the membership of one group. Decide never changes one that the
// machine holds: it works on a clone, which a fact then puts in its place.
type group struct {
	id           string
	state        State
	previous     State
	since        time.Time // of the state
	protocolType string    // "" until somebody joined
	protocol     string    // selected; "" in between
	generation   int32
	leader       string
	joins        int // how many members ever joined: gives them an order
	members      map[string]*member
	unarmed      bool // just loaded: sessions have not begun to run

	unconfirmed map[string]time.Time // see unconfirmed.go
	settled     []string             // by this clone

	joinDeadline time.Time // PreparingRebalance ends
	syncDeadline time.Time // those who have not synced by then are dropped
	growing      growth
}

// growth delays the first generation of an empty group, so that a deployment
// that starts its members one after the other rebalances once.
type growth struct {
	active    bool
	delay     time.Duration // of the step that is running
	remaining time.Duration // by which the delay may still be extended
	joined    bool          // somebody joined during this step
}

// member is immutable once the machine holds it, but for its deadline.
type member struct {
	id         string
	instance   string
	clientID   string
	clientHost string
	order      int
	session    time.Duration
	rebalance  time.Duration
	protocols  []Protocol
	assignment []byte
	topics     []string  // of a MoonMQ member
	deadline   time.Time // the session ends; zero while a join or sync is parked
	fresh      bool      // has not been through a generation: does not know its own id yet
	unsynced   bool      // owes a SyncGroup in this generation
	join       *machine.Promise[JoinResult]
	sync       *machine.Promise[SyncResult]
}

func newGroup(id string, now time.Time) *group {
	return &group{id: id, since: now, members: map[string]*member{}, unconfirmed: map[string]time.Time{}}
}

// clone is a copy whose members are still shared; edit makes one its own. Who is
// unconfirmed stays shared for good.
func (g *group) clone() *group {
	c := *g
	c.members = maps.Clone(g.members)
	return &c
}

// edit returns a member of a clone for changing.
func (g *group) edit(id string) *member {
	c := *g.members[id]
	g.members[id] = &c
	return &c
}

// ordered returns the members in the order they joined.
func (g *group) ordered() []*member {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *member) int { return cmp.Compare(a.order, b.order) })
}

// static returns the id of the member with an instance id, or "".
func (g *group) static(instance string) string {
	for id, m := range g.members {
		if instance != "" && m.instance == instance {
			return id
		}
	}
	return ""
}

// identify checks that a caller is the member it says.
func (g *group) identify(c Caller) error {
	if c.Instance != "" {
		switch g.static(c.Instance) {
		case "":
			return ErrUnknownMember
		case c.Member:
		default:
			return ErrFencedInstance
		}
	}
	if g.members[c.Member] == nil {
		return ErrUnknownMember
	}
	return nil
}

// mayCommit checks a caller that wants to move the group's offsets. Inside a
// transaction a caller that claims nothing is let in (old clients do not say),
// and a rebalance is no obstacle.
func (g *group) mayCommit(c Caller, transactional bool) error {
	switch {
	case c.Unchecked, c.Generation < 0 && g.state == Empty:
		return nil
	case c.anonymous():
		if transactional {
			return nil
		}
		return ErrUnknownMember
	}
	if err := g.identify(c); err != nil {
		return err
	}
	if c.Generation != g.generation {
		return ErrIllegalGeneration
	}
	if !transactional && g.state == CompletingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

// accepts reports whether there is room for a joining member.
func (g *group) accepts(id string, maxMembers int) bool {
	m := g.members[id]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.join != nil || g.waitingToJoin() < maxMembers
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < maxMembers
	}
	return true
}

func (g *group) waitingToJoin() int {
	n := 0
	for _, m := range g.members {
		if m.join != nil {
			n++
		}
	}
	return n
}

func (g *group) everyoneJoined() bool {
	return g.expected() == 0 && g.waitingToJoin() == len(g.members)
}

// rebalanceTimeout is the longest any member may need to rejoin.
func (g *group) rebalanceTimeout() time.Duration {
	var longest time.Duration
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// supports reports whether a member could take part: some protocol of its is
// supported by every present member.
func (g *group) supports(protocolType string, protocols []Protocol) bool {
	if len(g.members) == 0 {
		return protocolType != "" && len(protocols) > 0
	}
	common := g.common()
	return g.protocolType == protocolType && slices.ContainsFunc(protocols, func(p Protocol) bool { return common[p.Name] })
}

// common returns the protocols every member supports.
func (g *group) common() map[string]bool {
	supporters := map[string]int{}
	for _, m := range g.members {
		for i, p := range m.protocols {
			if !slices.ContainsFunc(m.protocols[:i], func(q Protocol) bool { return q.Name == p.Name }) {
				supporters[p.Name]++
			}
		}
	}
	common := map[string]bool{}
	for name, n := range supporters {
		common[name] = n == len(g.members)
	}
	return common
}

// selectProtocol counts one vote per member, for the first it offers of those
// all support. A tie goes to the choice of the member that joined first.
func (g *group) selectProtocol() string {
	common := g.common()
	votes := map[string]int{}
	var voted []string // in the order of their first vote
	for _, m := range g.ordered() {
		i := slices.IndexFunc(m.protocols, func(p Protocol) bool { return common[p.Name] })
		if i < 0 {
			continue
		}
		choice := m.protocols[i].Name
		if votes[choice]++; votes[choice] == 1 {
			voted = append(voted, choice)
		}
	}
	best := ""
	for _, choice := range voted {
		if votes[choice] > votes[best] {
			best = choice
		}
	}
	return best
}

// metadata returns what the member said about a protocol.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func sameProtocols(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(a, b Protocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

// leaderView lists the members for the leader.
func (g *group) leaderView() []JoinedMember {
	view := make([]JoinedMember, 0, len(g.members))
	for _, m := range g.ordered() {
		view = append(view, JoinedMember{ID: m.id, Instance: m.instance, Metadata: m.metadata(g.protocol)})
	}
	return view
}

// describe is the group as others may see it.
func (g *group) describe() Description {
	d := Description{ID: g.id, State: g.state, ProtocolType: g.protocolType, Generation: g.generation}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.ordered() {
		seen := Member{ID: m.id, Instance: m.instance, ClientID: m.clientID, ClientHost: m.clientHost, Topics: m.topics, Assignment: m.assignment}
		if g.state == Stable {
			seen.Metadata = m.metadata(g.protocol)
		}
		d.Members = append(d.Members, seen)
	}
	return d
}

// due is the group's next deadline; zero if it has none.
func (g *group) due() time.Time {
	if g.unarmed {
		return atOnce
	}
	due := earliest(g.joinDeadline, g.syncDeadline)
	for _, at := range g.unconfirmed {
		due = earliest(due, at)
	}
	for _, m := range g.members {
		due = earliest(due, m.deadline)
	}
	return due
}

// earliest ignores zero times.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// passed reports whether a deadline is set and reached.
func passed(deadline, now time.Time) bool { return !deadline.IsZero() && !deadline.After(now) }
