package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Consume, transform, produce: two instances of an application copy a topic
// exactly once while the broker is killed under them, with franz-go
// (transactions of version 2) and with librdkafka (version 1).

const (
	copyRecords    = 4000
	copyPartitions = 4
	copyKills      = 8
	copyLimit      = 3 * time.Minute
)

// copier copies "in" to "out" as one instance of a group until ctx ends.
type copier func(ctx context.Context, t *testing.T, addr, id string)

func TestExactlyOnceCopyWithFranzGo(t *testing.T)    { copyUnderKills(t, franzCopy) }
func TestExactlyOnceCopyWithLibrdkafka(t *testing.T) { copyUnderKills(t, rdCopy) }

func copyUnderKills(t *testing.T, run copier) {
	b, w := txnBroker(t)
	b.NeedsOwnProcess()
	w.newTopic("in", copyPartitions)
	w.newTopic("out", copyPartitions)
	var want []string
	for p := range int32(copyPartitions) {
		var values []string
		for i := range copyRecords / copyPartitions {
			values = append(values, fmt.Sprintf("%d-%05d", p, i))
		}
		_, code := produced(w.do(w.produceRequest(9, "", "in", p, records(nobody, 0, values...))))
		w.want("fill the input", code, 0)
		want = append(want, values...)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var instances sync.WaitGroup
	for i := range 2 {
		instances.Go(func() { run(ctx, t, b.Kafka, fmt.Sprint("copy-", i)) })
	}
	killer(t, b, copyKills, seedFor(t))
	copied := func() []string {
		var all []string
		for p := range int32(copyPartitions) {
			all = append(all, committedIn(t, b.Kafka, "out", p)...)
		}
		return all
	}
	eventually(t, copyLimit, func() string { return fmt.Sprintf("%d of %d records were copied", len(copied()), len(want)) },
		func() bool { return len(copied()) >= len(want) })
	stop()
	instances.Wait()
	got := copied()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d records were copied, %d of them once; want all of %d, each once", len(got), len(slices.Compact(slices.Clone(got))), len(want))
	}
}

// franzCopy starts a new session whenever the old one cannot go on.
func franzCopy(ctx context.Context, t *testing.T, addr, id string) {
	for ctx.Err() == nil {
		s, err := kgo.NewGroupTransactSession(
			kgo.SeedBrokers(addr), kgo.TransactionalID(id), kgo.ConsumerGroup("copiers"), kgo.ConsumeTopics("in"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxPartitionBytes(4<<10),
			kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(200*time.Millisecond),
		)
		if err != nil {
			t.Errorf("session: %v", err)
			return
		}
		for franzCycle(ctx, s) == nil {
		}
		s.Close()
	}
}

func franzCycle(ctx context.Context, s *kgo.GroupTransactSession) error {
	fetches := s.PollRecords(ctx, 100)
	if err := ctx.Err(); err != nil {
		return err
	}
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := s.Begin(); err != nil {
		return err
	}
	var first kgo.FirstErrPromise
	fetches.EachRecord(func(r *kgo.Record) {
		s.Produce(ctx, &kgo.Record{Topic: "out", Partition: r.Partition, Value: r.Value}, first.Promise())
	})
	_, err := s.End(ctx, kgo.TransactionEndTry(first.Err() == nil))
	return err
}

// rdCopy follows the rules of librdkafka: abort when told to, start over with a
// new producer when the error is fatal.
func rdCopy(ctx context.Context, t *testing.T, addr, id string) {
	c, err := kafka.NewConsumer(rdConfig(addr, kafka.ConfigMap{
		"group.id": "copiers", "auto.offset.reset": "earliest", "enable.auto.commit": false, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200,
	}))
	if err != nil {
		t.Errorf("consumer: %v", err)
		return
	}
	defer c.Close()
	if err := c.Subscribe("in", nil); err != nil {
		t.Errorf("subscribe: %v", err)
		return
	}
	for ctx.Err() == nil {
		p, err := kafka.NewProducer(rdConfig(addr, kafka.ConfigMap{"transactional.id": id}))
		if err != nil {
			t.Errorf("producer: %v", err)
			return
		}
		for err = retried(ctx, p.InitTransactions); err == nil; {
			err = rdCycle(ctx, c, p)
		}
		p.Purge(kafka.PurgeQueue | kafka.PurgeInFlight | kafka.PurgeNonBlocking)
		p.Close()
	}
}

// rdCycle copies a batch. An error says that the producer is of no more use.
func rdCycle(ctx context.Context, c *kafka.Consumer, p *kafka.Producer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	first := map[int32]kafka.TopicPartition{}
	var batch []*kafka.Message
	for len(batch) < 100 {
		m, ok := c.Poll(50).(*kafka.Message)
		if !ok {
			break
		}
		if _, seen := first[m.TopicPartition.Partition]; !seen {
			first[m.TopicPartition.Partition] = m.TopicPartition
		}
		batch = append(batch, m)
	}
	if len(batch) == 0 {
		return nil
	}
	if err := p.BeginTransaction(); err != nil {
		return err
	}
	err := rdTransform(ctx, c, p, batch)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[kafka.Error](err); ok && e.IsFatal() {
		rewind(c, first)
		return err
	}
	if err := retried(ctx, p.AbortTransaction); err != nil {
		rewind(c, first)
		return err
	}
	rewind(c, first)
	return nil
}

func rdTransform(ctx context.Context, c *kafka.Consumer, p *kafka.Producer, batch []*kafka.Message) error {
	out := "out"
	next := map[int32]kafka.Offset{}
	for _, m := range batch {
		at := m.TopicPartition
		err := p.Produce(&kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &out, Partition: at.Partition}, Value: m.Value}, nil)
		if err != nil {
			return err
		}
		next[at.Partition] = at.Offset + 1
	}
	var offsets []kafka.TopicPartition
	for partition, offset := range next {
		offsets = append(offsets, kafka.TopicPartition{Topic: batch[0].TopicPartition.Topic, Partition: partition, Offset: offset})
	}
	meta, err := c.GetConsumerGroupMetadata()
	if err != nil {
		return err
	}
	if err := retried(ctx, func(ctx context.Context) error { return p.SendOffsetsToTransaction(ctx, offsets, meta) }); err != nil {
		return err
	}
	return retried(ctx, p.CommitTransaction)
}

// retried repeats a transactional call while it says that it may be repeated.
func retried(ctx context.Context, call func(context.Context) error) error {
	for {
		limit, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := call(limit)
		cancel()
		if e, ok := errors.AsType[kafka.Error](err); ctx.Err() != nil || !ok || !e.IsRetriable() {
			return errors.Join(err, ctx.Err())
		}
	}
}

// rewind goes back to the first record of a batch on every partition that is
// still ours; after a rebalance the group's offsets decide.
func rewind(c *kafka.Consumer, first map[int32]kafka.TopicPartition) {
	committed, err := c.Assignment()
	if err != nil {
		return
	}
	for _, tp := range committed {
		if at, ok := first[tp.Partition]; ok {
			_ = c.Seek(at, 0) // a partition that was just taken away cannot be sought, and need not
		}
	}
}
