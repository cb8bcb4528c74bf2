package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// A transaction of version 2 over two partitions and a group becomes visible
// everywhere at once, and the next one begins under the epoch of the answer.
func TestCommitIsVisibleEverywhereAtOnce(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	w.produce("a", p, 0, 0, "x")
	w.produce("a", p, 0, 1, "y")
	w.ok(w.commitOffset(txn.V2, "a", p, "g", 7))
	w.sees(0)
	if _, err := w.groupOffset("g"); !errors.Is(err, group.ErrUnstableOffset) {
		t.Errorf("pending offset: %v", err)
	}
	next := w.end("a", p, txn.Commit)
	if next != (model.ProducerIdentity{ID: p.ID, Epoch: p.Epoch + 1}) {
		t.Errorf("next identity %v after %v", next, p)
	}
	w.sees(0, "x")
	w.sees(1, "y")
	if at, err := w.groupOffset("g"); at != 7 || err != nil {
		t.Errorf("group offset %d, %v", at, err)
	}
	w.produce("a", next, 0, 0, "z")
	w.end("a", next, txn.Abort)
	w.sees(0, "x")
	w.quiet()
}

// A transaction of version 1 enrols first; data of a partition that was not
// enrolled is refused and leaves nothing.
func TestVersion1EnrolsFirst(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	_, err := w.produceV(txn.V0, "a", p, 0, 0, "too early")
	w.is(err, txn.ErrNotEnrolled)
	_, err = w.answer(w.Enrol(txn.Enrol{ID: "a", Producer: p, Partitions: []txn.Participant{
		{TopicPartition: w.logs[0].ID(), Name: "t"}, w.OffsetsParticipant("g"),
	}}))
	w.ok(err)
	_, err = w.produceV(txn.V0, "a", p, 0, 0, "x")
	w.ok(err)
	_, err = w.produceV(txn.V0, "a", p, 0, 1, "elsewhere")
	w.is(err, txn.ErrNotEnrolled)
	w.is(w.commitOffset(txn.V0, "a", p, "another group", 3), txn.ErrNotEnrolled)
	w.ok(w.commitOffset(txn.V0, "a", p, "g", 3))
	same, err := w.tryEnd(txn.V0, "a", p, txn.Commit)
	w.ok(err)
	if same != p {
		t.Errorf("the epoch moved: %v", same)
	}
	w.sees(0, "x")
	w.sees(1)
	_, err = w.produceV(txn.V0, "a", p, 1, 0, "late")
	w.is(err, txn.ErrNotEnrolled)
	w.quiet()
}

// A refused batch enrols nothing: the record and the data are one entry.
func TestRefusedBatchLeavesNoEnrolment(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	_, err := w.produceV(txn.V2, "a", p, 5, 0, "not the first")
	w.is(err, storage.ErrOutOfOrderSequence)
	if got := w.state("a"); got != txn.Empty {
		t.Errorf("state %v", got)
	}
	w.produce("a", p, 0, 0, "first")
	w.end("a", p, txn.Commit)
	w.sees(0, "first")
}

// Offsets that the group refuses enrol nothing either.
func TestRefusedOffsetsLeaveNoEnrolment(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	f := w.CommitTransactionOffsets(TransactionOffsets{TransactionalID: "a", Version: txn.V2, Offsets: group.CommitOffsets{
		Group: "g", Caller: group.Caller{Generation: 4, Member: "gone"}, Producer: &p,
		Offsets: []group.Commit{{Topic: "input", Offset: 1}},
	}})
	errs, err := f.Wait(t.Context())
	if errors.Join(append(errs, err)...) == nil {
		t.Error("a member of another generation committed")
	}
	if got := w.state("a"); got != txn.Empty {
		t.Errorf("state %v", got)
	}
}

func TestClientsMayNotWriteMarkers(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	_, err := w.Produce(Produce{TransactionalID: "a", Version: txn.V2, Batches: []ProduceBatch{
		{w.logs[0], batch.NewMarker(batch.Marker{Type: batch.Commit, Producer: p})},
	}})
	w.is(err, ErrControlBatch)
}

