package txn

import (
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Enrol makes partitions part of the transaction and begins one if none is
// ongoing. Enrolling what is enrolled changes nothing. The timeout runs from
// the first enrolment, not from Init.
type Enrol struct {
	ID         string
	Producer   model.ProducerIdentity
	Partitions []Participant
	Version    Version
}

func (c Enrol) decide(m *Machine, now time.Time, _ model.ProducerID) Decision {
	r, err := m.holder(c.ID, c.Producer)
	if err != nil {
		return refuse(err)
	}
	if r.State.preparing() {
		return refuse(ErrConcurrent)
	}
	all, grown := r.union(c.Partitions)
	if r.State == Ongoing && !grown {
		return accept(r)
	}
	if r.State != Ongoing {
		r.State = Ongoing
		r.Start = millis(now)
	}
	r.Partitions = all
	r.Updated = millis(now)
	r.Version = c.Version
	return write(r)
}

// Verify asks whether partitions are part of the holder's ongoing transaction.
// It writes nothing; Decision.Missing lists those that are not.
type Verify struct {
	ID         string
	Producer   model.ProducerIdentity
	Partitions []Participant
}

func (c Verify) decide(m *Machine, _ time.Time, _ model.ProducerID) Decision {
	r, err := m.holder(c.ID, c.Producer)
	if err != nil {
		return refuse(err)
	}
	if r.State.preparing() {
		return refuse(ErrConcurrent)
	}
	d := accept(r)
	for _, p := range c.Partitions {
		if r.State != Ongoing || !r.has(p) {
			d.Missing = append(d.Missing, p)
		}
	}
	return d
}
