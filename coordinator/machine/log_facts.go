package machine

import (
	"context"
	"fmt"

	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// LogFacts keeps a shard's facts in a partition of the engine, and some of them
// in a second one: the two are written in one entry and replayed one after the
// other, so facts of the two must not depend on each other's order.
type LogFacts struct {
	engine *storage.Engine
	main   *storage.Partition
	side   *storage.Partition    // nil: everything goes to main
	aside  func(key []byte) bool // which facts go to side
}

// NewLogFacts keeps all facts in one partition.
func NewLogFacts(e *storage.Engine, p *storage.Partition) *LogFacts {
	return &LogFacts{engine: e, main: p}
}

// NewSplitLogFacts keeps the facts whose keys aside picks in a second partition.
func NewSplitLogFacts(e *storage.Engine, main, side *storage.Partition, aside func(key []byte) bool) *LogFacts {
	return &LogFacts{engine: e, main: main, side: side, aside: aside}
}

// Append implements Facts.
func (l *LogFacts) Append(b Batch) (Sequenced, error) {
	j, err := l.AppendWith(b)
	return j.Sequenced, err
}

// Joint is an entry that holds facts and what was appended with them.
type Joint struct {
	Sequenced
	Entry *storage.Pending // nil if nothing was appended
	own   int
}

// Other says where the i-th of the other appends went.
func (j Joint) Other(i int) storage.Appended { return j.Entry.At(j.own + i) }

// AppendWith appends a batch and, behind it in the same entry, what must be true
// together with it.
func (l *LogFacts) AppendWith(b Batch, others ...storage.Append) (Joint, error) {
	e, err := l.entry(b)
	if err != nil {
		return Joint{}, err
	}
	pending, err := l.engine.Append(append(e.appends, others...)...)
	if err != nil {
		return Joint{}, err
	}
	return Joint{Sequenced: e.sequenced(pending, len(b.Records)), Entry: pending, own: len(e.appends)}, nil
}

// entry is a batch as appends of the engine: at most one for each partition.
type entry struct {
	appends []storage.Append
	places  []place // of each record; nil if all are in the first append
}

// place says where a record stands: in which append, and how far behind its base.
type place struct{ item, delta int }

func (l *LogFacts) entry(b Batch) (entry, error) {
	var e entry
	main, side := builder(b.Producer), builder(nil)
	for _, r := range b.Records {
		to, item := main, 0
		if l.side != nil && l.aside(r.Key) {
			to, item = side, 1
		}
		e.places = append(e.places, place{item, to.Count()})
		to.Add(batch.NewRecord{Timestamp: b.Timestamp, Key: r.Key, Value: r.Value})
	}
	txn := storage.TxnNone
	if b.Producer != nil {
		txn = storage.TxnOpen
	}
	if err := e.add(l.main, main, txn); err != nil {
		return entry{}, err
	}
	for i := range e.appends {
		e.appends[i].Frees = b.Frees
	}
	if side.Count() == 0 {
		e.places = nil
		return e, nil
	}
	if main.Count() == 0 {
		for i := range e.places {
			e.places[i].item = 0
		}
	}
	return e, e.add(l.side, side, storage.TxnNone)
}

func builder(producer *model.ProducerIdentity) *batch.Builder {
	var o batch.BuilderOptions
	if producer != nil {
		o.Producer = &batch.Producer{ProducerIdentity: *producer, BaseSequence: model.NoSequence}
		o.Transactional = true
	}
	return batch.NewBuilder(o)
}

func (e *entry) add(p *storage.Partition, b *batch.Builder, txn storage.TxnMode) error {
	if b.Count() == 0 {
		return nil
	}
	view, err := b.Build()
	if err != nil {
		return fmt.Errorf("build batch of facts: %w", err)
	}
	e.appends = append(e.appends, storage.Append{Partition: p, Batch: view, Txn: txn, Internal: true})
	return nil
}

// sequenced says where the records went.
func (e *entry) sequenced(p *storage.Pending, records int) Sequenced {
	s := Sequenced{Pending: p}
	if records == 0 {
		return s
	}
	s.Base = p.At(0).Base
	if e.places != nil {
		s.At = make([]model.Offset, len(e.places))
		for i, at := range e.places {
			s.At[i] = p.At(at.item).Base + model.Offset(at.delta)
		}
	}
	return s
}

// Replay implements Facts.
func (l *LogFacts) Replay(ctx context.Context, f func(Record) error) error {
	for _, p := range []*storage.Partition{l.main, l.side} {
		if p == nil {
			continue
		}
		if err := p.Scan(ctx, p.Bounds().Start, func(v batch.View) error { return replayBatch(v, f) }); err != nil {
			return fmt.Errorf("replay %s-%d: %w", p.Name(), p.ID().Partition, err)
		}
	}
	return nil
}

func replayBatch(v batch.View, f func(Record) error) error {
	control := NotControl
	if v.IsControl() {
		m, err := v.Marker()
		if err != nil {
			return fmt.Errorf("read marker at offset %d: %w", v.BaseOffset(), err)
		}
		control = Abort
		if m.Type == batch.Commit {
			control = Commit
		}
	}
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			return fmt.Errorf("read facts at offset %d: %w", v.BaseOffset(), err)
		}
		if err := f(Record{
			Key: r.Key, Value: r.Value, Offset: r.Offset, Timestamp: r.Timestamp, Control: control,
			Producer:      model.ProducerIdentity{ID: v.ProducerID(), Epoch: v.ProducerEpoch()},
			Transactional: v.IsTransactional(),
		}); err != nil {
			return err
		}
	}
	return nil
}