// Another owner aborts the open transaction and gets its identity in one answer.
func TestInitTakesOverAnOpenTransaction(t *testing.T) {
	for _, level := range []txn.Version{txn.V0, txn.V2} {
		w := newTxnWorld(t, vfs.NewMemory())
		w.level = level
		old := w.init("a")
		w.produce("a", old, 0, 0, "lost")
		w.ok(w.commitOffset(txn.V2, "a", old, "g", 7))
		p := w.init("a")
		if p != (model.ProducerIdentity{ID: old.ID, Epoch: old.Epoch + 2}) {
			t.Errorf("level %d: %v took over from %v", level, p, old)
		}
		w.sees(0)
		if at, err := w.groupOffset("g"); at != model.NoOffset || err != nil {
			t.Errorf("level %d: group offset %d, %v", level, at, err)
		}
		_, err := w.produceV(txn.V2, "a", old, 1, 0, "zombie")
		w.is(err, storage.ErrStaleProducerEpoch)
		_, err = w.produceV(txn.V2, "a", old, 0, 2, "zombie")
		w.is(err, txn.ErrFenced)
		_, err = w.tryEnd(txn.V0, "a", old, txn.Commit)
		w.is(err, txn.ErrFenced)
		w.quiet()
	}
}

func TestTimeoutAborts(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	w.produce("a", p, 0, 0, "slow")
	w.clock.advance(time.Minute)
	w.tick()
	if got := w.state("a"); got != txn.Ongoing {
		t.Fatalf("%v at the deadline", got)
	}
	w.clock.advance(time.Millisecond)
	w.tick()
	if got := w.state("a"); got != txn.CompleteAbort {
		t.Fatalf("%v after the deadline", got)
	}
	w.sees(0)
	_, err := w.produceV(txn.V2, "a", p, 1, 0, "late")
	w.is(err, storage.ErrStaleProducerEpoch)
	w.quiet()
}

// While a producer id is waited for, the shard is not held: others are answered.
func TestAShardIsNotHeldOverTheWaitForAProducerID(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	there, waiting := make(chan struct{}), make(chan struct{})
	w.o.NewProducerID = func(ctx context.Context) (model.ProducerID, error) {
		select {
		case <-there:
			return 77, nil
		default:
		}
		if ctx.Err() != nil {
			return model.NoProducerID, ctx.Err()
		}
		close(waiting)
		<-there
		return 77, nil
	}
	owned := make(chan model.ProducerIdentity)
	go func() {
		p, _ := w.tryInit("a", noIdentity)
		owned <- p
	}()
	<-waiting
	if got := w.state("a"); got != txn.Dead {
		t.Errorf("state %v", got)
	}
	close(there)
	if p := <-owned; p.ID != 77 {
		t.Errorf("%+v", p)
	}
}

// The scans run on their own when they are frequent.
func TestScansRun(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	w.transactions.close()
	w.transactions = newTransactions(w.transactions.o)
	w.o.TimeoutScan, w.o.ExpiryScan = time.Millisecond, time.Millisecond
	w.ok(w.transactions.open(t.Context()))
	w.transactions.start()
	p := w.init("a")
	w.produce("a", p, 0, 0, "slow")
	w.clock.advance(2 * time.Minute)
	waitFor(t, func() bool { return w.state("a") == txn.CompleteAbort })
	w.clock.advance(8 * 24 * time.Hour)
	waitFor(t, func() bool { return w.state("a") == txn.Dead })
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 10 s")
		}
	}
}

// A participant that was deleted does not keep the others from their markers,
// whether it went before the end or under its hands.
func TestDeletedParticipantNeverBlocksAnEnd(t *testing.T) {
	for _, outcome := range []txn.Outcome{txn.Commit, txn.Abort} {
		w := newTxnWorld(t, vfs.NewMemory())
		p := w.init("a")
		w.produce("a", p, 0, 0, "gone")
		w.produce("a", p, 0, 1, "kept")
		w.ok(w.engine.Delete(w.logs[0].ID()))
		w.end("a", p, outcome)
		if outcome == txn.Commit {
			w.sees(1, "kept")
		} else {
			w.sees(1)
		}
		w.logs = w.logs[1:]
		w.quiet()
	}
}

