package txn

import (
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// Outcome is how a transaction ends.
type Outcome int8

const (
	Abort  Outcome = 0
	Commit Outcome = 1
)

func (o Outcome) prepared() State {
	if o == Commit {
		return PrepareCommit
	}
	return PrepareAbort
}

func (o Outcome) complete() State {
	if o == Commit {
		return CompleteCommit
	}
	return CompleteAbort
}

// Fact is what a shard journals: the record of an id, or that it is forgotten.
type Fact struct {
	ID     string
	Record *Record // nil: a tombstone
}

// Markers are the control batches an end must write, in the same journal entry
// as its fact. Partitions that no longer exist are left out by the façade.
type Markers struct {
	Producer   model.ProducerIdentity // what the markers carry
	Outcome    Outcome
	Partitions []Participant
}

// Answer is what a command that was not refused is told.
type Answer struct {
	Producer model.ProducerIdentity // Init, End: what the client must use from now on
	Missing  []Participant          // Verify: asked for and not enrolled
	Records  []Record               // Describe, List
}

// Decision is the outcome of a command. With Err set nothing is to be written.
type Decision struct {
	Answer
	Err   error
	Facts []Fact // journaled together with Markers or not at all
	// Markers is nil when no transaction ends, and empty of partitions when one
	// ends that enrolled none.
	Markers *Markers

	// NeedsProducerID asks the caller to allocate a producer id and to decide
	// again with it. Nothing else is set.
	NeedsProducerID bool
}

func refuse(err error) Decision { return Decision{Err: err} }

// accept answers without writing.
func accept(r Record) Decision { return Decision{Answer: Answer{Producer: r.Producer}} }

// write is a decision that replaces the record.
func write(r Record) Decision {
	d := accept(r)
	d.Facts = []Fact{{ID: r.ID, Record: &r}}
	return d
}

// Command is a question to the machine.
type Command interface {
	// decide reads the state and changes nothing. fresh is a producer id the
	// decision may use, or model.NoProducerID until one asked for it.
	decide(m *Machine, now time.Time, fresh model.ProducerID) Decision
}

// Request is a decision on its way through a shard. The façade decides first,
// under the shard's lock, because it must know which partitions take part
// before it can sequence anything; the shard then journals and applies.
type Request struct {
	Decision Decision
	Reply    *machine.Promise[Answer] // nil: nobody asked
}

// Options are the machine's limits. The zero value means Kafka's defaults.
type Options struct {
	MaxTimeout   time.Duration // transaction.max.timeout.ms, 15 min
	IDExpiration time.Duration // transactional.id.expiration.ms, 7 days
	// SessionExpiration is for ids a MoonMQ session owned last, if it is longer;
	// negative: never. moonmq.producer.expiration.ms.
	SessionExpiration time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxTimeout == 0 {
		o.MaxTimeout = 15 * time.Minute
	}
	if o.IDExpiration == 0 {
		o.IDExpiration = 7 * 24 * time.Hour
	}
	return o
}

// Machine holds the transactional ids of one shard.
type Machine struct {
	options Options
	ids     map[string]entry
}

// entry is a record with the clock it is measured by.
type entry struct {
	Record
	// began is when the transaction started by the clock of this process, which
	// never steps; Record.Start is by the wall clock that wrote it.
	began time.Time
}

// NewMachine returns a machine without ids.
func NewMachine(o Options) *Machine {
	return &Machine{options: o.withDefaults(), ids: make(map[string]entry)}
}

// Consider answers a command from the present state and changes nothing. The
// clock must not step backwards. A decision is good until the next Apply.
func (m *Machine) Consider(now time.Time, c Command, fresh model.ProducerID) Decision {
	return c.decide(m, now, fresh)
}

// Decide implements machine.Machine for a decision made by Consider.
func (m *Machine) Decide(_ time.Time, r Request) machine.Decision[Fact] {
	d := machine.Decision[Fact]{Facts: r.Decision.Facts}
	if r.Decision.Markers != nil {
		d.Effects = []machine.Effect{*r.Decision.Markers}
	}
	if r.Decision.Err != nil {
		d.Replies = []machine.Reply{machine.Refuse(r.Reply, r.Decision.Err)}
	} else {
		d.Replies = []machine.Reply{machine.Answer(r.Reply, r.Decision.Answer)}
	}
	return d
}

// Due implements machine.Machine. The deadlines need producer ids and the
// finalized feature level, so the façade asks for them: see Overdue and Expired.
func (m *Machine) Due() time.Time { return time.Time{} }

// Apply takes over one fact, live or replayed. The record must not be changed
// by anyone afterwards.
func (m *Machine) Apply(f Fact, _ model.Offset) {
	if f.Record == nil {
		delete(m.ids, f.ID)
		return
	}
	m.ids[f.ID] = entry{Record: *f.Record, began: time.UnixMilli(int64(f.Record.Start))}
}

// Lookup returns the record of an id.
func (m *Machine) Lookup(id string) (Record, bool) {
	e, ok := m.ids[id]
	return e.Record, ok
}

// holder returns the record of an id for a request that claims to hold it. The
// order of the checks is Kafka's: unknown id, other producer id, other epoch.
func (m *Machine) holder(id string, p model.ProducerIdentity) (Record, error) {
	if id == "" {
		return Record{}, ErrInvalidRequest
	}
	e, ok := m.ids[id]
	switch {
	case !ok, e.Producer.ID != p.ID:
		return Record{}, ErrMapping
	case e.Producer.Epoch != p.Epoch:
		return e.Record, e.Record.stale(p.Epoch)
	}
	return e.Record, nil
}

// stale says why an epoch that is not the current one is refused.
func (r Record) stale(presented model.ProducerEpoch) error {
	if r.TimedOut && presented == r.LastEpoch {
		return ErrTimedOut
	}
	return ErrFenced
}
