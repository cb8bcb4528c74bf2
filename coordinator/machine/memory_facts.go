package machine

import (
	"context"
	"slices"
	"sync"

	"github.com/perigeemq/perigee/storage/model"
)

// MemoryFacts is a facts log for tests. Appends are durable at once unless Hold
// was called; Refuse makes them fail.
type MemoryFacts struct {
	mu struct {
		sync.Mutex
		records []Record
		next    model.Offset
		refusal error
		gate    chan struct{} // non-nil: new appends become durable when it closes
	}
}

// Append implements Facts.
func (m *MemoryFacts) Append(b Batch) (Sequenced, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.refusal != nil {
		return Sequenced{}, m.mu.refusal
	}
	base := m.mu.next
	for _, r := range b.Records {
		r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
		r.Timestamp = b.Timestamp
		if b.Producer != nil {
			r.Producer, r.Transactional = *b.Producer, true
		}
		m.appendLocked(r)
	}
	return Sequenced{Base: base, Pending: m.pendingLocked()}, nil
}

// AppendMarker puts a transaction's end into the log, as a transaction
// coordinator does, and returns its offset.
func (m *MemoryFacts) AppendMarker(p model.ProducerIdentity, c Control) Sequenced {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.mu.next
	m.appendLocked(Record{Producer: p, Transactional: true, Control: c})
	return Sequenced{Base: at, Pending: m.pendingLocked()}
}

func (m *MemoryFacts) appendLocked(r Record) {
	r.Offset = m.mu.next
	m.mu.next++
	m.mu.records = append(m.mu.records, r)
}

func (m *MemoryFacts) pendingLocked() Pending {
	if m.mu.gate == nil {
		return memoryPending(closedGate)
	}
	return memoryPending(m.mu.gate)
}

// Replay implements Facts.
func (m *MemoryFacts) Replay(ctx context.Context, f func(Record) error) error {
	for _, r := range m.Records() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}

// Records returns everything appended so far, in order.
func (m *MemoryFacts) Records() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mu.records)
}

// Compact keeps the latest record of each key, with its offset, and every
// record of a transaction, as a cleaner may while the transaction is open.
func (m *MemoryFacts) Compact() {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := make(map[string]model.Offset)
	for _, r := range m.mu.records {
		newest[string(r.Key)] = r.Offset
	}
	m.mu.records = slices.DeleteFunc(m.mu.records, func(r Record) bool {
		return !r.Transactional && newest[string(r.Key)] != r.Offset
	})
}

// Refuse makes every append fail with err until it is called with nil.
func (m *MemoryFacts) Refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.refusal = err
}

// Hold keeps appends from becoming durable until release is called.
func (m *MemoryFacts) Hold() (release func()) {
	gate := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.gate = gate
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(gate)
		m.mu.gate = nil
	})
}

var closedGate = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// memoryPending is durable when its gate is closed.
type memoryPending chan struct{}

func (p memoryPending) Done() <-chan struct{} { return p }
func (p memoryPending) Err() error            { return nil }
func (p memoryPending) Wait(ctx context.Context) error {
	select {
	case <-p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
