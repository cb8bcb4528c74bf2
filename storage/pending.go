package storage

import (
	"context"

	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// Pending is an append whose order is fixed and whose durability is awaited. The
// zero value waits for nothing.
type Pending struct {
	group   *journal.Group // nil: durable already
	effects []effect
	one     [1]effect // effects of the usual call, without a second allocation
	entry   journal.Entry
	item    [1]journal.Item // of the entry, likewise
}

// Appended says where one item went.
type Appended struct {
	Base, Last    model.Offset
	LogAppendTime model.Timestamp // model.NoTimestamp unless the batch carries it
	LogStart      model.Offset
	Duplicate     bool // one of the producer's last five batches; nothing was appended
}

// effect is what readers will see of one item once it is durable. It is complete
// before the item is queued: the flusher needs nothing that an append lock guards.
type effect struct {
	Appended
	p         *Partition
	segment   *segment.Segment   // nil: no batch was appended
	end       int64              // position behind the batch
	firstOpen model.Offset       // of any transaction, or model.NoOffset
	aborted   []producer.Aborted // all of them
	start     model.Offset       // model.NoOffset: unchanged
	pinned    bool               // the segment, until its sync
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done is closed when the append is durable and visible, or has failed. The
// channel is shared by everything one flush covers.
func (p *Pending) Done() <-chan struct{} {
	if p.group == nil {
		return closedChannel
	}
	return p.group.Done()
}

// Wait returns Err after Done, or the context's error before. A context that ends
// does not take the append back.
func (p *Pending) Wait(ctx context.Context) error {
	select {
	case <-p.Done():
		return p.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Err is nil or ErrPoisoned. Only after Done.
func (p *Pending) Err() error {
	if p.group == nil {
		return nil
	}
	return p.group.Err()
}

// At is the outcome of the i-th item of the call, known from the start.
func (p *Pending) At(i int) Appended { return p.effects[i].Appended }

// settle is the journal's hook: it runs on the flusher, in the order of the
// journal, before Done is closed.
func (p *Pending) settle(err error) {
	for i := range p.effects {
		f := &p.effects[i]
		if f.pinned {
			f.segment.Release()
		}
		if err == nil && f.p != nil {
			f.p.advance(f)
		}
		// What waits for the reply may keep the Pending for long.
		f.p, f.segment, f.aborted = nil, nil, nil
	}
	p.entry, p.item = journal.Entry{}, [1]journal.Item{}
}
