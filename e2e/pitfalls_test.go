package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// Where small brokers go wrong, as far as no test nearer to the code shows it;
// docs/compatibility.md has the whole list.

func (w *raw) join(group string, instance *string, member string) *kmsg.JoinGroupResponse {
	w.t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = 9
	req.Group, req.MemberID, req.InstanceID = group, member, instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 30_000, 30_000, "consumer"
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	return w.do(req).(*kmsg.JoinGroupResponse)
}

// Whoever was in the middle of something when the broker was killed goes on: a
// static member without a rebalance, a group with its offsets, a producer in its
// transaction.
func TestAKillInterruptsNoMemberAndNoTransaction(t *testing.T) {
	b, w := txnBroker(t, "group.initial.rebalance.delay.ms=0")
	b.NeedsOwnProcess()
	w.newTopic("t", 1)
	instance := "sam"
	joined := w.join("workers", &instance, "")
	w.want("JoinGroup", joined.ErrorCode, 0)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version = 5
	sync.Group, sync.MemberID, sync.InstanceID, sync.Generation = "workers", joined.MemberID, &instance, joined.Generation
	sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte("all")}}
	w.want("SyncGroup", w.do(sync).(*kmsg.SyncGroupResponse).ErrorCode, 0)
	p, code := w.tryInit(5, "pay", time.Minute, nobody)
	w.want("InitProducerId", code, 0)
	_, code = w.produce(12, "pay", p, 0, "t", 0, "before")
	w.want("Produce", code, 0)
	w.want("TxnOffsetCommit", w.commitOffset(5, "pay", p, "readers", "t", 0, 7), 0)

	b.Kill()
	b.Restart()
	w = w.reconnected(b)

	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version = 4
	beat.Group, beat.MemberID, beat.InstanceID, beat.Generation = "workers", joined.MemberID, &instance, joined.Generation
	w.want("Heartbeat", w.do(beat).(*kmsg.HeartbeatResponse).ErrorCode, 0)
	if again := w.join("workers", &instance, ""); again.ErrorCode != 0 || again.Generation != joined.Generation {
		t.Errorf("the static member came back to generation %d (code %d), was in %d", again.Generation, again.ErrorCode, joined.Generation)
	}
	_, code = w.produce(12, "pay", p, 1, "t", 0, "after")
	w.want("Produce in the same transaction", code, 0)
	if got := w.fetch(12, "t", 0, 0, true).committedValues(); len(got) > 0 {
		t.Errorf("visible before the end: %v", got)
	}
	_, code = w.end(5, "pay", p, true)
	w.want("EndTxn", code, 0)
	if got := w.fetch(12, "t", 0, 0, true).committedValues(); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("visible after the end: %v", got)
	}
	if offset, code := w.fetchOffset("readers", "t", 0, true); offset != 7 || code != 0 {
		t.Errorf("the group's offset is %d (code %d), want the transaction's 7", offset, code)
	}
}

// reconnected is a new connection to a broker that was started again.
func (w *raw) reconnected(b *Broker) *raw {
	w.t.Helper()
	other := rawConn(w.t, b.Kafka)
	other.ids = w.ids
	return other
}

// keyed is a batch of one record with a key.
func keyed(key, value string) []byte {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Add(batch.NewRecord{Timestamp: model.Timestamp(time.Now().UnixMilli()), Key: []byte(key), Value: []byte(value)})
	view, err := b.Build()
	if err != nil {
		panic(err) // one small record
	}
	return view.Bytes()
}

// Compaction runs by itself, soon after the lag a topic allows.
func TestCompactionRunsWhenATopicSaysSo(t *testing.T) {
	_, w := txnBroker(t, "log.cleaner.backoff.ms=50")
	w.newTopic("t", 1)
	for name, value := range map[string]string{"cleanup.policy": "compact", "segment.ms": "500", "max.compaction.lag.ms": "100"} {
		w.setTopicConfig("t", name, value)
	}
	write := func(value string) {
		t.Helper()
		_, code := produced(w.do(w.produceRequest(9, "", "t", 0, keyed("k", value))))
		w.want("Produce", code, 0)
	}
	write("old")
	write("new")
	var values []string
	eventually(t, clientLimit, func() string { return fmt.Sprintf("still there: %v", values) }, func() bool {
		write("newest") // a segment is closed by the append after its time
		values = w.fetch(12, "t", 0, 0, false).values()
		return !slices.Contains(values, "old") && !slices.Contains(values, "new")
	})
}

// A cooperative consumer that unsubscribes hears of it once.
func TestCooperativeUnsubscribeRevokesOnce(t *testing.T) {
	b := Start(t)
	topic := topicName("unsubscribe")
	rdkafka{}.CreateTopic(t, b.Kafka, topic, 4)
	c, err := kafka.NewConsumer(rdConfig(b.Kafka, kafka.ConfigMap{"group.id": topicName("gu"), "partition.assignment.strategy": "cooperative-sticky"}))
	if err != nil {
		t.Fatal(err)
	}
	assigned, revocations := 0, []int{}
	rebalanced := func(_ *kafka.Consumer, e kafka.Event) error {
		switch e := e.(type) {
		case kafka.AssignedPartitions:
			assigned += len(e.Partitions)
		case kafka.RevokedPartitions:
			revocations = append(revocations, len(e.Partitions))
		}
		return nil
	}
	if err := c.Subscribe(topic, rebalanced); err != nil {
		t.Fatal(err)
	}
	eventually(t, clientLimit, func() string { return fmt.Sprintf("%d partitions assigned", assigned) }, func() bool {
		c.Poll(50)
		return assigned == 4
	})
	if err := c.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	eventually(t, clientLimit, func() string { return "nothing was revoked" }, func() bool {
		c.Poll(50)
		return len(revocations) > 0
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(revocations, []int{4}) {
		t.Errorf("revoked %v partitions, want all 4 at once", revocations)
	}
}
