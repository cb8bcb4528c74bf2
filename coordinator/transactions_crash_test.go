package coordinator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// step is an operation of the crash script: what the client was told.
type step int8

const (
	notTried step = iota
	acked
	unknown // tried, and the machine stopped before there was an answer
)

// attempt runs an operation of the script unless the machine has stopped.
func attempt(stopped *bool, s *step, f func() error) {
	if *stopped {
		return
	}
	*s = unknown
	if f() == nil {
		*s = acked
		return
	}
	*stopped = true
}

// script is what one life of the broker did, and which of it was acknowledged:
//
//	a, version 2   x1 → t0, y1 → t1, g := 7, commit     x2 → t0, abort
//	b, version 1   z1 → t1, commit                      z2 → t2, left open
type script struct {
	initA, x1, y1, offset, commitA, x2, abortA step
	initB, z1, commitB, z2                     step
	a1, a2, b                                  model.ProducerIdentity
}

func runScript(w *txnWorld) *script {
	var s script
	stopped := false
	do := func(to *step, f func() error) { attempt(&stopped, to, f) }
	produce := func(v txn.Version, id string, p model.ProducerIdentity, seq model.Sequence, partition int, value string) error {
		_, err := w.produceV(v, id, p, seq, partition, value)
		return err
	}
	enrol := func(partition int) error {
		_, err := w.answer(w.Enrol(txn.Enrol{ID: "b", Producer: s.b, Partitions: []txn.Participant{{TopicPartition: w.logs[partition].ID(), Name: "t"}}}))
		return err
	}
	do(&s.initA, func() (err error) { s.a1, err = w.tryInit("a", noIdentity); return })
	do(&s.x1, func() error { return produce(txn.V2, "a", s.a1, 0, 0, "x1") })
	do(&s.y1, func() error { return produce(txn.V2, "a", s.a1, 0, 1, "y1") })
	do(&s.offset, func() error { return w.commitOffset(txn.V2, "a", s.a1, "g", 7) })
	do(&s.commitA, func() (err error) { s.a2, err = w.tryEnd(txn.V2, "a", s.a1, txn.Commit); return })
	do(&s.x2, func() error { return produce(txn.V2, "a", s.a2, 0, 0, "x2") })
	do(&s.abortA, func() error { _, err := w.tryEnd(txn.V2, "a", s.a2, txn.Abort); return err })
	do(&s.initB, func() (err error) { s.b, err = w.tryInit("b", noIdentity); return })
	do(&s.z1, func() error { return errors.Join(enrol(1), produce(txn.V0, "b", s.b, 0, 1, "z1")) })
	do(&s.commitB, func() error { _, err := w.tryEnd(txn.V0, "b", s.b, txn.Commit); return err })
	do(&s.z2, func() error { return errors.Join(enrol(2), produce(txn.V0, "b", s.b, 0, 2, "z2")) })
	return &s
}

// verify judges a later life of the broker by what the first one was told.
func (s *script) verify(w *txnWorld) {
	w.Helper()
	has := func(partition int, value string) bool { return slices.Contains(w.committed(partition), value) }
	there := func(partition int, value string) bool { return slices.Contains(w.all(partition), value) }
	offset, offsetErr := w.groupOffset("g")

	// Acknowledged data is there, transaction or not (C.2, row 3; P06).
	for _, d := range []struct {
		step      step
		partition int
		value     string
	}{{s.x1, 0, "x1"}, {s.y1, 1, "y1"}, {s.x2, 0, "x2"}, {s.z1, 1, "z1"}, {s.z2, 2, "z2"}} {
		if d.step == acked && !there(d.partition, d.value) {
			w.Errorf("acknowledged %s is gone", d.value)
		}
	}
	// A commit is everywhere or nowhere: two partitions and a group (rows 6 to 9).
	committed := has(0, "x1")
	if has(1, "y1") != committed || (offset == 7) != committed {
		w.Errorf("half a commit: x1 %v, y1 %v, offset %d", committed, has(1, "y1"), offset)
	}
	if s.commitA == acked && !committed {
		w.Error("an acknowledged commit is gone")
	}
	if s.commitA == notTried && committed {
		w.Error("committed without being asked")
	}
	// Offsets that were acknowledged and are not committed are pending (row 4).
	if s.offset == acked && !committed && s.commitA != acked && !errors.Is(offsetErr, group.ErrUnstableOffset) {
		w.Errorf("acknowledged offset: %d, %v", offset, offsetErr)
	}
	if has(0, "x2") {
		w.Error("an aborted value is visible")
	}
	if s.commitB == acked && !has(1, "z1") || s.commitB == notTried && has(1, "z1") {
		w.Errorf("b: commit %d, z1 visible: %v", s.commitB, has(1, "z1"))
	}
	if has(2, "z2") {
		w.Error("an open transaction is visible")
	}
	s.repeatEnds(w, committed)
	s.ownersAreUnique(w)
	s.finish(w)
}

