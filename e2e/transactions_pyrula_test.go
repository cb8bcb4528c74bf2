package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

// What the transactions page of pyrula.kafka promises its users, paragraph by
// paragraph. pyrula stands on librdkafka, and so do these tests: transactions
// of version 1.

// rdTxn is a transactional producer with its delivery reports.
type rdTxn struct {
	*kafka.Producer
	t       *testing.T
	reports chan kafka.Event
}

func newRdTxn(t *testing.T, addr, id string, more kafka.ConfigMap) *rdTxn {
	t.Helper()
	config := kafka.ConfigMap{"transactional.id": id, "transaction.timeout.ms": 60_000}
	for k, v := range more {
		config[k] = v
	}
	p, err := kafka.NewProducer(rdConfig(addr, config))
	if err != nil {
		t.Fatal(err)
	}
	w := &rdTxn{Producer: p, t: t, reports: make(chan kafka.Event, 10_000)}
	t.Cleanup(func() {
		p.Purge(kafka.PurgeQueue | kafka.PurgeInFlight | kafka.PurgeNonBlocking)
		p.Close()
	})
	return w
}

// started is a producer that has initialised.
func started(t *testing.T, addr, id string, more kafka.ConfigMap) *rdTxn {
	t.Helper()
	w := newRdTxn(t, addr, id, more)
	w.ok(w.InitTransactions(limited(t)))
	return w
}

func (w *rdTxn) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *rdTxn) send(topic string, partition int32, value string) error {
	return w.Produce(&kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: partition}, Value: []byte(value)}, w.reports)
}

// report is the next delivery report's error.
func (w *rdTxn) report() error {
	w.t.Helper()
	select {
	case e := <-w.reports:
		return e.(*kafka.Message).TopicPartition.Error
	case <-time.After(clientLimit):
		w.t.Fatal("no delivery report")
		return nil
	}
}

// rdError takes the client's error apart.
func rdError(t *testing.T, err error) kafka.Error {
	t.Helper()
	e, ok := errors.AsType[kafka.Error](err)
	if !ok {
		t.Fatalf("%v is not an error of the client", err)
	}
	return e
}

// shortly is a context that ends soon, for calls that are to be resumed.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// committedIn reads what a read_committed consumer gets from a partition.
func committedIn(t *testing.T, addr, topic string, partition int32) []string {
	t.Helper()
	w := rawConn(t, addr)
	var values []string
	for from := int64(0); ; {
		f := w.fetch(11, topic, partition, from, true)
		w.want("Fetch", f.code, 0)
		values = append(values, f.committedValues()...)
		if len(f.batches) == 0 {
			return values
		}
		from = int64(f.batches[len(f.batches)-1].NextOffset())
	}
}

func pyrulaBroker(t *testing.T, settings ...string) (addr string, w *raw) {
	t.Helper()
	b, w := txnBroker(t, settings...)
	w.newTopic("in", 1)
	w.newTopic("out", 2)
	return b.Kafka, w
}

func wantValues(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("committed %v, want %v", got, want)
	}
}

// "read_committed consumers see all of a committed transaction or none of an
// aborted one."
func TestPyrulaCommitOrAbortIsOneUnit(t *testing.T) {
	addr, _ := pyrulaBroker(t)
	p := started(t, addr, "etl-1", nil)
	for i, commit := range []bool{true, false, true} {
		p.ok(p.BeginTransaction())
		for partition := range int32(2) {
			p.ok(p.send("out", partition, fmt.Sprint(i)))
		}
		if commit {
			p.ok(p.CommitTransaction(limited(t)))
		} else {
			p.ok(p.AbortTransaction(limited(t)))
		}
	}
	wantValues(t, committedIn(t, addr, "out", 0), "0", "2")
	wantValues(t, committedIn(t, addr, "out", 1), "0", "2")
}

