package machine

import (
	"sync"
	"time"
)

// retryDelay is how long a shard whose due command was refused, or that is due
// again at once, is left alone: long enough not to spin while a disk is full,
// short against any timeout a client can ask for.
const retryDelay = 100 * time.Millisecond

// Timer asks every registered shard when its machine is due. One goroutine
// serves them all; it looks at each alarm when it wakes, which is cheap for the
// hundred-odd shards a broker has.
type Timer struct {
	now  func() time.Time
	wake chan struct{} // capacity 1: an alarm was set earlier than the one awaited
	stop chan struct{}
	done sync.WaitGroup
	once sync.Once

	mu struct {
		sync.Mutex
		alarms  []*alarm
		awaited time.Time // what the goroutine sleeps for; zero: for ever
	}
}

// alarm is one shard's place in the timer.
type alarm struct {
	timer *Timer
	run   func() error
	due   time.Time // guarded by timer.mu; zero: never
}

// NewTimer returns a timer that reads now (nil: time.Now). It does nothing until
// Start, or until Tick is called by hand.
func NewTimer(now func() time.Time) *Timer {
	if now == nil {
		now = time.Now
	}
	return &Timer{now: now, wake: make(chan struct{}, 1), stop: make(chan struct{})}
}

// Start begins serving. Call it once; Close ends it.
func (t *Timer) Start() { t.done.Go(t.serve) }

// Close stops the goroutine and waits for the command it may be running. Twice
// is harmless.
func (t *Timer) Close() {
	t.once.Do(func() { close(t.stop) })
	t.done.Wait()
}

// Tick runs every shard that is due and returns when the next one is; the zero
// time means none. Tests that do not Start the timer call it themselves.
func (t *Timer) Tick() time.Time {
	now := t.now()
	for _, a := range t.takeDue(now) {
		// The error is the log's, already given to whoever asked; a deadline has
		// no one to tell and is simply tried again.
		_ = a.run()
		a.backOff(now)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.awaited = time.Time{}
	for _, a := range t.mu.alarms {
		t.mu.awaited = earlier(t.mu.awaited, a.due)
	}
	return t.mu.awaited
}

func (t *Timer) serve() {
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	for {
		next := t.Tick()
		var expired <-chan time.Time
		if !next.IsZero() {
			sleep.Reset(next.Sub(t.now()))
			expired = sleep.C
		}
		select {
		case <-t.stop:
			return
		case <-t.wake:
		case <-expired:
		}
	}
}

func (t *Timer) takeDue(now time.Time) []*alarm {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due []*alarm
	for _, a := range t.mu.alarms {
		if !a.due.IsZero() && !a.due.After(now) {
			due = append(due, a)
		}
	}
	return due
}

func (t *Timer) register(run func() error) *alarm {
	a := &alarm{timer: t, run: run}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.alarms = append(t.mu.alarms, a)
	return a
}

// set moves the alarm; a nil alarm belongs to a shard without a timer.
func (a *alarm) set(due time.Time) {
	if a == nil {
		return
	}
	t := a.timer
	t.mu.Lock()
	defer t.mu.Unlock()
	a.due = due
	if due.IsZero() || (!t.mu.awaited.IsZero() && !due.Before(t.mu.awaited)) {
		return
	}
	t.mu.awaited = due
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// backOff keeps a shard that is still due after its turn from being asked in a
// tight loop.
func (a *alarm) backOff(now time.Time) {
	a.timer.mu.Lock()
	defer a.timer.mu.Unlock()
	if !a.due.IsZero() && !a.due.After(now) {
		a.due = now.Add(retryDelay)
	}
}

// earlier returns the earlier of two times, of which the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
