package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// The anomalies other brokers were caught with, each as the requests that
// provoke it. P06 and P12 need a disk that fails on demand and stand beside the
// coordinator.

const quickTimeouts = "transaction.abort.timed.out.transaction.cleanup.interval.ms=20"

// txnBroker starts a broker and connects to it.
func txnBroker(t *testing.T, settings ...string) (*Broker, *raw) {
	t.Helper()
	var args []string
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	b := Start(t, args...)
	return b, rawConn(t, b.Kafka)
}

// A produce that arrives after its transaction ended does not open another one.
func TestP01HangingTransactionByALateProduce(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 2)
	late := func(version int16, p identity, want int16) {
		t.Helper()
		end := w.latest("t", 0, false)
		_, code := w.produce(version, "late", p, 1, "t", 0, "late")
		w.want(fmt.Sprintf("late Produce v%d", version), code, want)
		if now := w.latest("t", 0, false); now != end {
			t.Errorf("Produce v%d: the log grew from %d to %d", version, end, now)
		}
		w.closed("t", 0)
	}
	p := w.init("late")
	w.want("AddPartitions", w.addPartitions(0, "late", p, "t", 0), 0)
	_, code := w.produce(9, "late", p, 0, "t", 0, "in time")
	w.want("Produce", code, 0)
	_, code = w.end(1, "late", p, true)
	w.want("EndTxn", code, 0)
	late(9, p, 48)
	late(11, p, 120)

	p = w.init("late")
	_, code = w.produce(12, "late", p, 0, "t", 0, "in time")
	w.want("Produce v12", code, 0)
	_, code = w.end(5, "late", p, true)
	w.want("EndTxn v5", code, 0)
	late(12, p, 47)
}

// A commit that was delayed in the network until the next transaction of its
// producer is under way ends that one under version 1, which cannot tell the
// two apart. Version 2 refuses it.
func TestP02DelayedEndTxnFinishesALaterTransaction(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 1)
	delayed := w.again()

	p := w.init("v2")
	_, code := w.produce(12, "v2", p, 0, "t", 0, "first")
	w.want("Produce", code, 0)
	next, code := w.end(5, "v2", p, true)
	w.want("EndTxn", code, 0)
	_, code = w.produce(12, "v2", next, 0, "t", 0, "x")
	w.want("Produce", code, 0)
	_, code = w.produce(12, "v2", next, 1, "t", 0, "y")
	w.want("Produce", code, 0)
	// The same bytes as the first commit: a retry is answered, the transaction that runs now is not touched.
	if _, code = delayed.end(5, "v2", p, true); code != 90 {
		t.Errorf("the delayed commit was answered %d, want 90", code)
	}
	_, code = w.end(5, "v2", next, false)
	w.want("EndTxn abort", code, 0)
	if got, want := w.fetch(11, "t", 0, 0, true).committedValues(), []string{"first"}; !slices.Equal(got, want) {
		t.Errorf("committed %v, want %v", got, want)
	}

	p = w.init("v1")
	w.addPartitions(0, "v1", p, "t", 0)
	w.produce(9, "v1", p, 0, "t", 0, "first")
	_, code = w.end(1, "v1", p, true)
	w.want("EndTxn", code, 0)
	w.addPartitions(0, "v1", p, "t", 0)
	w.produce(9, "v1", p, 1, "t", 0, "x")
	_, code = delayed.end(1, "v1", p, true)
	t.Logf("version 1: the delayed commit was answered %d and ended the transaction that ran then; the protocol has nothing to tell them apart by", code)
	w.closed("t", 0)
}

// The state of a producer with an open transaction does not expire, and after
// the marker it lives for a whole period more.
func TestP03ProducerStateExpiredTooEarly(t *testing.T) {
	_, w := txnBroker(t, quickTimeouts, "producer.id.expiration.ms=1000", "producer.id.expiration.check.interval.ms=50")
	w.newTopic("t", 1)
	p := w.init("slow")
	w.addPartitions(3, "slow", p, "t", 0)
	_, code := w.produce(9, "slow", p, 0, "t", 0, "a")
	w.want("Produce 0", code, 0)
	time.Sleep(1500 * time.Millisecond) // longer than the expiry, with the sweep running: that is the scenario
	_, code = w.produce(9, "slow", p, 1, "t", 0, "b")
	w.want("Produce 1 after the expiry period", code, 0)
	_, code = w.end(3, "slow", p, true)
	w.want("EndTxn", code, 0)

	p = w.short("late")
	w.timesOut("late")
	end := w.latest("t", 0, false)
	_, code = w.produce(9, "late", p, 1, "t", 0, "b")
	w.want("Produce with the old epoch after the timeout", code, 47)
	if now := w.latest("t", 0, false); now != end {
		t.Errorf("the log grew from %d to %d", end, now)
	}
}