// "A second producer that initialises the same transactional_id bumps the epoch
// and the broker refuses the older one's writes." "A fatal error ends the
// producer: every later call fails with it. Create a new one with the same id."
func TestPyrulaASecondProducerFencesTheFirst(t *testing.T) {
	addr, w := pyrulaBroker(t)
	old := started(t, addr, "etl-1", nil)
	old.ok(old.BeginTransaction())
	old.ok(old.send("out", 0, "lost"))
	old.ok(old.report())
	before := w.describe("etl-1").ProducerEpoch
	young := started(t, addr, "etl-1", nil)
	if now := w.describe("etl-1").ProducerEpoch; now <= before {
		t.Errorf("epoch %d after %d", now, before)
	}
	err := rdError(t, old.CommitTransaction(limited(t)))
	if !err.IsFatal() {
		t.Errorf("the old producer's commit: %v, not fatal", err)
	}
	if err := old.send("out", 0, "late"); err == nil {
		err = old.report()
		if err == nil {
			t.Error("the old producer wrote")
		}
	}
	if err := old.BeginTransaction(); err == nil || !rdError(t, err).IsFatal() {
		t.Errorf("the old producer begins again: %v", err)
	}
	young.ok(young.BeginTransaction())
	young.ok(young.send("out", 0, "kept"))
	young.ok(young.CommitTransaction(limited(t)))
	wantValues(t, committedIn(t, addr, "out", 0), "kept")
}

// "A transactional producer is always idempotent (enable_idempotence=False is
// refused)."
func TestPyrulaTransactionalIsIdempotent(t *testing.T) {
	if p, err := kafka.NewProducer(rdConfig("127.0.0.1:1", kafka.ConfigMap{"transactional.id": "x", "enable.idempotence": false})); err == nil {
		p.Close()
		t.Error("a transactional producer without idempotence was made")
	}
}

// "The cycle": poll, begin, produce, send offsets, commit. "After an abort the
// consumer's position is already past the batch, so call rewind."
func TestPyrulaCycleWithRewindAfterAbort(t *testing.T) {
	addr, w := pyrulaBroker(t)
	for i := range 10 {
		_, code := produced(w.do(w.produceRequest(9, "", "in", 0, records(nobody, 0, fmt.Sprint("r", i)))))
		w.want("Produce", code, 0)
	}
	c, err := kafka.NewConsumer(rdConfig(addr, kafka.ConfigMap{"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": false}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Subscribe("in", nil); err != nil {
		t.Fatal(err)
	}
	p := started(t, addr, "etl-1", nil)
	for batch, commit := range []bool{true, false, true} {
		got := rdPoll(t, c, 5)
		p.ok(p.BeginTransaction())
		for _, r := range got {
			p.ok(p.send("out", 0, strings.ToUpper(string(r.Value))))
		}
		position, err := c.Position([]kafka.TopicPartition{{Topic: new("in"), Partition: 0}})
		p.ok(err)
		meta, err := c.GetConsumerGroupMetadata()
		p.ok(err)
		p.ok(p.SendOffsetsToTransaction(limited(t), position, meta))
		if commit {
			p.ok(p.CommitTransaction(limited(t)))
			continue
		}
		p.ok(p.AbortTransaction(limited(t)))
		if at, code := w.fetchOffset("g", "in", 0, true); at != 5 || code != 0 {
			t.Errorf("batch %d: the group stands at %d, code %d", batch, at, code)
		}
		p.ok(c.Seek(kafka.TopicPartition{Topic: new("in"), Partition: 0, Offset: kafka.Offset(got[0].Offset)}, 10_000))
	}
	wantValues(t, committedIn(t, addr, "out", 0), "R0", "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9")
	if at, code := w.fetchOffset("g", "in", 0, true); at != 10 || code != 0 {
		t.Errorf("the group stands at %d, code %d", at, code)
	}
}

// "A produce with no open transaction raises ProduceError with code ERR__STATE
// and queues nothing."
func TestPyrulaProduceOutsideATransaction(t *testing.T) {
	addr, w := pyrulaBroker(t)
	p := started(t, addr, "etl-1", nil)
	if err := p.send("out", 0, "too early"); rdError(t, err).Code() != kafka.ErrState {
		t.Errorf("before begin: %v", err)
	}
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "in time"))
	p.ok(p.CommitTransaction(limited(t)))
	if err := p.send("out", 0, "too late"); rdError(t, err).Code() != kafka.ErrState {
		t.Errorf("after commit: %v", err)
	}
	wantValues(t, committedIn(t, addr, "out", 0), "in time")
	w.closed("out", 0)
}

