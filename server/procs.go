package server

import (
	"os"
	"runtime"
	"sync"
	"time"
)

// procs decides how many threads may run Go code at once (GOMAXPROCS): as few as
// the load needs. A broker's work is many short steps, and each step that another
// idle thread could take wakes one up, which costs more than the step. Measured on
// two cores with 16 transactional producers: one thread needs 34 % less CPU time
// than two and commits 25 % more, see docs/performance.md.
//
// It is pure: samples come in, the number comes out.
type procs struct {
	n, max int
	full   int           // samples in a row that found all of n busy
	quiet  time.Duration // since n was last changed
	// patience is how long n stays before one less is tried. An attempt that fails
	// doubles it, so that a steady load is not disturbed again and again.
	patience time.Duration
	trying   bool // n was lowered less than a trial ago
}

const (
	// A sample is taken every busySample, or idleSample while there is little to do.
	busySample = 100 * time.Millisecond
	idleSample = 500 * time.Millisecond

	allBusy     = 0.95 // of n: what the threads reach when work waits for them
	longBusy    = 3    // samples in a row: many clients that begin are no reason yet
	fewBusy     = 0.6  // of n-1: what surely fits into one less
	trial       = 2 * time.Second
	minPatience = time.Second
	maxPatience = 2 * time.Minute
)

func newProcs(limit int) *procs { return &procs{n: 1, max: max(limit, 1), patience: minPatience} }

// next takes the number of cores that were busy for us during a time and returns
// how many threads to use from now on.
func (p *procs) next(cores float64, during time.Duration) int {
	p.quiet += during
	if p.quiet >= trial && p.trying {
		p.trying, p.patience = false, minPatience
	}
	if cores >= allBusy*float64(p.n) {
		p.full++
	} else {
		p.full = 0
	}
	switch less := float64(p.n - 1); {
	case p.full >= longBusy && p.n < p.max:
		if p.trying {
			p.trying, p.patience = false, min(2*p.patience, maxPatience)
		}
		p.set(min(p.n+max(1, p.n/2), p.max))
	case p.n > 1 && (cores < fewBusy*less && p.quiet >= minPatience || cores < less && p.quiet >= p.patience):
		p.trying = true
		p.set(p.n - 1)
	}
	return p.n
}

func (p *procs) set(n int) { p.n, p.full, p.quiet = n, 0, 0 }

// followLoad runs procs until stop is called, which gives back what was there
// before. A GOMAXPROCS in the environment is an order, and nothing is done.
func followLoad() (stop func()) {
	before := runtime.GOMAXPROCS(0)
	used, ok := cpuTime()
	if !ok || before == 1 || os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	p := newProcs(before)
	runtime.GOMAXPROCS(p.n)
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		defer runtime.GOMAXPROCS(before)
		timer := time.NewTimer(busySample)
		defer timer.Stop()
		for last, n := time.Now(), p.n; ; {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			now := time.Now()
			total, _ := cpuTime()
			cores := float64(total-used) / float64(now.Sub(last))
			if m := p.next(cores, now.Sub(last)); m != n {
				runtime.GOMAXPROCS(m)
				n = m
			}
			used, last = total, now
			if cores < fewBusy/2 && n == 1 {
				timer.Reset(idleSample)
			} else {
				timer.Reset(busySample)
			}
		}
	})
	return func() { close(done); running.Wait() }
}
