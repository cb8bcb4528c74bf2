package server

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// repeats keeps a line that many clients can cause, again and again, from
// filling the log: a few a minute are written, the others counted.
type repeats struct {
	mu    sync.Mutex
	kinds map[string]*repeat // by what is said, never by who caused it: a handful
}

type repeat struct {
	since   time.Time // when this minute began
	written int
	skipped int
}

const (
	repeatWindow = time.Minute
	repeatLimit  = 5 // lines of a kind in a window
)

// allow says whether a line of this kind may be written now; skipped is how many
// were not since the last one that was.
func (r *repeats) allow(kind string) (skipped int, ok bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[kind]
	if k == nil {
		if r.kinds == nil {
			r.kinds = make(map[string]*repeat)
		}
		k = &repeat{since: now}
		r.kinds[kind] = k
	}
	if now.Sub(k.since) >= repeatWindow {
		k.since, k.written = now, 0
	}
	if k.written == repeatLimit {
		k.skipped++
		return 0, false
	}
	k.written++
	skipped, k.skipped = k.skipped, 0
	return skipped, true
}

// rarely is e if a line of this kind may be written, with how many were left out
// before it; else an event that goes nowhere.
func (r *repeats) rarely(kind string, e *zerolog.Event) *zerolog.Event {
	skipped, ok := r.allow(kind)
	if !ok {
		return e.Discard()
	}
	if skipped > 0 {
		e = e.Int("not_shown", skipped)
	}
	return e
}
