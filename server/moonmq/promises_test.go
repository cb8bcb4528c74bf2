package moonmq

import (
	"slices"
	"strings"
	"testing"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
)

func (c *client) produce(topic, value string) wire.ProduceAck {
	c.w.Helper()
	return *c.must(&wire.Produce{Topic: topic, KeyValue: wire.KeyValue{Key: []byte("k"), Value: []byte(value)}}, wire.OpProduceAck).(*wire.ProduceAck)
}

// fetch reads one frame of records; the OK behind it is taken too.
func (c *client) fetch(topic, group string) []wire.Record {
	c.w.Helper()
	b, ok := c.call(&wire.Fetch{Topic: topic, Group: group, MaxRecords: 100, Flags: wire.FetchBatched, Trailers: 2}).(*wire.RecordBatch)
	if !ok {
		return nil
	}
	if _, m, err := c.receive(); err != nil || m.Op() != wire.OpOK {
		c.w.Fatalf("behind the records: %+v, %v", m, err)
	}
	return b.Records
}

// MaxDeliveries of 1 gives a record up at its first NACK, into a topic with the
// configured suffix that did not exist before, with as many partitions as its
// source, in the partition of the same number, for everybody to see.
func TestDeadLetterSettings(t *testing.T) {
	w := newWorld(t, access.Static{}, "moonmq.max.deliveries=1", "moonmq.dlq.suffix=.dead")
	c := w.login()
	c.must(&wire.CreateTopic{Name: "orders", Partitions: 3}, wire.OpOK)
	at := c.produce("orders", "poison")
	topics := func() []string {
		names := c.must(&wire.ListTopics{}, wire.OpTopicList).(*wire.TopicList).Names
		slices.Sort(names)
		return names
	}
	c.fetch("orders", "billing")
	if got := topics(); !slices.Equal(got, []string{"orders"}) {
		t.Errorf("topics before the first death: %v", got)
	}
	ack := c.must(&wire.Nack{Topic: "orders", Partition: at.Partition, Offset: at.Offset, Reason: "no"}, wire.OpNackAck).(*wire.NackAck)
	if *ack != (wire.NackAck{DeadLettered: true, Attempts: 1, Topic: "orders.dead"}) {
		t.Errorf("answer %+v", ack)
	}
	if got := topics(); !slices.Equal(got, []string{"orders", "orders.dead"}) {
		t.Errorf("topics after it: %v", got)
	}
	if dead, _ := w.Catalog().Topic("orders.dead"); dead.Partitions != 3 {
		t.Errorf("%d partitions", dead.Partitions)
	}
	got := w.login().fetch("orders.dead", "inspector")
	if len(got) != 1 || got[0].Partition != at.Partition || string(got[0].Key) != "k" {
		t.Fatalf("dead records %+v", got)
	}
	e, err := wire.DecodeEnvelope(got[0].Value)
	if err != nil || e.Topic != "orders" || e.Partition != at.Partition || e.Offset != at.Offset || e.Timestamp == 0 ||
		e.Group != "billing" || e.Attempts != 1 || e.Reason != "no" || string(e.Value) != "poison" {
		t.Errorf("envelope %+v, %v", e, err)
	}
}

// Attempts are counted for each group, topic, partition and offset alone.
func TestAttemptsAreCountedApart(t *testing.T) {
	w := newWorld(t, access.Static{})
	side := w.login()
	for _, topic := range []string{"a", "b"} {
		side.must(&wire.CreateTopic{Name: topic, Partitions: 1}, wire.OpOK)
		side.produce(topic, "0")
		side.produce(topic, "1")
	}
	for _, group := range []string{"g", "h"} {
		for _, topic := range []string{"a", "b"} {
			c := w.login()
			c.fetch(topic, group)
			for _, offset := range []uint64{1, 0} {
				for attempt := uint16(1); attempt <= 3; attempt++ {
					ack := c.must(&wire.Nack{Topic: topic, Partition: 1, Offset: offset}, wire.OpNackAck).(*wire.NackAck)
					if ack.Attempts != attempt || ack.DeadLettered != (attempt == 3) {
						t.Errorf("%s, %s, offset %d, attempt %d: %+v", group, topic, offset, attempt, ack)
					}
				}
			}
		}
	}
}

// A subscriber that asks for committed data gets a transaction's records when it
// has committed; one that does not ask gets them at once.
func TestSubscribersAndTransactions(t *testing.T) {
	w := newWorld(t, access.Static{})
	c := w.login()
	c.must(&wire.CreateTopic{Name: "t", Partitions: 1}, wire.OpOK)
	subscribe := func(group string, isolation wire.Isolation, trailers wire.Trailers) *client {
		s := w.login()
		s.must(&wire.Subscribe{Topic: "t", Group: group, Isolation: isolation, Trailers: trailers}, wire.OpOK)
		return s
	}
	old, committed := subscribe("old", 0, 0), subscribe("committed", 1, 1)
	expect := func(s *client, value string) {
		t.Helper()
		_, m, err := s.receive()
		if r, ok := m.(*wire.Record); err != nil || !ok || string(r.Value) != value {
			t.Fatalf("delivered %+v, %v; want %q", m, err, value)
		}
	}
	id := c.must(&wire.InitProducerID{Name: "writer", Payload: true}, wire.OpProducerID).(*wire.ProducerID)
	put := func(seq uint32, value string) {
		t.Helper()
		c.must(&wire.ProduceIdempotent{PID: id.PID, Epoch: id.Epoch, Seq: seq, Topic: "t",
			KeyValue: wire.KeyValue{Value: []byte(value)}}, wire.OpProduceAck)
	}
	c.must(&wire.BeginTxn{}, wire.OpOK)
	put(0, "aborted")
	expect(old, "aborted")
	c.must(&wire.EndTxn{}, wire.OpOK)
	c.must(&wire.BeginTxn{}, wire.OpOK)
	put(1, "first")
	put(2, "second")
	expect(old, "first")
	c.must(&wire.EndTxn{Commit: true}, wire.OpOK)
	expect(old, "second")
	expect(committed, "first")
	expect(committed, "second")
}