// repeatEnds: the retry of an end that was decided is answered, the opposite
// refused (row 6).
func (s *script) repeatEnds(w *txnWorld, committed bool) {
	w.Helper()
	if s.commitA != notTried && committed && s.x2 == notTried {
		next, err := w.tryEnd(txn.V2, "a", s.a1, txn.Commit)
		if err != nil || next != (model.ProducerIdentity{ID: s.a1.ID, Epoch: s.a1.Epoch + 1}) {
			w.Errorf("retry of the commit: %v, %v", next, err)
		}
		_, err = w.tryEnd(txn.V2, "a", s.a1, txn.Abort)
		w.is(err, txn.ErrInvalidState)
	}
	if s.commitB == acked && s.z2 == notTried {
		_, err := w.tryEnd(txn.V0, "b", s.b, txn.Commit)
		w.is(err, nil)
		_, err = w.tryEnd(txn.V0, "b", s.b, txn.Abort)
		w.is(err, txn.ErrInvalidState)
	}
}

// ownersAreUnique: nobody is given an identity somebody else was given (rows 11
// and 12); who presents what he was given is recognised.
func (s *script) ownersAreUnique(w *txnWorld) {
	w.Helper()
	if s.initA == acked && s.x1 == notTried {
		p, err := w.tryInit("a", s.a1)
		if err != nil || p != (model.ProducerIdentity{ID: s.a1.ID, Epoch: s.a1.Epoch + 1}) {
			w.Errorf("init with the identity of before the crash: %v, %v", p, err)
		}
		again, err := w.tryInit("a", s.a1)
		if err != nil || again != p {
			w.Errorf("repeated: %v, %v, want %v", again, err, p)
		}
	}
	p := w.init("c")
	if p.ID == s.a1.ID || p.ID == s.b.ID {
		w.Errorf("producer id %d was given again", p.ID)
	}
}

// finish lets everything end and looks for what hangs (I13).
func (s *script) finish(w *txnWorld) {
	w.Helper()
	w.clock.advance(2 * time.Minute)
	w.tick()
	w.quiet()
	if s.commitB == acked && s.z2 == acked {
		w.sees(2)
	}
	w.produce("d", w.init("d"), 0, 2, "after all")
}

