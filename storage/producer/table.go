package producer

import (
	"slices"

	"github.com/perigeemq/perigee/storage/model"
)

// remembered is how many batches of a producer are known again. Java and franz-go
// keep at most five in flight, so an older one cannot be a retry.
const remembered = 5

// Table is the producers of one partition. The zero value is an empty one.
type Table struct {
	entries map[model.ProducerID]*entry
	open    []openTxn // by first offset
	aborted []Aborted // by offset of the marker
}

type entry struct {
	epoch       model.ProducerEpoch
	coordinator int32 // epoch of the coordinator of the last marker, -1 none
	count       uint8 // batches in use, oldest first
	batches     [remembered]written
	txnFirst    model.Offset    // model.NoOffset: no open transaction
	timestamp   model.Timestamp // of the last batch or marker, as its batch has it
	touched     int64           // Unix milliseconds of the last append or marker, by our clock
}

// written is one remembered batch.
type written struct {
	base, last        model.Sequence
	firstOff, lastOff model.Offset
	timestamp         model.Timestamp
}

type openTxn struct {
	first model.Offset
	id    model.ProducerID
}

// State is one producer as DescribeProducers shows it.
type State struct {
	ID               model.ProducerID
	Epoch            model.ProducerEpoch
	LastSequence     model.Sequence  // model.NoSequence when only markers are known
	LastTimestamp    model.Timestamp // of the last batch or marker
	CoordinatorEpoch int32           // of the last marker, -1 when there was none
	TxnStart         model.Offset    // first offset of the open transaction, model.NoOffset when none
}

// Plan is what Apply of a batch will do to what readers see.
type Plan struct {
	// FirstOpen is the first offset of any open transaction afterwards, or
	// model.NoOffset.
	FirstOpen model.Offset
	// Aborted is the whole list afterwards. It is never written to again.
	Aborted []Aborted
}

// Plan foretells Apply without changing anything the table or anybody else sees.
func (t *Table) Plan(b *Batch) Plan {
	p := Plan{FirstOpen: t.FirstOpen(), Aborted: t.aborted}
	e := t.entries[b.ID]
	open := e != nil && e.txnFirst != model.NoOffset
	switch {
	case b.Marker && open:
		p.FirstOpen = t.firstOpenWithout(b.ID)
		if b.Abort {
			// Appending beyond the length others hold is invisible to them.
			p.Aborted = append(t.aborted, e.abortedBy(b, p.FirstOpen))
		}
	case !b.Marker && b.Transactional && !open && p.FirstOpen == model.NoOffset:
		p.FirstOpen = b.First
	}
	return p
}

func (e *entry) abortedBy(b *Batch, firstOpen model.Offset) Aborted {
	a := Aborted{ProducerID: b.ID, First: e.txnFirst, Last: b.Last, Stable: b.Last + 1}
	if firstOpen != model.NoOffset {
		a.Stable = firstOpen
	}
	return a
}

// Apply enters a batch that the checks let pass, or that the log holds, as its Plan
// said. Nothing may be applied in between. now is Unix milliseconds.
func (t *Table) Apply(b *Batch, plan Plan, now int64) {
	e := t.entries[b.ID]
	if e == nil {
		if t.entries == nil {
			t.entries = make(map[model.ProducerID]*entry)
		}
		e = &entry{epoch: b.Epoch, coordinator: -1, txnFirst: model.NoOffset}
		t.entries[b.ID] = e
	}
	if b.Epoch > e.epoch {
		e.epoch, e.count = b.Epoch, 0
	}
	e.touched, e.timestamp = now, b.Timestamp
	if b.Marker {
		e.coordinator = b.Coordinator
		if e.txnFirst != model.NoOffset {
			e.txnFirst = model.NoOffset
			t.open = slices.DeleteFunc(t.open, func(o openTxn) bool { return o.id == b.ID })
			t.aborted = plan.Aborted
		}
		return
	}
	if b.Transactional && e.txnFirst == model.NoOffset {
		e.txnFirst = b.First
		t.open = append(t.open, openTxn{first: b.First, id: b.ID})
	}
	if b.BaseSequence != model.NoSequence {
		e.remember(b)
	}
}

func (e *entry) remember(b *Batch) {
	if e.count == remembered {
		copy(e.batches[:], e.batches[1:])
		e.count--
	}
	e.batches[e.count] = written{b.BaseSequence, b.LastSequence, b.First, b.Last, b.Timestamp}
	e.count++
}

func (e *entry) find(b *Batch) (Original, bool) {
	if b.BaseSequence == model.NoSequence {
		return Original{}, false
	}
	for _, w := range e.batches[:e.count] {
		if w.base == b.BaseSequence && w.last == b.LastSequence {
			return Original{First: w.firstOff, Last: w.lastOff, Timestamp: w.timestamp}, true
		}
	}
	return Original{}, false
}

func (e *entry) lastSequence() (model.Sequence, bool) {
	if e.count == 0 {
		return model.NoSequence, false
	}
	return e.batches[e.count-1].last, true
}

// FirstOpen is the first offset of any open transaction, or model.NoOffset.
func (t *Table) FirstOpen() model.Offset { return t.firstOpenWithout(model.NoProducerID) }

// firstOpenWithout is FirstOpen as if one producer's transaction had ended.
func (t *Table) firstOpenWithout(id model.ProducerID) model.Offset {
	for _, o := range t.open {
		if o.id != id {
			return o.first
		}
	}
	return model.NoOffset
}

// Aborted is the list by offset of marker. It is never written to again.
func (t *Table) Aborted() []Aborted { return t.aborted }

// Prune forgets aborted transactions that ended below the start of the log.
func (t *Table) Prune(start model.Offset) {
	n := 0
	for n < len(t.aborted) && t.aborted[n].Last < start {
		n++
	}
	if n > 0 {
		t.aborted = slices.Clone(t.aborted[n:])
	}
}

// Expire forgets the producers whose last batch or marker is older than before
// (Unix milliseconds, by our clock) and returns how many. A producer with an open
// transaction stays: forgetting it would let its epoch run backwards (KAFKA-9144).
func (t *Table) Expire(before int64) (n int) {
	for id, e := range t.entries {
		if e.touched < before && e.txnFirst == model.NoOffset {
			delete(t.entries, id)
			n++
		}
	}
	return n
}

// Len is the number of producers.
func (t *Table) Len() int { return len(t.entries) }

// Open is the number of open transactions.
func (t *Table) Open() int { return len(t.open) }

// States lists the producers by ascending id.
func (t *Table) States() []State {
	states := make([]State, 0, len(t.entries))
	for id, e := range t.entries {
		s := State{ID: id, Epoch: e.epoch, LastSequence: model.NoSequence, LastTimestamp: e.timestamp,
			CoordinatorEpoch: e.coordinator, TxnStart: e.txnFirst}
		if last, ok := e.lastSequence(); ok {
			s.LastSequence = last
		}
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b State) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	return states
}
