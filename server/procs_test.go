package server

import (
	"runtime"
	"testing"
	"time"
)

// feed gives the same sample for a while and returns every number it led to.
func (p *procs) feed(cores func(n int) float64, during time.Duration) (seen []int) {
	for ; during > 0; during -= busySample {
		n := p.n
		if p.next(cores(n), busySample); p.n != n {
			seen = append(seen, p.n)
		}
	}
	return seen
}

// work is a load for so many cores: threads are busy with it up to their number.
func work(cores float64) func(int) float64 {
	return func(n int) float64 { return min(cores, float64(n)) }
}

func TestThreadsFollowTheLoad(t *testing.T) {
	p := newProcs(8)
	if p.feed(work(0.8), time.Minute); p.n != 1 {
		t.Errorf("%d threads for 0.8 cores of work", p.n)
	}
	if p.feed(work(100), 2*busySample); p.n != 1 {
		t.Errorf("%d threads for a burst of 200 ms", p.n)
	}
	if p.feed(work(5), 2*time.Second); p.n != 6 {
		t.Errorf("%d threads for 5 cores of work after 2 s", p.n)
	}
	if p.feed(work(100), 2*time.Second); p.n != 8 {
		t.Errorf("%d threads of 8 for 100 cores of work", p.n)
	}
	if p.feed(work(0.1), 10*time.Second); p.n != 1 {
		t.Errorf("%d threads for 0.1 cores of work after 10 s", p.n)
	}
}

// Two threads spend on each other what one would not: the load must not keep the
// second thread that it made necessary once.
func TestThreadsAreGivenBackWhenTheyOnlyCost(t *testing.T) {
	p := newProcs(2)
	p.feed(work(2), time.Second)
	inflated := func(n int) float64 { return []float64{0, 0.8, 0.95}[n] }
	if p.feed(inflated, 5*time.Second); p.n != 1 {
		t.Error("two threads stay for what one can do")
	}
}

// Work that one thread cannot do all of is not tried with one again and again.
func TestASteadyLoadIsLeftAlone(t *testing.T) {
	p := newProcs(2)
	almost := func(n int) float64 { return []float64{0, 1, 0.99}[n] }
	p.feed(almost, 10*time.Second)
	if changes := p.feed(almost, 10*time.Minute); len(changes) > 20 || p.n != 2 {
		t.Errorf("%d changes in ten minutes, the last to %d", len(changes), p.n)
	}
	if changes := p.feed(work(1.5), 10*time.Minute); len(changes) > 0 {
		t.Errorf("%d changes for 1.5 cores of work", len(changes))
	}
}

// Following the load begins with one thread and gives back what was there; where the
// environment says how many, nothing changes.
func TestFollowingTheLoadBeginsAndEnds(t *testing.T) {
	before := runtime.GOMAXPROCS(4)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for order, want := range map[string]int{"": 1, "4": 4} {
		t.Setenv("GOMAXPROCS", order)
		stop := followLoad()
		if n := runtime.GOMAXPROCS(0); n != want {
			t.Errorf("GOMAXPROCS=%q: %d threads, want %d", order, n, want)
		}
		stop()
		if n := runtime.GOMAXPROCS(0); n != 4 {
			t.Errorf("GOMAXPROCS=%q: %d threads in the end, 4 before", order, n)
		}
	}
}
