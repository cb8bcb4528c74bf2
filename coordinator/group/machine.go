package group

import (
	"container/heap"
	"math"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// Config are the limits and times of all groups. It does not change while a
// machine uses it.
type Config struct {
	MinSession, MaxSession time.Duration // group.min/max.session.timeout.ms
	InitialRebalanceDelay  time.Duration // group.initial.rebalance.delay.ms
	MaxMembers             int           // group.max.size
	MetadataBytes          int           // offset.metadata.max.bytes
	OffsetRetention        time.Duration // offsets.retention.minutes
	RetentionCheck         time.Duration // offsets.retention.check.interval.ms
}

// DefaultConfig is Kafka's, but for the initial rebalance delay, which is zero
// here: a group of one is the common case on one machine, and a large group
// settles in a second rebalance.
var DefaultConfig = Config{
	MinSession: 6 * time.Second, MaxSession: 30 * time.Minute,
	MaxMembers: math.MaxInt32, MetadataBytes: 4096,
	OffsetRetention: 7 * 24 * time.Hour, RetentionCheck: 10 * time.Minute,
}

// Machine holds the groups of one __consumer_offsets partition.
type Machine struct {
	config    *Config
	groups    map[string]*group
	offsets   map[string]*offsets // exists exactly for the groups in groups
	enrolled  map[model.ProducerID]map[groupPartition]struct{}
	attempts  attempts
	agenda    agenda
	nextSweep time.Time // zero: to be set at the next question
}

// groupPartition is where a transaction has a pending offset.
type groupPartition struct {
	group string
	partition
}

// New returns an empty machine.
func New(config *Config) *Machine {
	return &Machine{
		config: config, groups: map[string]*group{}, offsets: map[string]*offsets{},
		enrolled: map[model.ProducerID]map[groupPartition]struct{}{},
		attempts: newAttempts(), agenda: agenda{byGroup: map[string]*appointment{}},
	}
}

// Decide implements machine.Machine.
func (m *Machine) Decide(now time.Time, c Command) machine.Decision[Fact] {
	if c == nil {
		return m.decideDue(now)
	}
	return c.decide(m, now)
}

// Apply implements machine.Machine.
func (m *Machine) Apply(f Fact, at model.Offset) { f.apply(m, at) }

// Due implements machine.Machine.
func (m *Machine) Due() time.Time {
	due := m.agenda.next()
	if len(m.groups) > 0 {
		sweep := m.nextSweep
		if sweep.IsZero() {
			sweep = atOnce
		}
		due = earliest(due, sweep)
	}
	return due
}

// step begins a decision about a group, which may be new.
func (m *Machine) step(id string, now time.Time) *step {
	s := &step{config: m.config, now: now}
	if g := m.groups[id]; g != nil {
		s.g = g.clone()
	} else {
		s.g = newGroup(id, now)
	}
	return s
}

// ensure makes a group exist; offsets alone make a "simple" one.
func (m *Machine) ensure(id string, now time.Time) *offsets {
	if m.groups[id] == nil {
		m.groups[id] = newGroup(id, now)
	}
	if m.offsets[id] == nil {
		m.offsets[id] = newOffsets()
	}
	return m.offsets[id]
}

// put replaces a group.
func (m *Machine) put(g *group) {
	m.ensure(g.id, g.since)
	m.groups[g.id] = g
	g.forgetSettled()
	m.agenda.set(g.id, g.due())
}

// tooLong reports whether a string does not fit the group log's int16 lengths.
func tooLong(fields ...string) bool {
	for _, f := range fields {
		if len(f) > math.MaxInt16 {
			return true
		}
	}
	return false
}

// agenda knows when to look at which group: a heap of lower bounds, so that the
// heartbeat of one member of a thousand costs nothing here.
type agenda struct {
	byGroup map[string]*appointment
	queue   appointments
}

type appointment struct {
	group string
	at    time.Time
	index int
}

// next returns the first appointment, zero if there is none.
func (a *agenda) next() time.Time {
	if len(a.queue) == 0 {
		return time.Time{}
	}
	return a.queue[0].at
}

// set moves a group's appointment; the zero time cancels it.
func (a *agenda) set(group string, at time.Time) {
	known := a.byGroup[group]
	switch {
	case at.IsZero() && known != nil:
		heap.Remove(&a.queue, known.index)
		delete(a.byGroup, group)
	case at.IsZero():
	case known != nil:
		known.at = at
		heap.Fix(&a.queue, known.index)
	default:
		known = &appointment{group: group, at: at}
		a.byGroup[group] = known
		heap.Push(&a.queue, known)
	}
}

// sooner makes an appointment that may stand before the group's own.
func (a *agenda) sooner(group string, at time.Time) {
	if known := a.byGroup[group]; known == nil || at.Before(known.at) {
		a.set(group, at)
	}
}

// passed lists the groups whose time has come, without changing anything.
func (a *agenda) passed(now time.Time) []string {
	var groups []string
	var visit func(i int)
	visit = func(i int) {
		if i < len(a.queue) && !a.queue[i].at.After(now) {
			groups = append(groups, a.queue[i].group)
			visit(2*i + 1)
			visit(2*i + 2)
		}
	}
	visit(0)
	return groups
}

// appointments implements heap.Interface.
type appointments []*appointment

func (q appointments) Len() int           { return len(q) }
func (q appointments) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q appointments) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *appointments) Push(x any) {
	a := x.(*appointment)
	a.index = len(*q)
	*q = append(*q, a)
}

func (q *appointments) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	*q = (*q)[:last]
	return a
}
