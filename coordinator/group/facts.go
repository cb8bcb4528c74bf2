package group

import (
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Fact is a change of a Machine. Journaled are the offsets, the attempt counters,
// deletions, and groups that a restart has to find; the others are volatile.
type Fact interface {
	apply(m *Machine, at model.Offset)
}

type (
	// offsetSet is a committed offset, or with a producer a pending one.
	offsetSet struct {
		group     string
		partition partition
		value     committed
		producer  *model.ProducerIdentity
	}
	// offsetDeleted removes an offset, a pending one too.
	offsetDeleted struct {
		group     string
		partition partition
	}
	// transactionEnded is a marker: the producer's pending offsets are settled.
	transactionEnded struct {
		producer model.ProducerID
		commit   bool
	}
	// groupChanged replaces a group; journaled if it has come to rest.
	groupChanged struct {
		group   *group
		journal bool
	}
	groupDeleted struct{ group string }
	// memberAnnounced adds to the unconfirmed members (volatile).
	memberAnnounced struct {
		group, member string
		at, deadline  time.Time
	}
	// attemptsSet counts the failures of one record.
	attemptsSet struct {
		key   attemptKey
		value attempt
	}
	attemptsCleared struct{ key attemptKey }
	// memberSeen moves a member's deadline (volatile).
	memberSeen struct {
		group, member string
		deadline      time.Time
	}
	// swept says when to look for expired offsets again (volatile).
	swept struct{ next time.Time }
)

// TransactionEnded is the fact of a transaction marker in the facts log, for the
// façade, which appends markers on the transaction coordinator's behalf.
func TransactionEnded(producer model.ProducerID, commit bool) Fact {
	return transactionEnded{producer: producer, commit: commit}
}

func (f offsetSet) apply(m *Machine, at model.Offset) {
	o := m.ensure(f.group, f.value.at)
	f.value.position = at
	if f.producer == nil {
		o.store(f.partition, f.value)
		return
	}
	o.enrol(f.partition, f.producer.ID, f.value)
	if m.enrolled[f.producer.ID] == nil {
		m.enrolled[f.producer.ID] = map[groupPartition]struct{}{}
	}
	m.enrolled[f.producer.ID][groupPartition{f.group, f.partition}] = struct{}{}
}

func (f offsetDeleted) apply(m *Machine, _ model.Offset) {
	if o := m.offsets[f.group]; o != nil {
		o.drop(f.partition)
	}
}

func (f transactionEnded) apply(m *Machine, _ model.Offset) {
	for where := range m.enrolled[f.producer] {
		if o := m.offsets[where.group]; o != nil {
			o.settle(where.partition, f.producer, f.commit)
		}
	}
	delete(m.enrolled, f.producer)
}

func (f groupChanged) apply(m *Machine, _ model.Offset) { m.put(f.group) }

func (f groupDeleted) apply(m *Machine, _ model.Offset) {
	delete(m.groups, f.group)
	delete(m.offsets, f.group)
	m.agenda.set(f.group, time.Time{})
}

func (f memberAnnounced) apply(m *Machine, _ model.Offset) {
	m.ensure(f.group, f.at)
	m.groups[f.group].unconfirmed[f.member] = f.deadline
	m.agenda.sooner(f.group, f.deadline)
}

func (f attemptsSet) apply(m *Machine, _ model.Offset)     { m.attempts.set(f.key, f.value) }
func (f attemptsCleared) apply(m *Machine, _ model.Offset) { m.attempts.clear(f.key) }

func (f memberSeen) apply(m *Machine, _ model.Offset) {
	if g := m.groups[f.group]; g != nil && g.members[f.member] != nil {
		g.members[f.member].deadline = f.deadline
	}
}

func (f swept) apply(m *Machine, _ model.Offset) { m.nextSweep = f.next }
