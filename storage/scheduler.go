package storage

import (
	"context"
	"math"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// job is a piece of background work. One turn of it runs at a time.
type job struct {
	name     string
	interval time.Duration // between the end of a turn and the next; 0: only when kicked
	run      func(ctx context.Context, id uint64) error

	due     time.Time // zero: not until kicked
	running bool
	again   bool // kicked while running
}

// scheduler runs jobs on a fixed number of workers. Every turn has an id, which
// ties the events of one piece of work together.
type scheduler struct {
	jobs   []*job
	report func(id uint64, what string, err error)
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{}

	mu struct {
		sync.Mutex
		lastID uint64
	}
	running sync.WaitGroup
}

// startScheduler starts the workers. Jobs with an interval have their first turn
// after it.
func startScheduler(workers int, jobs []*job, report func(uint64, string, error)) *scheduler {
	ctx, cancel := context.WithCancel(context.Background())
	s := &scheduler{jobs: jobs, report: report, ctx: ctx, cancel: cancel, wake: make(chan struct{}, max(workers, 1))}
	for _, j := range jobs {
		if j.interval > 0 {
			j.due = time.Now().Add(j.interval)
		}
	}
	for range max(workers, 1) {
		s.running.Go(func() {
			pprof.Do(ctx, pprof.Labels("goroutine", "storage worker"), s.work)
		})
	}
	return s
}

func (s *scheduler) work(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		j, id, wait := s.take()
		if j != nil {
			if err := j.run(ctx, id); err != nil && ctx.Err() == nil {
				s.report(id, j.name, err)
			}
			s.finish(j)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// take chooses the job that has been due longest, or says how long there is none.
func (s *scheduler) take() (chosen *job, id uint64, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if !j.running && !j.due.IsZero() && (chosen == nil || j.due.Before(chosen.due)) {
			chosen = j
		}
	}
	if chosen == nil {
		return nil, 0, time.Hour
	}
	if wait := time.Until(chosen.due); wait > 0 {
		return nil, 0, wait
	}
	chosen.running, chosen.due = true, time.Time{}
	s.mu.lastID++
	return chosen, s.mu.lastID, 0
}

func (s *scheduler) finish(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.running = false
	if j.interval > 0 {
		j.dueLocked(time.Now().Add(j.interval))
	}
	if j.again {
		j.again = false
		j.dueLocked(time.Now())
	}
	s.wakeLocked()
}

// dueLocked makes a job due at a time, or earlier if it is already.
func (j *job) dueLocked(at time.Time) {
	if j.due.IsZero() || at.Before(j.due) {
		j.due = at
	}
}

// wakeLocked lets a worker look again.
func (s *scheduler) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// kick makes a job due now. A turn that is running is followed by another.
func (s *scheduler) kick(name string) { s.after(name, 0) }

// after makes a job due in a while, or earlier if it is already.
func (s *scheduler) after(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.name != name {
			continue
		}
		if j.running && d == 0 {
			j.again = true
		} else {
			j.dueLocked(time.Now().Add(d))
		}
	}
	s.wakeLocked()
}

// id is a fresh id for work outside the workers.
func (s *scheduler) id() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lastID++
	return s.mu.lastID
}

// stop ends the workers and waits for the turns that are running; their context
// has ended.
func (s *scheduler) stop() {
	s.cancel()
	s.running.Wait()
}

// Names of the jobs.
const (
	jobCheckpoint = "checkpoint"
	jobReap       = "delete files"
	jobOutbox     = "report"
	jobExpire     = "expire producers"
	jobRetire     = "retention"
	jobCompact    = "compaction"
	jobSpace      = "free space"
)

// backgroundJobs is everything the workers do.
func (e *Engine) backgroundJobs() []*job {
	return []*job{
		{name: jobOutbox, run: func(context.Context, uint64) error { e.outbox.deliver(); return nil }},
		{name: jobCheckpoint, run: e.checkpoint},
		{name: jobReap, run: e.reap},
		{name: jobExpire, interval: e.o.ProducerExpiryCheck, run: e.expireProducers},
		{name: jobRetire, interval: e.o.RetentionCheckInterval, run: e.retire},
		{name: jobCompact, interval: e.o.CleanerBackoff, run: newCompactor(e).run},
		{name: jobSpace, interval: spaceInterval, run: e.checkSpace},
	}
}

// expireProducers forgets producers that have been silent for too long.
func (e *Engine) expireProducers(ctx context.Context, _ uint64) error {
	before := e.nowMillis() - e.o.ProducerExpiry.Milliseconds()
	for _, p := range e.all() {
		if ctx.Err() != nil {
			return nil
		}
		p.mu.Lock()
		n := p.mu.producers.Expire(before)
		p.mu.Unlock()
		if n > 0 {
			e.o.Events.producersExpired(p.tp, n)
		}
	}
	return nil
}

// outbox holds what must be said or done once no lock is held any more.
type outbox struct {
	sync.Mutex
	letters []func()
}

func (o *outbox) post(f func()) {
	o.Lock()
	defer o.Unlock()
	o.letters = append(o.letters, f)
}

func (o *outbox) deliver() {
	o.Lock()
	letters := o.letters
	o.letters = nil
	o.Unlock()
	for _, f := range letters {
		f()
	}
}

// later runs f on a worker, soon.
func (e *Engine) later(f func()) {
	e.outbox.post(f)
	if e.jobs != nil {
		e.jobs.kick(jobOutbox)
	}
}

// rolled is what a full segment leaves to do: its index file.
func (e *Engine) rolled(p *Partition, next model.Offset) {
	e.later(func() {
		v, err := p.view()
		if err != nil {
			return
		}
		if n := v.segmentFor(next - 1); n >= 0 && v.segments[n].Sealed() {
			// A failure costs the next reader time and nothing else.
			_ = v.segments[n].SaveIndex(math.MaxInt64)
		}
		e.o.Events.segmentRolled(p.tp, next)
	})
}