// The script is cut after every operation that changes the disk; what was
// synced survives, what was not survives by chance. Whatever the moment, the
// next life agrees with what was acknowledged, and so does one that comes after
// a second crash during recovery.
func TestCrashAnywhereInTransactions(t *testing.T) {
	changes, _ := crashAfter(t, 1<<30)
	step := 1
	if testing.Short() {
		step = 7
	}
	for n := 0; n < changes; n += step {
		t.Run(fmt.Sprintf("after %d of %d", n, changes), func(t *testing.T) {
			_, run := crashAfter(t, n)
			for seed := range uint64(3) {
				var rng *rand.Rand
				if seed > 0 {
					rng = rand.New(rand.NewPCG(seed, uint64(n)))
				}
				disk := run.disk.Crash(rng)
				if seed == 2 { // once more while it recovers
					again := vfs.NewFault(disk)
					again.StopAfter(rng.IntN(20))
					if w, err := tryWorld(t, again); err == nil {
						w.stop()
					}
					disk = disk.Crash(rng)
				}
				run.script.verify(newTxnWorld(t, disk))
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

type crashed struct {
	disk   *vfs.Memory
	script *script
}

// crashAfter runs the script on a machine that stops after n changes.
func crashAfter(t *testing.T, n int) (changes int, c crashed) {
	c.disk = vfs.NewMemory()
	fault := vfs.NewFault(c.disk)
	fault.StopAfter(n)
	w, err := tryWorld(t, fault)
	if err != nil {
		return fault.Changes(), crashed{c.disk, &script{}}
	}
	c.script = runScript(w)
	changes = fault.Changes()
	w.stop()
	return changes, c
}

// Transactional data is synced before it is acknowledged. A broker that leaves
// it to the commit would, after losing it, still answer the commit of version 1
// with success: the state before was a commit of the same epoch.
func TestP06AcknowledgedRecordLostBecauseTheFlushWasDeferred(t *testing.T) {
	disk := vfs.NewMemory()
	w := newTxnWorld(t, disk)
	p := w.init("a")
	v1 := func(w *txnWorld, seq model.Sequence, value string) error {
		_, err := w.answer(w.Enrol(txn.Enrol{ID: "a", Producer: p, Partitions: []txn.Participant{{TopicPartition: w.logs[0].ID(), Name: "t"}}}))
		w.ok(err)
		_, err = w.produceV(txn.V0, "a", p, seq, 0, value)
		return err
	}
	w.ok(v1(w, 0, "before"))
	_, err := w.tryEnd(txn.V0, "a", p, txn.Commit)
	w.ok(err)
	w.ok(v1(w, 1, "acknowledged"))

	w = newTxnWorld(t, disk.Crash(nil))
	_, err = w.tryEnd(txn.V0, "a", p, txn.Commit)
	w.ok(err)
	w.sees(0, "before", "acknowledged")
}

// A disk that fails under the entry of an abort stops everything; the stable
// offset has not passed the transaction, and after the restart it passes it
// only together with the entry in the aborted list.
func TestP12AbortIndexFailureVersusTheStableOffset(t *testing.T) {
	for name, rule := range map[string]vfs.Rule{
		"write":               {Op: vfs.OpWrite, Err: errors.New("I/O error")},
		"short write":         {Op: vfs.OpWrite, Err: errors.New("I/O error"), Short: 30},
		"sync":                {Op: vfs.OpSync, Err: errors.New("I/O error")},
		"sync that loses all": {Op: vfs.OpSync, Err: errors.New("I/O error"), DropDirty: true, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMemory()
			fault := vfs.NewFault(disk)
			w := newTxnWorld(t, fault)
			p := w.init("a")
			w.produce("a", p, 0, 0, "aborted")
			w.produce("a", p, 0, 1, "aborted too")
			fault.Add(rule)
			_, err := w.tryEnd(txn.V2, "a", p, txn.Abort)
			if err == nil {
				t.Fatal("an abort that cannot be written was acknowledged")
			}
			for i := range 2 {
				if b := w.logs[i].Bounds(); b.Stable != 0 {
					t.Errorf("partition %d: %+v", i, b)
				}
			}
			_, err = w.produceV(txn.V2, "a", p, 1, 0, "after")
			if err == nil {
				t.Error("a broken broker acknowledged")
			}
			for _, after := range []*vfs.Memory{disk.Crash(nil), disk.Crash(rand.New(rand.NewPCG(1, 1)))} {
				w = newTxnWorld(t, after)
				w.sees(0)
				w.clock.advance(2 * time.Minute)
				w.tick()
				w.sees(0)
				w.sees(1)
				w.quiet()
			}
		})
	}
}

// With the disk full an end is refused and may be tried again; the transaction
// is still open, and ends when there is room (C.2, row 20).
func TestDiskFullDuringAnEnd(t *testing.T) {
	disk := vfs.NewMemory()
	w := newTxnWorld(t, disk, func(o *storage.Options) { o.ReserveBytes = 1 << 20 })
	p := w.init("a")
	w.produce("a", p, 0, 0, "x")
	disk.SetTotal(1)
	waitFor(t, func() bool {
		_, err := w.produceV(txn.V2, "a", p, 1, 0, "y")
		return errors.Is(err, storage.ErrStorageFull)
	})
	_, err := w.tryEnd(txn.V2, "a", p, txn.Commit)
	if err != nil {
		w.is(err, storage.ErrStorageFull)
		if got := w.state("a"); got != txn.Ongoing {
			t.Errorf("state %v", got)
		}
		disk.SetTotal(1 << 40)
		waitFor(t, func() bool {
			_, err = w.tryEnd(txn.V2, "a", p, txn.Commit)
			return err == nil
		})
	}
	disk.SetTotal(1 << 40) // reading may have to write what gathered in memory
	if !slices.Contains(w.committed(0), "x") {
		t.Error("the commit did not happen")
	}
}