// "If any record failed, the commit is refused with txn_requires_abort true,
// neither fatal nor retriable." "Afterwards produces and send_offsets are
// refused"; after the abort the producer works on.
func TestPyrulaFailedRecordNeedsAnAbort(t *testing.T) {
	addr, w := pyrulaBroker(t)
	w.setTopicConfig("out", "max.message.bytes", "1000")
	p := started(t, addr, "etl-1", nil)
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "fine"))
	p.ok(p.report())
	p.ok(p.send("out", 0, strings.Repeat("x", 5000)))
	if err := p.report(); rdError(t, err).Code() != kafka.ErrMsgSizeTooLarge {
		t.Errorf("the large record: %v", err)
	}
	err := rdError(t, p.CommitTransaction(limited(t)))
	if !err.TxnRequiresAbort() || err.IsFatal() || err.IsRetriable() {
		t.Errorf("commit: %v (abort %v, fatal %v, retriable %v)", err, err.TxnRequiresAbort(), err.IsFatal(), err.IsRetriable())
	}
	if err.Code() != kafka.ErrMsgSizeTooLarge {
		t.Errorf("commit fails with %v, the record with %v", err.Code(), kafka.ErrMsgSizeTooLarge)
	}
	p.refusesMore()
	p.ok(p.AbortTransaction(limited(t)))
	p.commitWithRetries("out", "again")
	wantValues(t, committedIn(t, addr, "out", 0), "again")
}

// refusesMore asserts that the transaction takes neither records nor offsets.
func (w *rdTxn) refusesMore() {
	w.t.Helper()
	if err := w.send("out", 0, "no more"); rdError(w.t, err).Code() != kafka.ErrState {
		w.t.Errorf("produce afterwards: %v", err)
	}
	meta, err := kafka.NewTestConsumerGroupMetadata("g")
	w.ok(err)
	offsets := []kafka.TopicPartition{{Topic: new("in"), Partition: 0, Offset: 1}}
	if e := rdError(w.t, w.SendOffsetsToTransaction(limited(w.t), offsets, meta)); !e.TxnRequiresAbort() || e.IsFatal() {
		w.t.Errorf("offsets afterwards: %v", e)
	}
}

// "After a failed partition registration the transaction can only be aborted.
// commit then fails with the original failure's class and code."
func TestPyrulaFailedRegistrationNeedsAnAbort(t *testing.T) {
	addr, w := pyrulaBroker(t)
	p := started(t, addr, "etl-1", nil)
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "fine"))
	p.ok(p.report())
	p.ok(p.send("__consumer_offsets", 0, "not for clients"))
	err := rdError(t, p.CommitTransaction(limited(t)))
	if err.Code() != kafka.ErrTopicAuthorizationFailed || !err.TxnRequiresAbort() || err.IsFatal() {
		t.Errorf("commit: %v (abort %v, fatal %v)", err, err.TxnRequiresAbort(), err.IsFatal())
	}
	p.refusesMore()
	p.ok(p.AbortTransaction(limited(t)))
	p.commitWithRetries("out", "again")
	wantValues(t, committedIn(t, addr, "out", 0), "again")
	w.closed("out", 0)
}

// commitWithRetries is what an application does: abort and begin again while
// it is told to. The client itself asks for it once more after a refused
// record, whose sequence number it has used up.
func (w *rdTxn) commitWithRetries(topic, value string) {
	w.t.Helper()
	for range 3 {
		w.ok(w.BeginTransaction())
		w.ok(w.send(topic, 0, value))
		err := w.CommitTransaction(limited(w.t))
		if err == nil {
			return
		}
		if !rdError(w.t, err).TxnRequiresAbort() {
			w.t.Fatal(err)
		}
		w.ok(w.AbortTransaction(limited(w.t)))
	}
	w.t.Fatal("three transactions in a row had to be aborted")
}

// "Refusals made before a record is queued (oversize record, bad partition)
// leave the transaction committable."
func TestPyrulaRefusalBeforeQueueingLeavesTheTransaction(t *testing.T) {
	addr, _ := pyrulaBroker(t)
	p := started(t, addr, "etl-1", kafka.ConfigMap{"message.max.bytes": 10_000})
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "fine"))
	if err := p.send("out", 0, strings.Repeat("x", 20_000)); rdError(t, err).Code() != kafka.ErrMsgSizeTooLarge {
		t.Errorf("oversize: %v", err)
	}
	p.ok(p.CommitTransaction(limited(t)))
	wantValues(t, committedIn(t, addr, "out", 0), "fine")
}