// What an operator wrote with WriteTxnMarkers does not stop the coordinator's
// own end: neither a newer coordinator epoch nor a newer producer epoch.
func TestOperatorsMarkersDoNotBlockAnEnd(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	write := func(partition int, who model.ProducerIdentity, coordinator int32) {
		t.Helper()
		pending, err := w.WriteMarker(MarkerWrite{Partition: w.logs[partition], Producer: who, CoordinatorEpoch: coordinator})
		w.ok(err)
		w.ok(pending.Wait(t.Context()))
	}
	w.produce("a", p, 0, 0, "x")
	w.produce("a", p, 0, 1, "y")
	write(0, p, 1_000_000)
	w.produce("a", p, 1, 0, "z")
	write(1, model.ProducerIdentity{ID: p.ID, Epoch: p.Epoch + 9}, 5)
	w.end("a", p, txn.Commit)
	w.sees(0, "z")
	w.quiet()
}

func TestWriteMarkerRefusals(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	w.produce("a", p, 0, 0, "x")
	write := func(epoch model.ProducerEpoch, coordinator int32, v txn.Version) error {
		pending, err := w.WriteMarker(MarkerWrite{
			Partition: w.logs[0], Producer: model.ProducerIdentity{ID: p.ID, Epoch: epoch}, CoordinatorEpoch: coordinator, Version: v,
		})
		if err == nil {
			err = pending.Wait(t.Context())
		}
		return err
	}
	w.is(write(p.Epoch-1, 5, txn.V0), storage.ErrStaleProducerEpoch)
	w.is(write(p.Epoch, 5, txn.V2), storage.ErrStaleProducerEpoch)
	w.ok(write(p.Epoch+1, 5, txn.V2))
	w.ok(write(p.Epoch+1, 5, txn.V2)) // again: harmless
	w.is(write(p.Epoch+1, 4, txn.V2), storage.ErrStaleCoordinatorEpoch)
	w.sees(0)
}

// A marker on the offsets topic settles the offsets before it is answered.
func TestWriteMarkerSettlesOffsets(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	w.ok(w.commitOffset(txn.V2, "a", p, "g", 7))
	offsets, ok := w.engine.Partition(w.OffsetsParticipant("g").TopicPartition)
	if !ok {
		t.Fatal("the offsets partition is not open")
	}
	pending, err := w.WriteMarker(MarkerWrite{Partition: offsets, Producer: p, Outcome: txn.Commit})
	w.ok(err)
	w.ok(pending.Wait(t.Context()))
	if at, err := w.groupOffset("g"); at != 7 || err != nil {
		t.Errorf("group offset %d, %v", at, err)
	}
}

// A Session enrols by writing and keeps its epoch; what it leaves open is
// aborted by the next start. A Client's transaction stays open over it.
func TestSessionsDieWithTheBroker(t *testing.T) {
	disk := vfs.NewMemory()
	w := newTxnWorld(t, disk)
	a, err := w.InitProducer(txn.Init{ID: "moon", Timeout: time.Minute, Given: noIdentity, Owner: txn.Session}).Wait(t.Context())
	w.ok(err)
	session := func(seq model.Sequence, value string) error {
		pending, err := w.Produce(Produce{TransactionalID: "moon", Owner: txn.Session, Batches: []ProduceBatch{
			{w.logs[0], txnBatch(a.Producer, seq, value)},
		}})
		if err != nil {
			return err
		}
		return pending.Wait(t.Context())
	}
	w.ok(session(0, "first"))
	same, err := w.answer(w.EndTransaction(txn.End{ID: "moon", Producer: a.Producer, Outcome: txn.Commit, Owner: txn.Session}))
	w.ok(err)
	if same != a.Producer {
		t.Errorf("the session's epoch moved: %v", same)
	}
	w.ok(session(1, "left open"))
	client := w.init("client")
	w.produce("client", client, 0, 1, "still mine")

	w.stop()
	w = newTxnWorld(t, disk)
	if got := w.state("moon"); got != txn.CompleteAbort {
		t.Errorf("the session's transaction is %v", got)
	}
	w.sees(0, "first")
	if got := w.state("client"); got != txn.Ongoing {
		t.Errorf("the client's transaction is %v", got)
	}
	w.end("client", client, txn.Commit)
	w.sees(1, "still mine")
	w.quiet()
}

