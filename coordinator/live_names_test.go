package coordinator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

const day = 24 * time.Hour

// join opens a MoonMQ producer's session as the front end does.
func (w *txnWorld) join(name, connection string) model.ProducerIdentity {
	w.Helper()
	w.HoldName(name, connection)
	p, err := w.answer(w.InitProducer(txn.Init{ID: name, Timeout: time.Minute, Given: noIdentity, Owner: txn.Session}))
	w.ok(err)
	return p
}

// pass lets time go by, with a look at the expired ids at its end.
func (w *txnWorld) pass(d time.Duration) {
	w.clock.advance(d)
	w.expire()
	w.ok(w.engine.Barrier().Wait(w.Context()))
}

// A name is not forgotten while its connection lives, however idle, and then has
// its whole time; others are forgotten meanwhile.
func TestALiveNameIsNotForgotten(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	live, left := w.join("live", "1"), w.join("left", "2")
	w.LeaveName("left", "2")
	client := w.init("client")
	w.HoldName("client", "3") // fenced by a Kafka client since

	w.pass(30 * day) // one look, long after the time was over
	for name, want := range map[string]txn.State{"live": txn.Empty, "left": txn.Dead, "client": txn.Dead} {
		if got := w.state(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, p := range map[string]model.ProducerIdentity{"left": left, "client": client} {
		_, err := w.answer(w.Verify(txn.Verify{ID: name, Producer: p}))
		w.is(err, txn.ErrMapping)
	}
	_, err := w.answer(w.Verify(txn.Verify{ID: "live", Producer: live}))
	w.ok(err)

	w.clock.advance(5 * day)
	w.LeaveName("live", "1")
	w.pass(7*day - time.Millisecond)
	if got := w.state("live"); got != txn.Empty {
		t.Errorf("forgotten before its time: %v", got)
	}
	w.pass(time.Millisecond)
	if got := w.state("live"); got != txn.Dead {
		t.Errorf("never forgotten: %v", got)
	}
}

// The connection that was fenced does not end the newer one's hold, nor hold itself.
func TestTheNewestConnectionHoldsTheName(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	w.join("n", "old")
	p := w.join("n", "new")
	w.LeaveName("n", "old")
	w.pass(8 * day)
	_, err := w.answer(w.Verify(txn.Verify{ID: "n", Producer: p}))
	w.ok(err)
	w.LeaveName("n", "new")
	w.HoldName("other", "old") // an Init that never came
	w.pass(8 * day)
	if got := w.state("n"); got != txn.Dead {
		t.Errorf("nobody holds it: %v", got)
	}
}

// What the scans write down holds after a crash, when nobody is connected any more.
func TestANameHasItsTimeAfterACrash(t *testing.T) {
	disk := vfs.NewMemory()
	w := newTxnWorld(t, disk)
	w.join("n", "1")
	w.pass(6 * day)
	now := w.clock.Now()
	crashed := disk.Crash(nil)
	w.stop()
	w = newTxnWorld(t, crashed)
	w.clock.advance(now.Sub(w.clock.Now()))
	w.pass(7*day - time.Millisecond)
	if got := w.state("n"); got != txn.Empty {
		t.Errorf("forgotten before its time: %v", got)
	}
	w.pass(time.Millisecond)
	if got := w.state("n"); got != txn.Dead {
		t.Errorf("never forgotten: %v", got)
	}
}

// A live name whose time could not be restarted, for want of space, stays too.
func TestALiveNameThatCouldNotBeKept(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.join("n", "1")
	w.clock.advance(8 * day)
	h, err := w.hold("n")
	w.ok(err)
	h.forgetExpired() // as after a keepLive that failed
	h.Release()
	_, err = w.answer(w.Verify(txn.Verify{ID: "n", Producer: p}))
	w.ok(err)
}

// With a name its memos go, and an id that was given up is never given again.
func TestMemosGoWithTheirName(t *testing.T) {
	w := newMoonWorld(t, vfs.NewMemory())
	defer w.stop()
	w.transactions.close() // the test looks itself
	if err := w.make("t", 1); err != nil {
		t.Fatal(err)
	}
	idle, live := must(w.open("idle")), must(w.open("live"))
	w.HoldName("live", live)
	for _, s := range []*moonSession{idle, live} {
		if _, _, err := s.send(0, false, "x"); err != nil {
			t.Fatal(err)
		}
	}
	now := w.transactions.o.Now
	w.transactions.o.Now = func() time.Time { return now().Add(8 * day) }
	w.expire()
	if _, err := w.DescribeTransaction("idle").Wait(t.Context()); !errors.Is(err, txn.ErrNotFound) {
		t.Errorf("the idle name: %v", err)
	}
	if w.memos.len() != 1 || w.memos.get(memoKey{"live", w.topic("t").ID}) == nil {
		t.Errorf("%d memos are left", w.memos.len())
	}
	if retry, _, err := live.send(0, false, "x"); err != nil || retry != Replay {
		t.Errorf("retry of the live name: %v, %v", retry, err)
	}
	if again := must(w.open("idle")); again.id.ID <= live.id.ID || again.id.Epoch != 0 {
		t.Errorf("the forgotten name begins again with %+v, it had %+v", again.id, idle.id)
	}
	p, err := w.internal(catalog.ProducerStateTopic)(shardOf("idle", memoPartitions))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.engine.Barrier().Wait(context.Background()); err != nil || p.Bounds().High != 2 {
		t.Errorf("no tombstone in the log: %+v, %v", p.Bounds(), err)
	}
}
