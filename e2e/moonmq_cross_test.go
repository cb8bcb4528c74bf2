package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

func kafkaClient(t *testing.T, b *Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Kafka)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// consume polls until n records came, or fails.
func consume(t *testing.T, c *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	var all []*kgo.Record
	for len(all) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", len(all), n, err)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}

// A record of a Kafka client, compressed and inside a transaction, is given back
// by a MoonMQ client until it is dead; a Kafka consumer drains the dead-letter
// topic and sees where it came from; a MoonMQ client sees the envelope.
func TestKafkaRecordDiesInMoonMQ(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "orders", 1)
	producer := kafkaClient(t, b, kgo.TransactionalID("tx"), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.DefaultProduceTopic("orders"))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i, value := range []string{"fine", "poison", "behind"} {
		r := &kgo.Record{Key: []byte("key"), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}}}
		if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if got := side.fetch("orders", "early", 1); len(got) != 0 {
		t.Fatalf("%d records of an open transaction", len(got))
	}
	if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}

	c := moon(t, b)
	for attempt := 1; attempt <= 3; attempt++ {
		got := c.fetch("orders", "billing", 1)
		at := slices.IndexFunc(got, func(r wire.Record) bool { return string(r.Value) == "poison" })
		if at < 0 {
			t.Fatalf("attempt %d: not delivered again: %v", attempt, got)
		}
		ack := c.must(&wire.Nack{Topic: "orders", Partition: 1, Offset: got[at].Offset, Reason: "bad json"}, wire.OpNackAck).(*wire.NackAck)
		if ack.DeadLettered != (attempt == 3) || int(ack.Attempts) != attempt {
			t.Fatalf("attempt %d: %+v", attempt, ack)
		}
	}
	drain := kafkaClient(t, b, kgo.ConsumeTopics("orders.dlq"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	dead := consume(t, drain, 1)[0]
	if string(dead.Key) != "key" || string(dead.Value) != "poison" {
		t.Errorf("dead record %q = %q", dead.Key, dead.Value)
	}
	headers := map[string]string{}
	for _, h := range dead.Headers {
		headers[h.Key] = string(h.Value)
	}
	for name, want := range map[string]string{
		"n": "1", "__dlq.errors.topic": "orders", "__dlq.errors.partition": "0", "__dlq.errors.offset": "1",
		"__dlq.errors.group": "billing", "__dlq.errors.delivery.count": "3", "__dlq.errors.message": "bad json",
	} {
		if headers[name] != want {
			t.Errorf("header %s is %q, want %q", name, headers[name], want)
		}
	}
	shown := moon(t, b).fetch("orders.dlq", "inspector", 0)
	envelope, err := wire.DecodeEnvelope(shown[0].Value)
	if err != nil || envelope.Topic != "orders" || envelope.Partition != 1 || envelope.Offset != 1 || string(envelope.Value) != "poison" {
		t.Errorf("envelope %+v, %v", envelope, err)
	}
	if rest := moon(t, b).fetch("orders", "billing", 1); len(rest) != 1 || string(rest[0].Value) != "behind" {
		t.Errorf("the group goes on with %v", rest)
	}
}

// A MoonMQ transaction is invisible to a read_committed Kafka consumer until END,
// and never visible when it aborts; input offsets come with it.
func TestMoonMQTransactionSeenFromKafka(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "out", 1)
	createMoon(side, "in", 1)
	admin := kadm.NewClient(kafkaClient(t, b))
	p := moon(t, b).producer("writer")
	stable := func() int64 {
		t.Helper()
		offsets, err := admin.ListCommittedOffsets(t.Context(), "out")
		if err != nil {
			t.Fatal(err)
		}
		o, _ := offsets.Lookup("out", 0)
		return o.Offset
	}
	inputOffset := func() int64 {
		offsets, err := admin.FetchOffsets(t.Context(), "g")
		if err != nil {
			return -1
		}
		o, ok := offsets.Lookup("in", 0)
		if !ok {
			return -1
		}
		return o.At
	}

	p.must(&wire.BeginTxn{}, wire.OpOK)
	p.put("out", "k", "aborted")
	p.must(&wire.TxnOffsetCommit{Group: "g", Offsets: []wire.TxnOffset{{Topic: "in", Partition: 1, Offset: 3}}}, wire.OpOK)
	if got := stable(); got != 0 {
		t.Errorf("last stable offset %d inside a transaction", got)
	}
	p.must(&wire.EndTxn{}, wire.OpOK)
	if got := inputOffset(); got != -1 {
		t.Errorf("an aborted input offset is %d", got)
	}
	p.must(&wire.BeginTxn{}, wire.OpOK)
	p.put("out", "k", "committed")
	p.must(&wire.TxnOffsetCommit{Group: "g", Offsets: []wire.TxnOffset{{Topic: "in", Partition: 1, Offset: 5}}}, wire.OpOK)
	p.must(&wire.EndTxn{Commit: true}, wire.OpOK)
	if got := inputOffset(); got != 5 {
		t.Errorf("the committed input offset is %d", got)
	}
	for _, tt := range []struct {
		level kgo.IsolationLevel
		want  []string
	}{{kgo.ReadCommitted(), []string{"committed"}}, {kgo.ReadUncommitted(), []string{"aborted", "committed"}}} {
		c := kafkaClient(t, b, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(tt.level), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		var got []string
		for _, r := range consume(t, c, len(tt.want)) {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("a Kafka consumer reads %q, want %q", got, tt.want)
		}
	}
}

// One name, two protocols: whoever initialises it last owns it.
func TestOneNameFencesBothWays(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "out", 1)

	p := moon(t, b).producer("shared")
	p.must(&wire.BeginTxn{}, wire.OpOK)
	p.put("out", "k", "moon, fenced")
	k := kafkaClient(t, b, kgo.TransactionalID("shared"), kgo.DefaultProduceTopic("out"))
	inKafkaTransaction := func(value string) error {
		if err := k.BeginTransaction(); err != nil {
			return err
		}
		if err := k.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
			return err
		}
		return k.EndTransaction(t.Context(), kgo.TryCommit)
	}
	if err := inKafkaTransaction("kafka"); err != nil {
		t.Fatal(err)
	}
	e := p.refused(&wire.EndTxn{Commit: true}, wire.ProducerFenced)
	if !strings.HasPrefix(e.Message, "producer fenced: epoch 0 != current ") {
		t.Errorf("text %q", e.Message)
	}
	p.refused(p.record("out", "k", "too late", 1), wire.ProducerFenced)
	p.refused(&wire.BeginTxn{}, wire.ProducerFenced)

	again := moon(t, b).producer("shared")
	again.must(&wire.BeginTxn{}, wire.OpOK)
	again.put("out", "k", "moon")
	if err := inKafkaTransaction("kafka, fenced"); !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("the fenced Kafka producer: %v", err)
	}
	again.must(&wire.EndTxn{Commit: true}, wire.OpOK)
	var got []string
	for _, r := range side.fetch("out", "reader", 1) {
		got = append(got, string(r.Value))
	}
	if want := []string{"kafka", "moon"}; !slices.Equal(got, want) {
		t.Errorf("committed %q, want %q", got, want)
	}
}

