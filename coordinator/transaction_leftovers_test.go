package coordinator

import (
	"syscall"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// breakPartition takes a partition offline: a batch too large to wait in memory
// cannot be written.
func (w *txnWorld) breakPartition(fault *vfs.Fault, p *storage.Partition) {
	w.Helper()
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.log", Times: 1, Err: syscall.EIO})
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Add(batch.NewRecord{Value: make([]byte, 100<<10)})
	view, err := b.Build()
	w.ok(err)
	_, err = w.engine.Append(storage.Append{Partition: p, Batch: view})
	w.is(err, storage.ErrPartitionOffline)
	fault.Clear()
}

// An abort passes over a partition that is offline; the start that brings the
// partition back aborts there, too, and what is under way elsewhere goes on.
func TestAStartAbortsWhatAnAbortPassedOver(t *testing.T) {
	for name, end := range map[string]func(w *txnWorld, p model.ProducerIdentity){
		"by its producer":   func(w *txnWorld, p model.ProducerIdentity) { w.end("a", p, txn.Abort) },
		"by the next owner": func(w *txnWorld, p model.ProducerIdentity) { w.init("a") },
		"by version 1":      func(w *txnWorld, p model.ProducerIdentity) { _, err := w.tryEnd(txn.V0, "a", p, txn.Abort); w.ok(err) },
		"and another is on": func(w *txnWorld, p model.ProducerIdentity) { w.produce("a", w.end("a", p, txn.Abort), 0, 1, "next") },
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMemory()
			fault := vfs.NewFault(disk)
			w := newTxnWorld(t, fault)
			p := w.init("a")
			w.produce("a", p, 0, 0, "aborted")
			w.produce("b", w.init("b"), 0, 2, "under way")
			w.ok(w.commitOffset(txn.V2, "a", p, "g", 7))
			offsets, err := w.internal(catalog.OffsetsTopic)(w.OffsetsParticipant("g").Partition)
			w.ok(err)
			w.breakPartition(fault, w.logs[0])
			w.breakPartition(fault, offsets)
			end(w, p)

			w = newTxnWorld(t, disk.Clone())
			w.ok(w.engine.Barrier().Wait(t.Context()))
			if b := w.logs[0].Bounds(); b.Stable != b.High || len(w.logs[0].Producers()) != 1 {
				t.Errorf("%+v", b)
			}
			w.sees(0)
			if at, err := w.groupOffset("g"); at != model.NoOffset || err != nil {
				t.Errorf("group offset %d, %v", at, err)
			}
			if s := w.logs[2].Producers()[0]; s.TxnStart != 0 || w.state("b") != txn.Ongoing {
				t.Errorf("what was under way: %+v, %v", s, w.state("b"))
			}
			w.clock.advance(2 * time.Minute)
			w.tick()
			w.quiet()
			w.produce("a", w.init("a"), 0, 0, "after all")
		})
	}
}

// The same where the abort used up the producer id, so that the id goes on under
// another one.
func TestAStartAbortsWhatAnEarlierProducerIDLeft(t *testing.T) {
	disk := vfs.NewMemory()
	fault := vfs.NewFault(disk)
	w := newTxnWorld(t, fault)
	p := w.init("a")
	p.Epoch = model.MaxClientEpoch
	h, err := w.hold("a")
	w.ok(err)
	last, _ := h.s.ids.Lookup("a")
	last.Producer = p
	_, err = h.carryOut(txn.Decision{Facts: []txn.Fact{{ID: "a", Record: &last}}}, h.s.log.Append)
	h.Release()
	w.ok(err)
	w.produce("a", p, 0, 0, "aborted")
	w.breakPartition(fault, w.logs[0])
	if next := w.end("a", p, txn.Abort); next.ID == p.ID {
		t.Fatalf("goes on as %v", next)
	}

	w = newTxnWorld(t, disk.Clone())
	w.ok(w.engine.Barrier().Wait(t.Context()))
	if b := w.logs[0].Bounds(); b.Stable != b.High || len(w.hanging) != 0 {
		t.Errorf("%+v, hanging %+v", b, w.hanging)
	}
	w.sees(0)
}

// A commit passes over nothing: a participant that is offline keeps the whole
// transaction open, everywhere, and it can still be aborted.
func TestACommitWaitsForAnOfflinePartition(t *testing.T) {
	for _, version := range []txn.Version{txn.V0, txn.V2} {
		fault := vfs.NewFault(vfs.NewMemory())
		w := newTxnWorld(t, fault)
		p := w.init("a")
		w.produce("a", p, 0, 0, "here")
		w.produce("a", p, 0, 1, "and there")
		w.breakPartition(fault, w.logs[0])
		_, err := w.tryEnd(version, "a", p, txn.Commit)
		w.is(err, storage.ErrPartitionOffline)
		if s := w.state("a"); s != txn.Ongoing || w.logs[1].Bounds().Stable != 0 {
			t.Errorf("version %d: %v, %+v", version, s, w.logs[1].Bounds())
		}
		_, err = w.tryEnd(version, "a", p, txn.Abort)
		w.ok(err)
		w.sees(1)
	}
}

// What is offline cannot be enrolled: it may hold what an abort passed over.
func TestAnOfflinePartitionIsNotEnrolled(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	w := newTxnWorld(t, fault)
	p := w.init("a")
	w.breakPartition(fault, w.logs[0])
	enrol := txn.Enrol{ID: "a", Producer: p, Partitions: []txn.Participant{{TopicPartition: w.logs[0].ID(), Name: "t"}}}
	_, err := w.answer(w.Enrol(enrol))
	w.is(err, storage.ErrPartitionOffline)
	enrol.Producer.Epoch++
	_, err = w.answer(w.Enrol(enrol))
	w.is(err, txn.ErrFenced)
}

// A transaction of a producer nobody knows is left to the operator, who is told.
func TestATransactionNobodyOwnsIsReported(t *testing.T) {
	disk := vfs.NewMemory()
	w := newTxnWorld(t, disk)
	p := w.init("lost")
	w.produce("lost", p, 0, 1, "x", "y")
	s := w.shard("lost")
	key, _, _ := txn.Codec{}.Encode(txn.Fact{ID: "lost"})
	tombstone, err := s.log.item(machine.Batch{Records: []machine.Record{{Key: key}}})
	w.ok(err)
	pending, err := w.engine.Append(tombstone)
	w.ok(err)
	w.ok(pending.Wait(t.Context()))

	w = newTxnWorld(t, disk.Clone())
	if len(w.hanging) != 1 {
		t.Fatalf("reported: %+v", w.hanging)
	}
	if h := w.hanging[0]; h.Partition != w.logs[1] || h.Producer != p || h.Start != 0 {
		t.Errorf("reported: %+v", h)
	}
	if b := w.logs[1].Bounds(); b.Stable != 0 {
		t.Errorf("%+v", b)
	}
}

// As long as a partition is offline, ids are not forgotten.
func TestIDsAreKeptWhileAPartitionIsOffline(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	w := newTxnWorld(t, fault)
	w.init("before")
	w.clock.advance(8 * 24 * time.Hour)
	w.expire()
	if _, known := w.shard("before").ids.Lookup("before"); known {
		t.Error("an id is kept although everything is there")
	}
	p := w.init("a")
	w.produce("a", p, 0, 0, "x")
	w.breakPartition(fault, w.logs[0])
	w.end("a", p, txn.Abort)
	w.clock.advance(8 * 24 * time.Hour)
	w.expire()
	if s := w.state("a"); s != txn.CompleteAbort {
		t.Errorf("the id of what an abort passed over: %v", s)
	}
}
