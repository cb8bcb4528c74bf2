package txn

import (
	"cmp"
	"slices"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// TimeOut aborts a transaction that has taken too long. It answers nothing and
// writes nothing when the transaction is in time, has ended, or never ends on
// its own.
type TimeOut struct {
	ID    string
	Level Version // finalized transaction.version
}

func (c TimeOut) decide(m *Machine, now time.Time, fresh model.ProducerID) Decision {
	e, ok := m.ids[c.ID]
	if !ok || !e.overdue(now) {
		return Decision{}
	}
	rules := c.Level
	if e.Owner == Session {
		rules = V2 // the session that comes late is told why, so its epoch is kept
	}
	aborted, markers, ok := e.abortAndBump(rules, now, fresh)
	if !ok {
		return Decision{NeedsProducerID: true}
	}
	aborted.TimedOut = e.Owner == Session
	d := write(aborted)
	d.Markers = markers
	return d
}

// overdue reports whether the transaction should be aborted.
func (e entry) overdue(now time.Time) bool {
	return e.State == Ongoing && e.Timeout != NoTimeout && now.After(e.began.Add(e.Timeout))
}

// Overdue lists the ids with a transaction to be timed out, longest overdue
// first, at most limit of them.
func (m *Machine) Overdue(now time.Time, limit int) []string {
	return m.choose(limit, func(e entry) (time.Time, bool) {
		return e.began.Add(e.Timeout), e.overdue(now)
	})
}

// Forget writes tombstones for ids that were idle too long. Ids that have been
// used since they were listed stay.
type Forget struct{ IDs []string }

func (c Forget) decide(m *Machine, now time.Time, _ model.ProducerID) Decision {
	var d Decision
	for _, id := range c.IDs {
		if e, ok := m.ids[id]; ok && m.expired(e, now) {
			d.Facts = append(d.Facts, Fact{ID: id})
		}
	}
	return d
}

// idle reports whether no transaction is open or being ended.
func (r Record) idle() bool {
	return r.State == Empty || r.State == CompleteCommit || r.State == CompleteAbort
}

func (m *Machine) expired(e entry, now time.Time) bool {
	after := m.options.IDExpiration
	if e.Owner == Session {
		if m.options.SessionExpiration < 0 {
			return false
		}
		after = max(after, m.options.SessionExpiration)
	}
	return e.idle() && now.Sub(time.UnixMilli(int64(e.Updated))) >= after
}

// Keep restarts the time after which an idle id is forgotten, because the session
// that owns it still has its connection. It writes nothing for a Client's id and
// inside a transaction.
type Keep struct{ ID string }

func (c Keep) decide(m *Machine, now time.Time, _ model.ProducerID) Decision {
	e, ok := m.ids[c.ID]
	if !ok || e.Owner != Session || !e.idle() || millis(now) <= e.Updated {
		return Decision{}
	}
	kept := e.Record
	kept.Updated = millis(now)
	return write(kept)
}

// Expired lists ids that may be forgotten, longest idle first, at most limit.
func (m *Machine) Expired(now time.Time, limit int) []string {
	return m.choose(limit, func(e entry) (time.Time, bool) {
		return time.UnixMilli(int64(e.Updated)), m.expired(e, now)
	})
}

// choose returns the ids that qualify in the order of their times.
func (m *Machine) choose(limit int, qualifies func(entry) (time.Time, bool)) []string {
	type candidate struct {
		id   string
		when time.Time
	}
	var all []candidate
	for id, e := range m.ids {
		if when, ok := qualifies(e); ok {
			all = append(all, candidate{id, when})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.when.Compare(b.when), cmp.Compare(a.id, b.id))
	})
	ids := make([]string, 0, min(limit, len(all)))
	for _, c := range all[:min(limit, len(all))] {
		ids = append(ids, c.id)
	}
	return ids
}

// Loaded tells the machine that replay has ended. A transaction cannot have
// begun after that: where the wall clock went back between two lives of the
// broker, its timeout runs from now and not from an hour ahead.
func (m *Machine) Loaded(now time.Time) {
	for id, e := range m.ids {
		if e.State == Ongoing && e.began.After(now) {
			e.began = now
			m.ids[id] = e
		}
	}
}

// Unfinished lists ids whose state only this restart can move on: decided ends
// without their completion, and transactions whose session died with the broker.
func (m *Machine) Unfinished() []string {
	return m.choose(len(m.ids), func(e entry) (time.Time, bool) {
		return e.began, e.unfinished()
	})
}

func (r Record) unfinished() bool {
	return r.State.preparing() || (r.State == Ongoing && r.Owner == Session)
}

// Recover finishes an unfinished id: forward if its end was decided, otherwise
// by an abort. The epoch stays, nobody is left who could use it.
type Recover struct{ ID string }

func (c Recover) decide(m *Machine, now time.Time, _ model.ProducerID) Decision {
	e, ok := m.ids[c.ID]
	if !ok || !e.unfinished() {
		return Decision{}
	}
	if e.State == PrepareCommit {
		return ended(e.Record, Commit, now)
	}
	return ended(e.prepare(Abort, now), Abort, now)
}