// AddPartitions and Produce of one transaction on one connection, its abort on
// another, before the Produce: nothing is left open.
func TestP04OutOfOrderProcessingLeavesTheStableOffsetStuck(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 1)
	other := w.again()
	p := w.init("a")
	w.addPartitions(3, "a", p, "t", 0)
	_, code := other.end(3, "a", p, false)
	w.want("EndTxn", code, 0)
	_, code = w.produce(9, "a", p, 0, "t", 0, "late")
	w.want("the held Produce", code, 48)
	w.closed("t", 0)
	for i, v := range []string{"one", "two", "three"} {
		w.want("AddPartitions", w.addPartitions(3, "a", p, "t", 0), 0)
		_, code = w.produce(9, "a", p, int32(i), "t", 0, v)
		w.want("Produce", code, 0)
		_, code = w.end(3, "a", p, true)
		w.want("EndTxn", code, 0)
	}
	if got, want := w.fetch(11, "t", 0, 0, true).committedValues(), []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("committed %v, want %v", got, want)
	}
	w.closed("t", 0)
}

// Any of a producer's last five batches is known again, also after a crash.
func TestP05DuplicatesOnRetry(t *testing.T) {
	b, w := txnBroker(t)
	b.NeedsOwnProcess()
	w.newTopic("t", 1)
	p := w.init("five")
	w.addPartitions(3, "five", p, "t", 0)
	send := func(w *raw, seq int32) (int64, int16) {
		return w.produce(9, "five", p, seq, "t", 0, fmt.Sprint("v", seq))
	}
	for seq := range int32(5) {
		w.send(w.produceRequest(9, "five", "t", 0, records(p, seq, fmt.Sprint("v", seq))))
	}
	var offsets []int64
	for range 5 {
		offset, code := produced(w.receive())
		w.want("pipelined Produce", code, 0)
		offsets = append(offsets, offset)
	}
	resend := func(w *raw, from int32) {
		t.Helper()
		for seq := from; seq < 5; seq++ {
			if offset, code := send(w, seq); code != 0 || offset != offsets[seq] {
				t.Errorf("sequence %d again: offset %d, code %d, want offset %d", seq, offset, code, offsets[seq])
			}
		}
	}
	resend(w, 0)
	b.Kill()
	b.Restart()
	ids := w.ids
	w = rawConn(t, b.Kafka)
	w.ids = ids
	resend(w, 0)
	if end := w.latest("t", 0, false); end != 5 {
		t.Errorf("the log ends at %d, want 5", end)
	}
	if offset, code := send(w, 5); code != 0 || offset != 5 {
		t.Errorf("the sixth: offset %d, code %d", offset, code)
	}
	if _, code := send(w, 0); code != 45 {
		t.Errorf("a batch that five others followed: code %d, want 45", code)
	}
	resend(w, 1)
}

// Every acknowledged (partition, offset) holds its value for ever, and base
// offset 0 is given once, while topics are created and the broker is killed.
func TestP07AcknowledgedWritesLost(t *testing.T) {
	b, w := txnBroker(t)
	b.NeedsOwnProcess()
	w.newTopic("t", 4)
	type place struct {
		partition int32
		offset    int64
	}
	var mu sync.Mutex
	acked := map[place]string{}
	run := func(name string, kills int) {
		stop := make(chan struct{})
		var producers sync.WaitGroup
		for i := range 8 {
			producers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					partition := int32(n % 4)
					value := fmt.Sprintf("%s-%d-%d", name, i, n)
					offset, ok := produceOnce(t, b.Kafka, "t", partition, value)
					if !ok {
						continue
					}
					mu.Lock()
					if old, taken := acked[place{partition, offset}]; taken {
						t.Errorf("offset %d/%d was given to %s and to %s", partition, offset, old, value)
					}
					acked[place{partition, offset}] = value
					mu.Unlock()
				}
			})
		}
		for i := range max(kills, 1) {
			time.Sleep(time.Second) // how long they write is the scenario
			if kills > 0 {
				b.Kill()
				b.Restart()
			} else {
				rawConn(t, b.Kafka).newTopic(fmt.Sprintf("other-%s-%d", name, i), 3)
			}
		}
		close(stop)
		producers.Wait()
	}
	run("healthy", 0)
	run("killed", 3)
	w = rawConn(t, b.Kafka)
	for p := range int32(4) {
		for from, end := int64(0), w.latest("t", p, false); from < end; {
			f := w.fetch(11, "t", p, from, false)
			w.want("Fetch", f.code, 0)
			for _, view := range f.batches {
				for i, v := range valuesOf(view) {
					at := place{p, int64(view.BaseOffset()) + int64(i)}
					if want, ok := acked[at]; ok && want != v {
						t.Errorf("offset %d/%d holds %s, %s was acknowledged there", p, at.offset, v, want)
					}
					delete(acked, at)
					from = at.offset + 1
				}
			}
		}
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged records are gone, such as %v", len(acked), firstOf(acked))
	}
}