// Many producers end transactions on the same partitions at the same time as
// others produce to them; nothing is lost and nothing is left open.
func TestConcurrentTransactions(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	var want [worldPartitions][]string
	var mu sync.Mutex
	var producers sync.WaitGroup
	for i := range 8 {
		producers.Go(func() {
			id := string(rune('a' + i))
			p, err := w.tryInit(id, noIdentity)
			if err != nil {
				t.Error(err)
				return
			}
			for n := range 20 {
				partition, value := (i+n)%worldPartitions, id+string(rune('a'+n))
				_, err := w.produceV(txn.V2, id, p, 0, partition, value)
				outcome := txn.Outcome(n % 2)
				var endErr error
				if p, endErr = w.tryEnd(txn.V2, id, p, outcome); err != nil || endErr != nil {
					t.Error(err, endErr)
					return
				}
				if outcome == txn.Commit {
					mu.Lock()
					want[partition] = append(want[partition], value)
					mu.Unlock()
				}
			}
		})
	}
	producers.Wait()
	for i := range worldPartitions {
		got := w.committed(i)
		slices.Sort(got)
		slices.Sort(want[i])
		if !slices.Equal(got, want[i]) {
			t.Errorf("partition %d: %v, want %v", i, got, want[i])
		}
	}
	w.quiet()
}

// The critical path of a transaction is the sync of its data and one more,
// whatever the number of partitions. Version 1 enrols before, which nobody
// waits for; data and offsets are two requests and may be two flushes.
func TestSyncsPerTransaction(t *testing.T) {
	disk := vfs.NewFault(vfs.NewMemory())
	w := newTxnWorld(t, disk)
	for _, version := range []txn.Version{txn.V0, txn.V2} {
		id := string(rune('a' + version))
		p := w.init(id)
		w.ok(w.commitOffset(txn.V2, id, p, "g"+id, 1)) // first uses of partitions create files
		for i := range w.logs {
			w.produce(id, p, 0, i, "warm up")
		}
		p = w.end(id, p, txn.Commit)
		before := disk.Count(vfs.OpSync)
		if version == txn.V0 {
			parts := []txn.Participant{w.OffsetsParticipant("g" + id)}
			for _, l := range w.logs {
				parts = append(parts, txn.Participant{TopicPartition: l.ID(), Name: "t"})
			}
			_, err := w.answer(w.Enrol(txn.Enrol{ID: id, Producer: p, Partitions: parts}))
			w.ok(err)
		}
		var batches []ProduceBatch
		for _, l := range w.logs {
			batches = append(batches, ProduceBatch{l, txnBatch(p, 0, "x")})
		}
		pending, err := w.Produce(Produce{TransactionalID: id, Version: version, Batches: batches})
		w.ok(err)
		w.ok(w.commitOffset(version, id, p, "g"+id, 2))
		w.ok(pending.Wait(t.Context()))
		data := disk.Count(vfs.OpSync)
		_, err = w.tryEnd(version, id, p, txn.Commit)
		w.ok(err)
		end := disk.Count(vfs.OpSync)
		t.Logf("version %d: %d syncs for data and offsets of %d partitions, %d for the end", version, data-before, len(w.logs), end-data)
		if end-data != 1 {
			t.Errorf("version %d: the end took %d syncs, want 1", version, end-data)
		}
		if data-before > 3 {
			t.Errorf("version %d: data and offsets took %d syncs, want at most 3", version, data-before)
		}
	}
}

// An epoch nobody was given is fenced, also where a transaction of the real one
// is open.
func TestProduceWithAnEpochOfTheFuture(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	p := w.init("a")
	w.produce("a", p, 0, 0, "x")
	for _, version := range []txn.Version{txn.V0, txn.V2} {
		_, err := w.produceV(version, "a", model.ProducerIdentity{ID: p.ID, Epoch: p.Epoch + 1}, 0, 0, "y")
		w.is(err, txn.ErrFenced)
	}
	w.end("a", p, txn.Commit)
	w.sees(0, "x")
}
