package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/vfs"
)

// The same work of appends, passes, checkpoints and restarts is cut after every
// change of the disk. What is left must satisfy the checker, before and after the
// start that recovers it, and have the last acknowledged value of every key.
func TestCompactionSurvivesACrashAnywhere(t *testing.T) {
	for stop := 0; ; stop++ {
		mem := vfs.NewMemory()
		fault := vfs.NewFault(mem)
		fault.StopAfter(stop)
		w := &compactionWork{t: t, clock: newClock(), acked: map[string]string{}}
		finished := w.run(fault)
		if finished && !fault.Stopped() {
			t.Logf("cut %d times", stop)
			return
		}
		w.after(stop, mem.Crash(rand.New(rand.NewPCG(uint64(stop), 7))))
		if t.Failed() {
			t.Fatalf("stop %d", stop)
		}
	}
}

type compactionWork struct {
	t *testing.T
	clock
	acked map[string]string
	tried map[string]string // appended and not acknowledged
}

func compactAll(pc *PartitionConfig) {
	pc.Compact, pc.MinDirtyRatio, pc.SegmentBytes, pc.DeleteRetention = true, 0.01, 600, time.Minute
}

func (w *compactionWork) options(o *Options) {
	o.Now, o.JournalFileBytes, o.CleanerMemoryBytes = w.now, 32<<10, 1
}

// run reports whether it came to its end.
func (w *compactionWork) run(fs vfs.FS) bool {
	for round := range 3 {
		o := Options{FS: fs, ReserveBytes: -1}
		w.options(&o)
		e, err := Open(w.t.Context(), o)
		if err != nil {
			return false
		}
		err = w.round(e, round)
		if err := errors.Join(err, e.Close(w.t.Context())); err != nil {
			return false
		}
	}
	return true
}

func (w *compactionWork) round(e *Engine, round int) error {
	p := part(w.t, e, 1, compactAll)
	c := newCompactor(e)
	helper := &compacted{clock: w.clock, t: w.t, e: e, p: p}
	for i := range 12 {
		key := fmt.Sprintf("k%d", i%4)
		value := fmt.Sprintf("%s=%d.%d %s", key, round, i, strings.Repeat("v", 40))
		w.tried = map[string]string{key: value}
		if err := w.append(e, Append{Partition: p, Batch: helper.records(batch.BuilderOptions{}, value)}); err != nil {
			return err
		}
		w.acked[key], w.tried = value, nil
		w.advance(20 * time.Second)
		if i%6 == 5 {
			if err := errors.Join(c.run(w.t.Context(), 1), e.checkpoint(w.t.Context(), 2), e.reap(w.t.Context(), 3)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *compactionWork) append(e *Engine, a Append) error {
	pending, err := e.Append(a)
	if err != nil {
		return err
	}
	return pending.Wait(w.t.Context())
}

// after checks, recovers and checks again.
func (w *compactionWork) after(stop int, fs *vfs.Memory) {
	w.t.Helper()
	checked(w.t, fs)
	e := open(w.t, fs, w.options)
	c := &compacted{clock: w.clock, t: w.t, e: e, p: part(w.t, e, 1, compactAll)}
	last := map[string]string{}
	for _, line := range c.contents() {
		_, value, _ := strings.Cut(line, ":")
		key, _, _ := strings.Cut(value, "=")
		last[key] = value
	}
	for key, want := range w.acked {
		if got := last[key]; got != want && got != w.tried[key] {
			w.t.Errorf("stop %d: key %s has %q, acknowledged was %q", stop, key, got, want)
		}
	}
	shut(w.t, e)
	checked(w.t, fs)
}
