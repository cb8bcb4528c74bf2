package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 20 * time.Second // for a client to get somewhere on a loaded machine

// consume polls until n records have come.
func consume(t *testing.T, c *kgo.Client, n int) (records []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(records) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(records), n, err)
		}
		fetches.EachError(func(topic string, partition int32, err error) { t.Errorf("%s-%d: %v", topic, partition, err) })
		records = append(records, fetches.Records()...)
	}
	return records
}

func produceAll(t *testing.T, c *kgo.Client, topic string, n int) {
	t.Helper()
	for i := range n {
		c.Produce(t.Context(), &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "value %d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := c.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAClientProducesAndConsumesInAGroupOverARestart(t *testing.T) {
	b := startBroker(t)
	producer := b.client(kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("orders"))
	produceAll(t, producer, "orders", 1000)

	group := []kgo.Opt{kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	first := b.client(group...)
	seen := map[string]bool{}
	for _, r := range consume(t, first, 1000) {
		seen[string(r.Key)] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d different records, want 1000", len(seen))
	}
	if err := first.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()

	b.restart()
	produceAll(t, producer, "orders", 10)
	second := b.client(group...)
	if got := consume(t, second, 10); len(got) != 10 || string(got[0].Value) != "value 0" {
		t.Errorf("after the restart: %d records, the first %q", len(got), got[0].Value)
	}
}

func TestTransactionsAreInvisibleUntilTheyEnd(t *testing.T) {
	b := startBroker(t)
	b.create("orders", 2)
	producer := b.client(kgo.TransactionalID("clerk"), kgo.DefaultProduceTopic("orders"))
	committed := b.client(kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for round, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := producer.ProduceSync(t.Context(), &kgo.Record{Value: fmt.Appendf(nil, "round %d", round)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := producer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	if got := consume(t, committed, 1); len(got) != 1 || string(got[0].Value) != "round 1" {
		t.Errorf("read %q, want only the committed round", got[0].Value)
	}
}