// INIT takes an open transaction of an older session away, durably, and BEGIN
// succeeds (decision 1).
func TestAnInitTakesAMoonMQTransactionAway(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "out", 1)
	old := moon(t, b).producer("writer")
	old.must(&wire.BeginTxn{}, wire.OpOK)
	old.put("out", "k", "old")
	young := moon(t, b).producer("writer")
	young.must(&wire.BeginTxn{}, wire.OpOK)
	old.refused(&wire.EndTxn{Commit: true}, wire.ProducerFenced)
	young.put("out", "k", "young")
	young.must(&wire.EndTxn{Commit: true}, wire.OpOK)
	if got := side.fetch("out", "reader", 1); len(got) != 1 || string(got[0].Value) != "young" {
		t.Errorf("committed %v", got)
	}
}

// A transaction that takes too long is aborted, the session told once that it was,
// then that it is fenced (decision 10).
func TestLostMoonMQTransactions(t *testing.T) {
	b := Start(t, "--set", "moonmq.transaction.timeout.ms=300", "--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=100")
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "out", 1)
	slow := func() *moonProducer {
		for range 20 { // a machine that stalls for so long has to try again
			p := moon(t, b).producer("writer")
			p.must(&wire.BeginTxn{}, wire.OpOK)
			if reply := p.call(p.record("out", "k", "slow", 0)); reply.Op() == wire.OpProduceAck {
				return p
			}
		}
		t.Fatal("twenty transactions timed out before their first record")
		return nil
	}()
	stable := func() bool {
		o := side.must(&wire.ListOffsets{Topic: "out"}, wire.OpOffsets).(*wire.Offsets).Bounds[0]
		return o.LSO == o.Latest
	}
	for until := time.Now().Add(answerLimit); !stable(); {
		if time.Now().After(until) {
			t.Fatal("the transaction is not aborted")
		}
	}
	slow.refused(&wire.EndTxn{Commit: true}, wire.TransactionTimedOut)
	slow.refused(&wire.BeginTxn{}, wire.ProducerFenced)
	if got := side.fetch("out", "reader", 1); len(got) != 0 {
		t.Errorf("committed %v", got)
	}
}

