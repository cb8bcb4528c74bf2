package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/perigeemq/perigee/e2e/checker"
	"github.com/perigeemq/perigee/e2e/workload"
	"github.com/perigeemq/perigee/storage/vfs"
)

// txnTimeoutMs is what Kafka's workers allow their transactions; MoonMQ's have
// the broker's 60 seconds.
const txnTimeoutMs = 30_000

// quiet is longer than any transaction may take, and a scan.
const quiet = 2 * time.Minute

// Script is a short run with pictures. The zero value of a field but Seed is a
// small script.
type Script struct {
	Seed  uint64
	Turns int
	Crowd workload.Crowd
}

// picture is what a power cut would leave: a disk, and what clients knew.
type picture struct {
	disk   *vfs.Memory
	past   *workload.Past
	clock  int64
	change int // operations that had changed the disk
	kind   string
}

func (p picture) String() string { return fmt.Sprintf("change %d, %s", p.change, p.kind) }

// run plays the script and takes pictures after every change of the disk: of
// what was synced, of that with a random part of the rest, and now and then of
// everything, as when only the process is killed. It returns the whole history,
// too.
func (s Script) run(t *testing.T) (pictures []picture, whole *checker.History) {
	var mu sync.Mutex
	synctest.Test(t, func(t *testing.T) {
		defer sayIfFailed(t, "script of seed %d", s.Seed)
		w, l := s.world(t, vfs.NewMemory(), nil)
		defer w.abandon(l)
		if err := w.start(); err != nil {
			t.Fatalf("start: %v", err)
		}
		if err := l.Prepare(); err != nil {
			t.Fatalf("prepare: %v", err)
		}
		changes := 0
		photograph := func() {
			mu.Lock()
			defer mu.Unlock()
			changes++
			take := func(disk *vfs.Memory, kind string) {
				pictures = append(pictures, picture{disk, l.Snapshot(), w.clock.Load(), changes, kind})
			}
			rng := rand.New(rand.NewPCG(s.Seed, uint64(changes)))
			take(w.disk.Crash(nil), "what was synced")
			take(w.disk.Crash(rng), "part of what was not")
			if changes%4 == 0 {
				take(w.disk.Clone(), "all that was written")
			}
		}
		w.onChange.Store(&photograph)
		l.Start(s.Crowd)
		if err := w.run(s.Turns, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		w.onChange.Store(nil)
		if err := w.finish(l, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		judge(t, w, l)
		whole = &l.Snapshot().History
	})
	return pictures, whole
}

// world makes the computer and the clients of one life of the script.
func (s Script) world(t *testing.T, disk *vfs.Memory, past *workload.Past) (*World, *workload.Workload) {
	w := newWorld(disk, rand.New(rand.NewPCG(s.Seed, 0)), t.Errorf)
	l := workload.New(workload.Options{
		World: w, Seed: s.Seed, Report: t.Errorf, Inputs: 200, Work: 50, MoonMQ: true, Timeout: txnTimeoutMs, Past: past,
	})
	return w, l
}

// sayIfFailed names what failed, at the end of it.
func sayIfFailed(t *testing.T, format string, args ...any) {
	if t.Failed() {
		t.Logf(format, args...)
	}
}

// settle lets everything that is open end: by the next owner of each id, or by
// the clock.
func settle(w *World, l *workload.Workload) error {
	if w.rng.IntN(2) == 0 {
		return l.TakeOver()
	}
	time.Sleep(quiet)
	synctest.Wait()
	return nil
}

// judge ends a run and has its history checked.
func judge(t *testing.T, w *World, l *workload.Workload) checker.Report {
	t.Helper()
	if err := settle(w, l); err != nil {
		t.Fatalf("settle: %v", err)
	}
	h, err := l.Final()
	if err != nil {
		t.Fatalf("read what is left: %v", err)
	}
	r := checker.Check(h)
	for _, a := range r.Anomalies[:min(len(r.Anomalies), 10)] {
		t.Error(a)
	}
	return r
}

// survive starts a broker on a picture, cut again after so many changes of its
// recovery (0: not), and lets the clients go on.
func (s Script) survive(t *testing.T, p picture, cutAgain int) (r checker.Report, recovery int) {
	synctest.Test(t, func(t *testing.T) {
		defer sayIfFailed(t, "script of seed %d, %v, cut again after %d changes of its recovery", s.Seed, p, cutAgain)
		w, l := s.world(t, p.disk.Clone(), p.past)
		defer w.abandon(l)
		w.clock.Store(p.clock)
		if cutAgain > 0 {
			w.cutIn.Store(int64(cutAgain))
			if err := w.start(); err == nil {
				w.stop()
			}
			w.replaceDisk()
		}
		var changes atomic.Int64
		count := func() { changes.Add(1) }
		w.onChange.Store(&count)
		if err := w.start(); err != nil {
			t.Fatalf("recover: %v", err)
		}
		synctest.Wait()
		w.onChange.Store(nil)
		recovery = int(changes.Load())
		if err := l.Resume(w.rng); err != nil {
			t.Fatalf("resume: %v", err)
		}
		l.Start(s.Crowd)
		noop := func() error { return nil }
		if err := w.run(30, noop); err != nil {
			t.Fatal(err)
		}
		if err := w.finish(l, noop); err != nil {
			t.Fatal(err)
		}
		r = judge(t, w, l)
	})
	return r, recovery
}

// Long is a long run through calamities.
type Long struct {
	Seed  uint64
	Turns int
}

// Outcome is what a long run went through.
type Outcome struct {
	checker.Report
	Tally
}

func (l Long) run(t *testing.T) (o Outcome) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, l.Seed)
	synctest.Test(t, func(t *testing.T) {
		s := Script{Seed: l.Seed}
		defer sayIfFailed(t, "long run of seed %d", l.Seed)
		w, load := s.world(t, vfs.NewMemory(), nil)
		defer w.abandon(load)
		if err := w.start(); err != nil {
			t.Fatalf("start: %v", err)
		}
		if err := load.Prepare(); err != nil {
			t.Fatalf("prepare: %v", err)
		}
		load.Start(workload.Everybody)
		c := &calamities{w: w}
		if err := w.run(l.Turns, c.between); err != nil {
			t.Fatal(err)
		}
		c.lift()
		w.fault.Clear()
		w.cutIn.Store(-1)
		calm := func() error {
			if w.off.Load() || w.exiting.Load() || w.limping.Load() {
				return w.restart()
			}
			return nil
		}
		if err := w.finish(load, calm); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // for what is on its way to a disk that failed
		synctest.Wait()
		if err := calm(); err != nil {
			t.Fatal(err)
		}
		o.Report = judge(t, w, load)
		o.Tally = w.Tally
	})
	return o
}
