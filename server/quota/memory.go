package quota

import (
	"context"
	"sync"
)

// Memory bounds the bytes of all frames in flight. A reader reserves a frame's
// bytes before it reads them and waits while the budget is used up, so that a
// flood of large requests slows its senders down instead of growing the heap.
//
// Waiters are served in order of arrival: a large frame is not starved by small
// ones. One frame larger than the whole budget is let through when nothing else
// is in flight.
type Memory struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiting []*reservation // oldest first
}

type reservation struct {
	bytes   int64
	granted chan struct{}
}

// NewMemory returns a budget of limit bytes.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Used returns the bytes reserved now.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Reserve waits until n bytes are free, or ctx ends.
func (m *Memory) Reserve(ctx context.Context, n int64) error {
	m.mu.Lock()
	if len(m.waiting) == 0 && m.fitsLocked(n) {
		m.used += n
		m.mu.Unlock()
		return nil
	}
	r := &reservation{bytes: n, granted: make(chan struct{})}
	m.waiting = append(m.waiting, r)
	m.mu.Unlock()

	select {
	case <-r.granted:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-r.granted: // granted between the two; give it back
		m.used -= n
	default:
		for i, w := range m.waiting {
			if w == r {
				m.waiting = append(m.waiting[:i], m.waiting[i+1:]...)
				break
			}
		}
	}
	m.grantLocked()
	return context.Cause(ctx)
}

// Release gives n reserved bytes back.
func (m *Memory) Release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	m.grantLocked()
}

func (m *Memory) fitsLocked(n int64) bool { return m.used == 0 || m.used+n <= m.limit }

// grantLocked hands free bytes to the oldest waiters.
func (m *Memory) grantLocked() {
	for len(m.waiting) > 0 && m.fitsLocked(m.waiting[0].bytes) {
		r := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.used += r.bytes
		close(r.granted)
	}
}
