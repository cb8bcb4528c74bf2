package txn

import (
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// Init makes the caller the owner of a transactional id. Whoever held it
// before is fenced, and an ongoing transaction is aborted first, in the same
// decision: Kafka aborts, answers CONCURRENT_TRANSACTIONS and lets the client
// come again; here the first answer is the final one.
type Init struct {
	ID      string
	Timeout time.Duration // of the transactions to come
	// Given is the identity the caller already holds, to be bumped without
	// losing the id (KIP-360). {-1, -1} when it has none.
	Given model.ProducerIdentity
	Owner Owner
	Level Version // finalized transaction.version: how an ongoing transaction is fenced
}

func (c Init) given() bool { return c.Given.ID != model.NoProducerID }

func (c Init) decide(m *Machine, now time.Time, fresh model.ProducerID) Decision {
	if c.ID == "" || c.given() != (c.Given.Epoch != model.NoProducerEpoch) {
		return refuse(ErrInvalidRequest)
	}
	if c.Timeout <= 0 || c.Timeout > m.options.MaxTimeout {
		return refuse(ErrInvalidTimeout)
	}
	e, known := m.ids[c.ID]
	switch {
	case !known:
		// What the caller claims to hold is ignored: the id may have expired.
		r := Record{ID: c.ID, PrevID: model.NoProducerID, LastEpoch: model.NoProducerEpoch}
		return c.begin(r, now, fresh)
	case c.given() && !e.recognizes(c.Given):
		return refuse(ErrFenced)
	case e.State.preparing():
		return refuse(ErrConcurrent)
	case e.State == Ongoing:
		return c.takeOver(e.Record, now, fresh)
	}
	return c.own(e.Record, now, fresh)
}

// recognizes reports whether a producer id is the current one, or the one
// before a rotation that its holder may not have heard of.
func (r Record) recognizes(p model.ProducerIdentity) bool {
	return p.ID == r.Producer.ID || (p.ID == r.PrevID && p.Epoch >= model.MaxClientEpoch)
}

// own decides for an id without a transaction.
func (c Init) own(r Record, now time.Time, fresh model.ProducerID) Decision {
	current := c.Given == r.Producer
	repeat := c.given() && c.Given.Epoch == r.LastEpoch && r.recognizes(c.Given)
	switch {
	case current || !c.given():
		last := model.NoProducerEpoch
		if current {
			last = c.Given.Epoch
		}
		if r.exhausted() {
			r.LastEpoch = last
			r.PrevID = r.Producer.ID
			return c.begin(r, now, fresh)
		}
		r.Producer.Epoch++
		r.LastEpoch = last
		return c.empty(r, now)
	case repeat:
		return c.empty(r, now)
	}
	return refuse(ErrFenced)
}

// begin gives the id a new producer id.
func (c Init) begin(r Record, now time.Time, fresh model.ProducerID) Decision {
	if fresh == model.NoProducerID {
		return Decision{NeedsProducerID: true}
	}
	r.Producer = model.ProducerIdentity{ID: fresh}
	return c.empty(r, now)
}

// empty is the record every Init ends in.
func (c Init) empty(r Record, now time.Time) Decision {
	r.State = Empty
	r.NextID = model.NoProducerID
	r.Partitions = nil
	r.Timeout = c.Timeout
	r.Start = model.NoTimestamp
	r.Updated = millis(now)
	r.Version = V0
	r.Owner = c.Owner
	r.TimedOut = false
	return write(r)
}

// takeOver aborts the ongoing transaction and then owns the id. A caller that
// presents an identity must present the current one: one with an older epoch
// was fenced and may not end somebody else's transaction.
func (c Init) takeOver(r Record, now time.Time, fresh model.ProducerID) Decision {
	if c.given() && c.Given != r.Producer {
		return refuse(ErrFenced)
	}
	aborted, markers, ok := r.abortAndBump(c.Level, now, fresh)
	if !ok {
		return Decision{NeedsProducerID: true}
	}
	d := c.ownAfter(aborted, now, fresh)
	d.Markers = markers
	return d
}

// ownAfter runs the Init of an id whose transaction this same Init aborted.
// The epoch of the abort is the coordinator's: under version 2 it is also the
// one bump of the holder that asked, under the older rules it is never given
// to anybody, and a holder that asked gets the next one.
func (c Init) ownAfter(aborted Record, now time.Time, fresh model.ProducerID) Decision {
	held := c.Given
	switch {
	case aborted.Producer.Epoch == 0: // the abort used up the old producer id
		aborted.LastEpoch = held.Epoch
		return c.empty(aborted, now)
	case !c.given():
		return c.own(aborted, now, fresh)
	case c.Level >= V2:
		return c.empty(aborted, now)
	}
	c.Given = aborted.Producer
	d := c.own(aborted, now, fresh)
	for _, f := range d.Facts {
		f.Record.LastEpoch = held.Epoch
	}
	return d
}
