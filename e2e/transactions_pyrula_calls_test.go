package e2e

import (
	"context"
	"syscall"
	"testing"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// What the pyrula page says of calls that take long, of calling again and of calls that
// meet.

// "A commit, abort or init that times out fails with a retriable error but keeps
// running: call the same method again to resume it."
func TestPyrulaTimedOutCallsAreResumed(t *testing.T) {
	addr, w := pyrulaBroker(t, "perigee.debug.sync.delay.ms=400")
	p := newRdTxn(t, addr, "etl-1", nil)
	resume := func(name string, call func(context.Context) error) {
		t.Helper()
		err := call(shortly(t))
		for tries := 0; err != nil; tries++ {
			if e := rdError(t, err); e.Code() != kafka.ErrTimedOut || !e.IsRetriable() || tries > 100 {
				t.Fatalf("%s: %v (retriable %v) after %d tries", name, err, e.IsRetriable(), tries)
			}
			err = call(shortly(t))
		}
	}
	resume("init", p.InitTransactions)
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "committed"))
	resume("commit", p.CommitTransaction)
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "aborted"))
	p.ok(p.report())
	p.ok(p.report())
	resume("abort", p.AbortTransaction)
	wantValues(t, committedIn(t, addr, "out", 0), "committed")
	w.closed("out", 0)
}

// "init waits": for a broker that is not there yet.
func TestPyrulaInitWaitsForTheBroker(t *testing.T) {
	b, _ := txnBroker(t)
	b.NeedsOwnProcess()
	b.Kill()
	p := newRdTxn(t, b.Kafka, "etl-1", nil)
	if err := rdError(t, p.InitTransactions(shortly(t))); err.Code() != kafka.ErrTimedOut || !err.IsRetriable() {
		t.Errorf("without a broker: %v", err)
	}
	b.Restart()
	p.ok(p.InitTransactions(limited(t)))
}

// "A different transactional call while one is running is refused as conflicting
// use", and a produce during a commit is refused. The commit is not harmed.
func TestPyrulaConflictingCalls(t *testing.T) {
	addr, _ := pyrulaBroker(t, "perigee.debug.sync.delay.ms=500")
	p := started(t, addr, "etl-1", nil)
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "kept"))
	if err := rdError(t, p.CommitTransaction(shortly(t))); err.Code() != kafka.ErrTimedOut {
		t.Fatalf("commit: %v", err)
	}
	err := rdError(t, p.AbortTransaction(shortly(t)))
	if code := err.Code(); code != kafka.ErrConflict && code != kafka.ErrState {
		t.Errorf("abort during a commit: %v", err)
	}
	if err := p.send("out", 0, "too late"); rdError(t, err).Code() != kafka.ErrState {
		t.Errorf("produce during a commit: %v", err)
	}
	p.ok(p.CommitTransaction(limited(t)))
	wantValues(t, committedIn(t, addr, "out", 0), "kept")
}

// "The same call from another thread is previous in progress", retriable: one of two
// commits at a time goes on.
func TestPyrulaTheSameCallTwice(t *testing.T) {
	addr, _ := pyrulaBroker(t, "perigee.debug.sync.delay.ms=500")
	p := started(t, addr, "etl-1", nil)
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "kept"))
	outcomes := make(chan error, 2)
	for range cap(outcomes) {
		go func() { outcomes <- p.CommitTransaction(limited(t)) }()
	}
	first, second := <-outcomes, <-outcomes
	if first == nil {
		first, second = second, first
	}
	if second != nil {
		t.Fatalf("no commit went on: %v, %v", first, second)
	}
	if e := rdError(t, first); e.Code() != kafka.ErrPrevInProgress || !e.IsRetriable() {
		t.Errorf("the other commit: %v (retriable %v)", e, e.IsRetriable())
	}
	wantValues(t, committedIn(t, addr, "out", 0), "kept")
}

// "send_offsets_to_transaction is not resumed; call it again", and the offsets are
// committed once and with the transaction.
func TestPyrulaTimedOutSendOffsetsIsCalledAgain(t *testing.T) {
	b, w := txnBroker(t)
	b.NeedsOwnProcess()
	w.newTopic("in", 1)
	w.newTopic("out", 1)
	meta, err := kafka.NewTestConsumerGroupMetadata("g")
	if err != nil {
		t.Fatal(err)
	}
	p := started(t, b.Kafka, "etl-1", kafka.ConfigMap{"socket.timeout.ms": 1000})
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "output"))
	offsets := []kafka.TopicPartition{{Topic: new("in"), Partition: 0, Offset: 7}}
	p.ok(p.report())
	b.Signal(syscall.SIGSTOP)
	failure := p.SendOffsetsToTransaction(shortly(t), offsets, meta)
	b.Signal(syscall.SIGCONT)
	if e := rdError(t, failure); e.Code() != kafka.ErrTimedOut || !e.IsRetriable() || e.TxnRequiresAbort() {
		t.Fatalf("send offsets: %v (retriable %v)", e, e.IsRetriable())
	}
	p.ok(p.SendOffsetsToTransaction(limited(t), offsets, meta))
	p.ok(p.CommitTransaction(limited(t)))
	if at, code := w.fetchOffset("g", "in", 0, true); at != 7 || code != 0 {
		t.Errorf("the group stands at %d, code %d", at, code)
	}
	wantValues(t, committedIn(t, b.Kafka, "out", 0), "output")
}