func firstOf[K comparable, V any](m map[K]V) K {
	for k := range m {
		return k
	}
	panic("empty")
}

// A read_committed reader stops in front of an open transaction.
func TestP08ReadCommittedBoundedByTheEndOfTheLog(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 1)
	p := w.init("a")
	w.produce(12, "a", p, 0, "t", 0, "committed")
	p, code := w.end(5, "a", p, true)
	w.want("EndTxn", code, 0)
	_, code = w.produce(12, "a", p, 0, "t", 0, "open")
	w.want("Produce", code, 0)

	f := w.fetch(12, "t", 0, 0, true)
	if got := f.batches; len(got) != 2 || got[1].NextOffset() != 2 || f.stable != 2 || f.high != 3 {
		t.Errorf("from 0: %d batches, stable %d, high %d", len(got), f.stable, f.high)
	}
	f = w.fetch(12, "t", 0, 2, true)
	if f.code != 0 || len(f.batches) != 0 || f.aborted == nil || len(f.aborted) != 0 {
		t.Errorf("from the stable offset: code %d, %d batches, aborted %v", f.code, len(f.batches), f.aborted)
	}
	if got := w.latest("t", 0, true); got != 2 {
		t.Errorf("latest for read_committed: %d, want 2", got)
	}
	if got := w.latest("t", 0, false); got != 3 {
		t.Errorf("latest for read_uncommitted: %d, want 3", got)
	}
}

// Version 2 refuses a first batch that is not the first.
func TestP09FirstBatchWithANonZeroSequence(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 2)
	p := w.init("v2")
	_, code := w.produce(12, "v2", p, 5, "t", 0, "five")
	w.want("Produce v12 with sequence 5", code, 45)
	if end := w.latest("t", 0, false); end != 0 {
		t.Errorf("the log ends at %d", end)
	}
	_, code = w.produce(12, "v2", p, 0, "t", 0, "zero")
	w.want("Produce v12 with sequence 0", code, 0)

	p = w.init("v1")
	w.addPartitions(0, "v1", p, "t", 1)
	_, code = w.produce(11, "v1", p, 5, "t", 1, "five")
	w.want("Produce v11 with sequence 5", code, 0)
}

// Epochs are compared for equality, and before anything is written.
func TestP10StaleEpochs(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 1)
	old := w.init("a")
	p := w.init("a")
	if p.epoch != old.epoch+1 {
		t.Fatalf("epoch %d after %d", p.epoch, old.epoch)
	}
	_, code := w.produce(12, "a", old, 0, "t", 0, "zombie")
	w.want("Produce with the old epoch", code, 47)
	if got := w.describe("a"); got.State != "Empty" || len(got.Topics) != 0 {
		t.Errorf("the zombie's produce left %s with %v", got.State, got.Topics)
	}
	_, code = w.produce(12, "a", p, 0, "t", 0, "mine")
	w.want("Produce", code, 0)
	_, code = w.end(3, "a", identity{p.id, p.epoch + 1}, true)
	w.want("EndTxn with a later epoch", code, 90)
	if got := w.describe("a").State; got != "Ongoing" {
		t.Errorf("the transaction is %s", got)
	}
	_, code = w.end(3, "a", p, true)
	w.want("EndTxn", code, 0)
}

// While a decision is on its way to a slow disk, requests for the next
// transaction wait for it and are answered as the state after it demands.
func TestP11RetriabilityDuringADecision(t *testing.T) {
	_, w := txnBroker(t, "perigee.debug.sync.delay.ms=150")
	w.newTopic("t", 1)
	others := []*raw{w.again(), w.again(), w.again()}
	p := w.init("v1")
	w.addPartitions(0, "v1", p, "t", 0)
	_, code := w.produce(9, "v1", p, 0, "t", 0, "a")
	w.want("Produce", code, 0)
	w.send(endRequest(1, "v1", p, true))
	for i, version := range []int16{9, 11} {
		_, code := others[i].produce(version, "v1", p, 1, "t", 0, "b")
		if allowed := []int16{0, 19, 48, 120}; !slices.Contains(allowed, code) || (version < 11 && code == 120) {
			t.Errorf("Produce v%d during the decision: %d", version, code)
		}
	}
	if code := w.receive(); code == nil {
		t.Error("no answer to EndTxn")
	}

	p = w.init("v2")
	_, code = w.produce(12, "v2", p, 0, "t", 0, "a")
	w.want("Produce", code, 0)
	w.send(endRequest(5, "v2", p, true))
	// A client that guesses its next epoch is ahead of the answer, and is served.
	_, code = others[2].produce(12, "v2", identity{p.id, p.epoch + 1}, 0, "t", 0, "b")
	if !slices.Contains([]int16{0, 51, 47}, code) {
		t.Errorf("Produce v12 during the decision: %d", code)
	}
	w.receive()
}

