package catalog

import (
	"sync/atomic"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

// Command is one of the commands of this package; a nil one is the clock's
// question, of which the catalog has none.
type Command interface {
	decide(m *Machine, now time.Time) machine.Decision[Fact]
}

// Machine is the catalog's state. See machine.Machine for its contract.
type Machine struct {
	snapshot *Snapshot
	nextID   model.ProducerID
	publish  *atomic.Pointer[Snapshot]
}

// New returns the catalog of a new broker started with these settings: it has
// the internal topics and nothing else. Every change is published to snapshots,
// which holds that catalog at once.
func New(static *config.Static, broker *config.Broker, snapshots *atomic.Pointer[Snapshot]) *Machine {
	m := &Machine{publish: snapshots, nextID: firstProducerID, snapshot: &Snapshot{
		values: config.Values{Static: static}, broker: broker,
		groups: map[string]map[string]string{}, clientMetrics: map[string]map[string]string{},
		credentials: map[credentialKey]Credential{}, acls: map[ACL]struct{}{}, quotas: map[string]Quota{},
	}}
	m.snapshot.builtIn(m.snapshot.values)
	snapshots.Store(m.snapshot)
	return m
}

// Decide implements machine.Machine.
func (m *Machine) Decide(now time.Time, c Command) machine.Decision[Fact] {
	if c == nil {
		return machine.Decision[Fact]{}
	}
	return c.decide(m, now)
}

// Apply implements machine.Machine.
func (m *Machine) Apply(f Fact, _ model.Offset) { f.apply(m) }

// Due implements machine.Machine: the catalog waits for nothing.
func (m *Machine) Due() time.Time { return time.Time{} }

// edit publishes a changed copy of the snapshot. Maps in it are replaced by
// change, never written to.
func (m *Machine) edit(change func(*Snapshot)) {
	next := *m.snapshot
	change(&next)
	m.snapshot = &next
	m.publish.Store(&next)
}

// Read answers with a snapshot of which everything is durable.
type Read struct{ To *machine.Promise[*Snapshot] }

func (c Read) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	return machine.Decision[Fact]{Replies: []machine.Reply{machine.Answer(c.To, m.snapshot)}}
}

// AllocateProducerIDs takes ids out of circulation for ever; the answer is the
// first of them.
type AllocateProducerIDs struct {
	Count int64
	To    *machine.Promise[model.ProducerID]
}

// firstProducerID leaves 0 out: a zero id means "none" in places.
const firstProducerID model.ProducerID = 1

func (c AllocateProducerIDs) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	first := m.nextID
	next := first + model.ProducerID(c.Count)
	if c.Count <= 0 || next < first {
		return refuse(c.To, &Error{ErrProducerIDsExhausted, "no producer ids are left"})
	}
	return machine.Decision[Fact]{
		Facts:   []Fact{producerIDsFact{next}},
		Replies: []machine.Reply{machine.Answer(c.To, first)},
	}
}

func (f producerIDsFact) apply(m *Machine) { m.nextID = max(m.nextID, f.Next) }

// refuse is the decision to do nothing and say why.
func refuse[T any](to *machine.Promise[T], err error) machine.Decision[Fact] {
	return machine.Decision[Fact]{Replies: []machine.Reply{machine.Refuse(to, err)}}
}

// done is a decision that is answered with nothing but success.
func done(to *machine.Promise[struct{}], facts []Fact) machine.Decision[Fact] {
	return machine.Decision[Fact]{Facts: facts, Replies: []machine.Reply{machine.Answer(to, struct{}{})}}
}