// A producer without a name lives as long as its connection: every session has an
// id of its own, a retry on another connection is a new record, there are no
// transactions, and what it wrote is visible at once.
func TestProducersWithoutAName(t *testing.T) {
	w := newWorld(t, access.Static{})
	a, b := w.login(), w.login()
	a.must(&wire.CreateTopic{Name: "t", Partitions: 1}, wire.OpOK)
	send := func(c *client, id *wire.ProducerID, seq uint32, want wire.Op) wire.Message {
		t.Helper()
		return c.must(&wire.ProduceIdempotent{PID: id.PID, Epoch: id.Epoch, Seq: seq, Topic: "t",
			KeyValue: wire.KeyValue{Value: []byte("v")}}, want)
	}
	one := a.must(&wire.InitProducerID{}, wire.OpProducerID).(*wire.ProducerID)
	two := b.must(&wire.InitProducerID{Payload: true}, wire.OpProducerID).(*wire.ProducerID)
	if one.PID == two.PID || one.Epoch != 0 || two.Epoch != 0 {
		t.Errorf("ids %+v and %+v", one, two)
	}
	first := *send(a, one, 0, wire.OpProduceAck).(*wire.ProduceAck)
	if again := *send(a, one, 0, wire.OpProduceAck).(*wire.ProduceAck); again != first {
		t.Errorf("retry %+v, original %+v", again, first)
	}
	if other := *send(b, two, 0, wire.OpProduceAck).(*wire.ProduceAck); other.Offset != first.Offset+1 {
		t.Errorf("the other connection's record is at %d", other.Offset)
	}
	if e := send(a, one, 2, wire.OpError).(*wire.Error); e.Code != wire.OutOfOrderSequence {
		t.Errorf("a gap: %+v", e)
	}
	if e := a.must(&wire.BeginTxn{}, wire.OpError).(*wire.Error); e.Code != wire.InvalidTxnState {
		t.Errorf("begin: %+v", e)
	}
	three := a.must(&wire.InitProducerID{}, wire.OpProducerID).(*wire.ProducerID)
	if three.PID == one.PID || three.PID == two.PID {
		t.Errorf("pid %d was given before", three.PID)
	}
	if got := w.login().fetch("t", "g"); len(got) != 2 {
		t.Errorf("%d records", len(got))
	}
}

// A client that asks again and again and reads nothing is hung up on, however much it
// asks at once. One that has all of an answer may ask for the next, also before the
// broker's write returns: what is on its way does not wait.
func TestWhatWaitsForAClientIsBounded(t *testing.T) {
	w := newWorld(t, access.Static{}, "moonmq.max.pending.bytes=1048576")
	c := w.login()
	c.must(&wire.CreateTopic{Name: "t", Partitions: 1}, wire.OpOK)
	const requests = 8
	value := strings.Repeat("v", wire.MaxString)
	for range requests * 16 {
		c.produce("t", value)
	}
	for n := range requests {
		if got := c.fetch("t", "one by one"); len(got) < 12 {
			t.Fatalf("%d records in answer %d", len(got), n)
		}
	}
	c = w.login()
	var asked []byte
	for range requests {
		asked = wire.Append(asked, wire.CorrelationID{}, &wire.Fetch{Topic: "t", Group: "at once", MaxRecords: 100, Flags: wire.FetchBatched, Trailers: 2})
	}
	if _, err := c.Write(asked); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		return slices.ContainsFunc(w.front.sessions(), func(s *session) bool { return s.ending.Load() })
	})
	answers := 0
	for {
		_, m, err := c.receive()
		if err != nil {
			break
		}
		if m.Op() == wire.OpOK {
			answers++
		}
	}
	if answers > 3 { // one on its way, one that waits, and the one too many
		t.Errorf("%d answers waited for one client", answers)
	}

	s := &session{front: w.front}
	f := &frames{delivery: &delivery{bytes: 60_000}}
	reply := f.reply(s, wire.CorrelationID{})
	if n := s.pending.Load(); n != 60_000 {
		t.Errorf("%d bytes wait before their turn", n)
	}
	if _, err := reply(t.Context()); err != nil || s.pending.Load() != 0 {
		t.Errorf("%d bytes wait while they are written, %v", s.pending.Load(), err)
	}
}