// A producer whose transaction timed out learns that it is fenced, not that it
// made a mistake; what it may do next depends on the transaction version.
func TestP13TimeoutAbortLooksLikeAStateError(t *testing.T) {
	for _, level := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("level %d", level), func(t *testing.T) {
			_, w := txnBroker(t, quickTimeouts, fmt.Sprintf("perigee.transaction.version=%d", level))
			w.newTopic("t", 1)
			p := w.short("a")
			w.timesOut("a")
			_, code := w.end(1, "a", p, true)
			w.want("EndTxn v1", code, 47)
			_, code = w.end(3, "a", p, true)
			w.want("EndTxn v3", code, 90)
			_, code = w.produce(9, "a", p, 1, "t", 0, "later")
			w.want("Produce", code, 47)
			got, code := w.tryInit(4, "a", time.Second, p)
			if level < 2 {
				w.want("InitProducerId with the old identity", code, 90)
			} else if w.want("InitProducerId with the old identity", code, 0); got != (identity{p.id, p.epoch + 1}) {
				t.Errorf("got %v, want the epoch of the abort", got)
			}
			if next := w.init("a"); next != (identity{p.id, p.epoch + 2}) {
				t.Errorf("the next owner got %v after %v", next, p)
			}
			_, code = w.tryInit(4, "a", time.Second, p)
			w.want("InitProducerId with the old identity after another owner", code, 90)
			if got := w.fetch(11, "t", 0, 0, true).committedValues(); len(got) != 0 {
				t.Errorf("committed %v", got)
			}
			w.closed("t", 0)
		})
	}
}

// The aborted list is for read_committed readers only: some clients filter
// whenever there is one.
func TestP14AbortedListForReadUncommitted(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 1)
	p := w.init("a")
	_, code := w.produce(12, "a", p, 0, "t", 0, "aborted")
	w.want("Produce", code, 0)
	_, code = w.end(5, "a", p, false)
	w.want("EndTxn", code, 0)
	for _, version := range []int16{4, 11, 12, 13} {
		ru := w.fetch(version, "t", 0, 0, false)
		if ru.aborted != nil || !slices.Equal(ru.values(), []string{"aborted"}) {
			t.Errorf("v%d read_uncommitted: list %v, values %v", version, ru.aborted, ru.values())
		}
		rc := w.fetch(version, "t", 0, 0, true)
		if len(rc.aborted) != 1 || rc.aborted[0].ProducerID != p.id || rc.aborted[0].FirstOffset != 0 {
			t.Errorf("v%d read_committed: list %v", version, rc.aborted)
		}
		if len(rc.committedValues()) != 0 || !slices.Equal(rc.values(), []string{"aborted"}) {
			t.Errorf("v%d read_committed: committed %v, bytes %v", version, rc.committedValues(), rc.values())
		}
	}
}

// A commit of a transaction that enrolled and wrote nothing is a commit.
func TestP15EmptyCommits(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 2)
	p := w.init("v1")
	end := func(what string) {
		t.Helper()
		_, code := w.end(1, "v1", p, true)
		w.want(what, code, 0)
	}
	w.addPartitions(0, "v1", p, "t", 0, 1)
	w.produce(9, "v1", p, 0, "t", 0, "only here")
	end("commit of two partitions, one written")
	w.addPartitions(0, "v1", p, "t", 0)
	end("commit of a partition that was not written")
	w.want("AddOffsets", w.addOffsets(0, "v1", p, "g"), 0)
	end("commit of offsets that were not sent")
	if got := w.fetch(11, "t", 0, 0, true).committedValues(); !slices.Equal(got, []string{"only here"}) {
		t.Errorf("committed %v", got)
	}
	w.closed("t", 0)
	w.closed("t", 1)

	q := w.init("v2")
	_, code := w.end(5, "v2", q, true)
	w.want("version 2: commit of nothing", code, 48)
	next, code := w.end(5, "v2", q, false)
	w.want("version 2: abort of nothing", code, 0)
	if next != (identity{q.id, q.epoch + 1}) {
		t.Errorf("the abort of nothing answered %v after %v", next, q)
	}
}