// Kafka's tools see and move a MoonMQ group, and its offsets are Kafka's.
func TestKafkaToolsOnAMoonMQGroup(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	c := moon(t, b)
	createMoon(c, "t", 1)
	for i := range 5 {
		c.produce("t", "k", fmt.Sprint(i))
	}
	c.must(&wire.JoinGroup{Group: "g", Topics: []string{"t"}}, wire.OpGroupAssignment)
	if got := c.fetchWith(&wire.Fetch{Topic: "t", Group: "g", MaxRecords: 2, Flags: wire.FetchBatched, Trailers: 2}); len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	admin := kadm.NewClient(kafkaClient(t, b))
	groups, err := admin.DescribeGroups(t.Context(), "g")
	if err != nil || groups["g"].State != "Stable" || len(groups["g"].Members) != 1 {
		t.Errorf("described as %+v, %v", groups["g"], err)
	}
	lags, err := admin.Lag(t.Context(), "g")
	if err != nil || lags["g"].Lag.Total() != 3 {
		t.Errorf("lag %d, want 3 (%v)", lags["g"].Lag.Total(), err)
	}
	c.must(&wire.LeaveGroup{Group: "g"}, wire.OpOK)
	reset := kadm.Offsets{}
	reset.Add(kadm.Offset{Topic: "t", Partition: 0, At: 1, LeaderEpoch: -1})
	if err := admin.CommitAllOffsets(t.Context(), "g", reset); err != nil {
		t.Fatal(err)
	}
	if got := moon(t, b).fetch("t", "g", 0); len(got) != 4 || got[0].Offset != 1 {
		t.Errorf("after the reset: %v", got)
	}
	if _, err := admin.DeleteGroup(t.Context(), "g"); err != nil {
		t.Error(err)
	}
	c.refused(&wire.DescribeGroup{Group: "g"}, wire.GroupMissing)

	// A group of Kafka consumers is theirs while it has members.
	k := kafkaClient(t, b, kgo.ConsumerGroup("theirs"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consume(t, k, 5)
	c.refused(&wire.JoinGroup{Group: "theirs", Topics: []string{"t"}}, wire.GroupConflict)
}

// A record no MoonMQ client could read is dead-lettered as a pointer; its
// neighbours arrive and the group passes it (decision 13).
func TestOversizeRecords(t *testing.T) {
	for _, mode := range []string{"dead-letter", "skip"} {
		t.Run(mode, func(t *testing.T) {
			b := Start(t, "--set", "moonmq.oversize="+mode)
			b.NeedsOwnProcess()
			c := moon(t, b)
			createMoon(c, "t", 1)
			k := kafkaClient(t, b, kgo.DefaultProduceTopic("t"))
			for _, value := range []string{"before", strings.Repeat("x", 70_000), "behind", strings.Repeat("y", 65_536)} {
				if err := k.ProduceSync(t.Context(), kgo.KeyStringRecord("k", value)).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			var got []wire.Record
			for until := time.Now().Add(answerLimit); len(got) < 3; {
				got = append(got, c.fetch("t", "g", 0)...)
				if time.Now().After(until) {
					t.Fatalf("%d records", len(got))
				}
			}
			if string(got[0].Value) != "before" || string(got[1].Value) != "behind" || len(got[2].Value) != 65_536 {
				t.Errorf("delivered %.20q, %.20q, %d bytes", got[0].Value, got[1].Value, len(got[2].Value))
			}
			d := c.must(&wire.DescribeGroup{Group: "g"}, wire.OpGroupDescription).(*wire.GroupDescription)
			if d.Offsets[0].Offset != 4 {
				t.Errorf("the group is at %d", d.Offsets[0].Offset)
			}
			if mode == "skip" {
				c.refused(&wire.DescribeTopic{Name: "t.dlq"}, wire.TopicMissing)
				return
			}
			drain := kafkaClient(t, b, kgo.ConsumeTopics("t.dlq"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			dead := consume(t, drain, 1)[0]
			at := slices.IndexFunc(dead.Headers, func(h kgo.RecordHeader) bool { return h.Key == "__dlq.errors.offset" })
			if dead.Value != nil || string(dead.Key) != "k" || string(dead.Headers[at].Value) != "1" {
				t.Errorf("pointer %q = %q, %v", dead.Key, dead.Value, dead.Headers)
			}
		})
	}
}

// Headers survive on the log whatever a client can see, and are shown to one that
// asks (decision 17).
func TestHeadersAcrossProtocols(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	c := moon(t, b)
	createMoon(c, "t", 1)
	headers := wire.Headers{{Name: "trace", Value: []byte("7")}, {Name: "", Value: []byte{}}}
	c.must(&wire.Produce{Topic: "t", KeyValue: wire.KeyValue{Value: []byte("v")}, Headers: headers}, wire.OpProduceAck)
	k := kafkaClient(t, b, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if r := consume(t, k, 1)[0]; len(r.Headers) != 2 || r.Headers[0].Key != "trace" || string(r.Headers[0].Value) != "7" || r.Key != nil {
		t.Errorf("a Kafka client reads %+v", r)
	}
	if got := moon(t, b).fetch("t", "g1", 0); got[0].WithHeaders {
		t.Error("a client that did not ask is sent headers")
	}
	got := moon(t, b).fetchWith(&wire.Fetch{Topic: "t", Group: "g2", MaxRecords: 9, Flags: wire.FetchBatched | wire.FetchHeaders, Trailers: 2})
	if len(got[0].Headers) != 2 || got[0].Headers[0].Name != "trace" {
		t.Errorf("a client that asks reads %+v", got[0])
	}
}