// "abort_transaction() purges queued records (receipts fail with purge kind
// queue), waits for requests already on the wire, then ends the transaction."
func TestPyrulaAbortPurges(t *testing.T) {
	addr, w := pyrulaBroker(t)
	p := started(t, addr, "etl-1", kafka.ConfigMap{"linger.ms": 30_000})
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "queued"))
	p.ok(p.AbortTransaction(limited(t)))
	if err := p.report(); rdError(t, err).Code() != kafka.ErrPurgeQueue {
		t.Errorf("the queued record: %v", err)
	}
	wantValues(t, committedIn(t, addr, "out", 0))
	w.closed("out", 0)
}

// "When a record's fate is unknown the abort also bumps the producer epoch."
func TestPyrulaAbortAfterAnUnknownOutcomeBumpsTheEpoch(t *testing.T) {
	addr, w := pyrulaBroker(t, "perigee.debug.sync.delay.ms=1500")
	p := started(t, addr, "etl-1", kafka.ConfigMap{"message.timeout.ms": 1000, "linger.ms": 0, "request.timeout.ms": 900})
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "in flight"))
	if err := p.report(); rdError(t, err).Code() != kafka.ErrMsgTimedOut {
		t.Errorf("the record in flight: %v", err)
	}
	before := w.describe("etl-1").ProducerEpoch
	p.ok(p.AbortTransaction(limited(t)))
	if now := w.describe("etl-1").ProducerEpoch; now <= before {
		t.Errorf("epoch %d after %d", now, before)
	}
	wantValues(t, committedIn(t, addr, "out", 0))
	w.closed("out", 0)
}

// "After a failed send_offsets_to_transaction the transaction can only be
// aborted": here because the consumer has left the group.
func TestPyrulaFailedSendOffsetsNeedsAnAbort(t *testing.T) {
	addr, w := pyrulaBroker(t)
	_, code := produced(w.do(w.produceRequest(9, "", "in", 0, records(nobody, 0, "r"))))
	w.want("Produce", code, 0)
	consumer := func() *kafka.Consumer {
		c, err := kafka.NewConsumer(rdConfig(addr, kafka.ConfigMap{"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": false}))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Subscribe("in", nil); err != nil {
			t.Fatal(err)
		}
		rdPoll(t, c, 1)
		return c
	}
	c := consumer()
	meta, err := c.GetConsumerGroupMetadata()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	defer consumer().Close() // the group lives, with another member
	p := started(t, addr, "etl-1", nil)
	p.ok(p.BeginTransaction())
	p.ok(p.send("out", 0, "output"))
	e := rdError(t, p.SendOffsetsToTransaction(limited(t), []kafka.TopicPartition{{Topic: new("in"), Partition: 0, Offset: 1}}, meta))
	if !e.TxnRequiresAbort() || e.IsFatal() {
		t.Errorf("offsets of a member that left: %v (abort %v, fatal %v)", e, e.TxnRequiresAbort(), e.IsFatal())
	}
	if e := rdError(t, p.CommitTransaction(limited(t))); !e.TxnRequiresAbort() {
		t.Errorf("commit: %v", e)
	}
	p.ok(p.AbortTransaction(limited(t)))
	wantValues(t, committedIn(t, addr, "out", 0))
	if at, code := w.fetchOffset("g", "in", 0, true); at != -1 || code != 0 {
		t.Errorf("the group stands at %d, code %d", at, code)
	}
}

// "isolation_level defaults to read_committed, so a consumer sees only
// committed transactions' records."
func TestPyrulaReadsCommittedByDefault(t *testing.T) {
	addr, _ := pyrulaBroker(t)
	p := started(t, addr, "etl-1", nil)
	for i, commit := range []bool{false, true, false, true} {
		p.ok(p.BeginTransaction())
		p.ok(p.send("out", 0, fmt.Sprint(i)))
		if commit {
			p.ok(p.CommitTransaction(limited(t)))
		} else {
			p.ok(p.AbortTransaction(limited(t)))
		}
	}
	c, err := kafka.NewConsumer(rdConfig(addr, kafka.ConfigMap{"group.id": "g", "auto.offset.reset": "earliest"}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Subscribe("out", nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rdPoll(t, c, 2) {
		got = append(got, string(r.Value))
	}
	wantValues(t, got, "1", "3")
}
