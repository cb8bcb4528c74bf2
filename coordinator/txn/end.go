package txn

import (
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// End commits or aborts. Version says by which rules: V0 keeps the epoch, V2
// answers with the epoch (or the producer id) to continue with. A repeated End
// gets the answer of the first; the opposite of what was decided is refused.
type End struct {
	ID       string
	Producer model.ProducerIdentity
	Outcome  Outcome
	Version  Version
	Owner    Owner
}

func (c End) decide(m *Machine, now time.Time, fresh model.ProducerID) Decision {
	switch {
	case c.Owner == Session:
		return c.endSession(m, now)
	case c.Version >= V2:
		return c.endV2(m, now, fresh)
	}
	return c.endV0(m, now)
}

func (c End) endV0(m *Machine, now time.Time) Decision {
	r, err := m.holder(c.ID, c.Producer)
	if err != nil {
		return refuse(err)
	}
	switch r.State {
	case Ongoing:
		return c.keepEpoch(r, now)
	case c.Outcome.complete():
		return accept(r)
	case c.Outcome.prepared():
		return refuse(ErrConcurrent)
	}
	return refuse(ErrInvalidState)
}

// endSession is an End by a connection. A session that wrote nothing may end
// what was never begun here.
func (c End) endSession(m *Machine, now time.Time) Decision {
	r, err := m.holder(c.ID, c.Producer)
	switch {
	case err != nil:
		return refuse(err)
	case r.State.preparing():
		return refuse(ErrConcurrent)
	case r.State != Ongoing:
		return accept(r)
	}
	return c.keepEpoch(r, now)
}

func (c End) keepEpoch(r Record, now time.Time) Decision {
	r.Version = V0
	return ended(r.prepare(c.Outcome, now), c.Outcome, now)
}

func (c End) endV2(m *Machine, now time.Time, fresh model.ProducerID) Decision {
	if c.ID == "" {
		return refuse(ErrInvalidRequest)
	}
	e, known := m.ids[c.ID]
	r := e.Record
	// A repeat presents the epoch before the bump of the end it repeats.
	bumped := r.Producer.ID == c.Producer.ID && r.Producer.Epoch == c.Producer.Epoch+1
	rotated := r.PrevID == c.Producer.ID && c.Producer.Epoch == model.MaxClientEpoch && r.Producer.Epoch == 0
	repeat := bumped || rotated
	switch {
	case !known, r.Producer.ID != c.Producer.ID && !rotated:
		return refuse(ErrMapping)
	case !c.validEpoch(r, bumped, repeat):
		return refuse(r.stale(c.Producer.Epoch))
	case r.State.preparing():
		if r.State == c.Outcome.prepared() {
			return refuse(ErrConcurrent)
		}
		return refuse(ErrInvalidState)
	case repeat:
		return c.repeatV2(r)
	case r.State != Ongoing && c.Outcome == Commit:
		return refuse(ErrInvalidState)
	}
	if r.State != Ongoing {
		r.Start = millis(now) // an abort of nothing is a transaction of no length
	}
	return c.bumpEpoch(r, now, fresh)
}

func (c End) validEpoch(r Record, bumped, repeat bool) bool {
	current := r.Producer == c.Producer
	switch r.State {
	case Ongoing, Empty:
		return current
	case PrepareCommit, PrepareAbort:
		return bumped
	}
	return current || repeat
}

// repeatV2 answers an End whose predecessor completed. A commit presented to
// an aborted id is that of a producer the coordinator has fenced meanwhile.
func (c End) repeatV2(r Record) Decision {
	switch {
	case r.State == c.Outcome.complete():
		return accept(r)
	case c.Outcome == Commit:
		return refuse(ErrFenced)
	}
	return refuse(ErrInvalidState)
}

func (c End) bumpEpoch(r Record, now time.Time, fresh model.ProducerID) Decision {
	r.Version = V2
	r, ok := r.bump(V2, fresh)
	if !ok {
		return Decision{NeedsProducerID: true}
	}
	return ended(r.prepare(c.Outcome, now), c.Outcome, now)
}

// bump moves a record to the epoch its end is written under. At the last epoch
// that is 32767, and the id goes on under another producer id; ok is false
// when that id is still missing.
func (r Record) bump(rules Version, fresh model.ProducerID) (bumped Record, ok bool) {
	if r.exhausted() {
		if fresh == model.NoProducerID {
			return r, false
		}
		r.NextID = fresh
	}
	r.LastEpoch = model.NoProducerEpoch
	if rules >= V2 {
		r.LastEpoch = r.Producer.Epoch
	}
	r.Producer.Epoch++
	return r, true
}

// abortAndBump ends a transaction without its owner's consent.
func (r Record) abortAndBump(rules Version, now time.Time, fresh model.ProducerID) (Record, *Markers, bool) {
	bumped, ok := r.bump(rules, fresh)
	if !ok {
		return r, nil, false
	}
	prepared := bumped.prepare(Abort, now)
	return prepared.completed(Abort, now), prepared.markers(Abort), true
}

// prepare is the record Kafka writes before its markers.
func (r Record) prepare(o Outcome, now time.Time) Record {
	r.State = o.prepared()
	r.Updated = millis(now)
	return r
}

// completed is the record Kafka writes after its markers.
func (r Record) completed(o Outcome, now time.Time) Record {
	r.State = o.complete()
	r.Partitions = nil
	r.Updated = millis(now)
	if r.NextID != model.NoProducerID {
		r.PrevID = r.Producer.ID
		r.Producer = model.ProducerIdentity{ID: r.NextID}
		r.NextID = model.NoProducerID
	}
	return r
}

func (r Record) markers(o Outcome) *Markers {
	return &Markers{Producer: r.Producer, Outcome: o, Partitions: r.Partitions}
}

// ended completes a prepared record at once: every participant is ours.
func ended(prepared Record, o Outcome, now time.Time) Decision {
	d := write(prepared.completed(o, now))
	d.Markers = prepared.markers(o)
	return d
}
