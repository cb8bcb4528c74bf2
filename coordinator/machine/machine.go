package machine

import (
	"errors"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Machine is one coordinator's state with its rules. It has no clock, lock,
// channel, goroutine, socket or file.
type Machine[Command, Fact any] interface {
	// Decide reads the state and changes nothing. The zero Command is the
	// clock's question, asked when Due has passed.
	Decide(now time.Time, c Command) Decision[Fact]
	// Apply is the only mutator, live and on replay. at is the fact's offset in
	// the facts partition; model.NoOffset for a volatile fact.
	Apply(f Fact, at model.Offset)
	// Due says when Decide should next be asked without a command; the zero
	// time means never. It is asked after every change, so it must be cheap.
	Due() time.Time
}

// Decision is what a machine wants to happen. The zero Decision changes nothing
// and answers nobody.
type Decision[Fact any] struct {
	Facts    []Fact                  // applied in this order; the journaled ones stand or fall together
	Producer *model.ProducerIdentity // non-nil: the facts belong to this producer's transaction
	Replies  []Reply                 // to this command, and to earlier ones that were parked
	Effects  []Effect                // for the Sequence: work that must join the same entry
}

// Effect is something a decision wants done in the same entry, outside its own
// partition: a transaction marker, a dead letter. The Sequence the command was
// run with performs it; each machine defines its own kinds.
type Effect any

// Codec translates facts to records and back.
type Codec[Fact any] interface {
	// Encode returns the record of a fact. ok is false for a volatile fact,
	// which is applied but not journaled. A nil value is a tombstone.
	Encode(f Fact) (key, value []byte, ok bool)
	// Decode returns the fact of a replayed record, ErrUnknownFact if the record
	// is of a kind this release does not know, or another error if it is damaged.
	Decode(r Record) (Fact, error)
}

// ErrUnknownFact is returned by a Codec for a record it does not know. Replay
// skips such records: a newer release wrote them before a downgrade.
var ErrUnknownFact = errors.New("fact of an unknown kind")

// Record is a fact as the log keeps it.
type Record struct {
	Key           []byte
	Value         []byte // nil is a tombstone
	Offset        model.Offset
	Timestamp     model.Timestamp
	Producer      model.ProducerIdentity // meaningful if Transactional or Control is set
	Transactional bool
	Control       Control // a marker; Key and Value are the raw control record
}

// Control says what a control record ends.
type Control int8

const (
	NotControl Control = iota
	Abort
	Commit
)
