package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	segmentio "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// member is one running consumer of a group, whatever its library.
type member struct {
	assigned func() []int32 // partitions it holds now
	leave    func()         // orderly, with LeaveGroup where the member is dynamic
	lost     func() int     // how many partitions were ever taken away from it
}

type groupOptions struct {
	topic, group, instance string // instance != "": static membership
	cooperative            bool
}

type joiner struct {
	name        string
	cooperative bool
	static      bool
	join        func(t *testing.T, addr string, o groupOptions) *member
}

var joiners = []joiner{
	{"franz-go", true, true, joinFranz},
	{"librdkafka", true, true, joinRdkafka},
	{"Sarama", false, true, joinSarama},
	{"segmentio", false, false, joinSegmentio},
}

// holdings is what a member's callbacks report.
type holdings struct {
	mu   sync.Mutex
	held map[int32]bool
	lost int
}

func (h *holdings) add(ps ...int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range ps {
		h.held[p] = true
	}
}

func (h *holdings) remove(ps ...int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range ps {
		delete(h.held, p)
		h.lost++
	}
}

func (h *holdings) list() []int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []int32
	for p := range h.held {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func (h *holdings) losses() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

func joinFranz(t *testing.T, addr string, o groupOptions) *member {
	h := &holdings{held: map[int32]bool{}}
	balancer := kgo.RangeBalancer()
	if o.cooperative {
		balancer = kgo.CooperativeStickyBalancer()
	}
	opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.ConsumerGroup(o.group), kgo.ConsumeTopics(o.topic), kgo.Balancers(balancer), kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { h.add(m[o.topic]...) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { h.remove(m[o.topic]...) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { h.remove(m[o.topic]...) })}
	if o.instance != "" {
		opts = append(opts, kgo.InstanceID(o.instance))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends when the member leaves
		defer close(done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx)
		}
	}()
	leave := sync.OnceFunc(func() { cancel(); <-done; cl.Close() })
	t.Cleanup(leave)
	return &member{assigned: h.list, lost: h.losses, leave: leave}
}

func joinRdkafka(t *testing.T, addr string, o groupOptions) *member {
	conf := kafka.ConfigMap{"group.id": o.group, "session.timeout.ms": 10_000, "heartbeat.interval.ms": 200, "partition.assignment.strategy": "range"}
	if o.cooperative {
		conf["partition.assignment.strategy"] = "cooperative-sticky"
	}
	if o.instance != "" {
		conf["group.instance.id"] = o.instance
	}
	c, err := kafka.NewConsumer(rdConfig(addr, conf))
	if err != nil {
		t.Fatal(err)
	}
	h := &holdings{held: map[int32]bool{}}
	numbers := func(ps []kafka.TopicPartition) (out []int32) {
		for _, p := range ps {
			out = append(out, p.Partition)
		}
		return out
	}
	err = c.SubscribeTopics([]string{o.topic}, func(_ *kafka.Consumer, e kafka.Event) error {
		switch e := e.(type) {
		case kafka.AssignedPartitions:
			h.add(numbers(e.Partitions)...)
		case kafka.RevokedPartitions:
			h.remove(numbers(e.Partitions)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends when the member leaves
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				c.Poll(50)
			}
		}
	}()
	leave := sync.OnceFunc(func() { close(stop); <-done; c.Close() })
	t.Cleanup(leave)
	return &member{assigned: h.list, lost: h.losses, leave: leave}
}

type saramaMember struct {
	topic string
	h     *holdings
}

func (m saramaMember) Setup(s sarama.ConsumerGroupSession) error {
	m.h.add(s.Claims()[m.topic]...)
	return nil
}

func (m saramaMember) Cleanup(s sarama.ConsumerGroupSession) error {
	m.h.remove(s.Claims()[m.topic]...)
	return nil
}

func (m saramaMember) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for range c.Messages() {
	}
	return nil
}

func joinSarama(t *testing.T, addr string, o groupOptions) *member {
	conf := saramaConfig()
	conf.Consumer.Group.Session.Timeout = 10 * time.Second
	conf.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	conf.Consumer.Group.InstanceId = o.instance
	g, err := sarama.NewConsumerGroup([]string{addr}, o.group, conf)
	if err != nil {
		t.Fatal(err)
	}
	h := &holdings{held: map[int32]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends when the member leaves
		defer close(done)
		for ctx.Err() == nil {
			g.Consume(ctx, []string{o.topic}, saramaMember{o.topic, h})
		}
	}()
	leave := sync.OnceFunc(func() { cancel(); <-done; g.Close() })
	t.Cleanup(leave)
	return &member{assigned: h.list, lost: h.losses, leave: leave}
}

func joinSegmentio(t *testing.T, addr string, o groupOptions) *member {
	g, err := segmentio.NewConsumerGroup(segmentio.ConsumerGroupConfig{ID: o.group, Brokers: []string{addr}, Topics: []string{o.topic}, SessionTimeout: 10 * time.Second, HeartbeatInterval: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	h := &holdings{held: map[int32]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends when the member leaves
		defer close(done)
		for ctx.Err() == nil {
			gen, err := g.Next(ctx)
			if errors.Is(err, segmentio.ErrGroupClosed) {
				return
			}
			if err != nil {
				continue
			}
			var mine []int32
			for _, a := range gen.Assignments[o.topic] {
				mine = append(mine, int32(a.ID))
			}
			h.add(mine...)
			gen.Start(func(ctx context.Context) { <-ctx.Done(); h.remove(mine...) })
		}
	}()
	leave := sync.OnceFunc(func() { cancel(); g.Close(); <-done })
	t.Cleanup(leave)
	return &member{assigned: h.list, lost: h.losses, leave: leave}
}

// eventually waits for a condition; what it says when it gives up comes from why.
func eventually(t *testing.T, limit time.Duration, why func() string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(why())
		}
	}
}

// shared waits until the members hold all partitions between them, each one
// exactly once, each member at least one.
func shared(t *testing.T, partitions int, ms ...*member) {
	t.Helper()
	view := func() string {
		s := ""
		for i, m := range ms {
			s += fmt.Sprintf(" member %d: %v", i, m.assigned())
		}
		return "the assignment did not settle:" + s
	}
	eventually(t, clientLimit, view, func() bool {
		seen := map[int32]int{}
		for _, m := range ms {
			held := m.assigned()
			if len(held) == 0 {
				return false
			}
			for _, p := range held {
				seen[p]++
			}
		}
		for _, n := range seen {
			if n != 1 {
				return false
			}
		}
		return len(seen) == partitions
	})
}

func TestThreeMembersShareAndHandOver(t *testing.T) {
	b := Start(t)
	for _, j := range joiners {
		t.Run(j.name, func(t *testing.T) {
			t.Parallel()
			o := groupOptions{topic: topicName("share", j.name), group: topicName("g3", j.name)}
			franz{}.CreateTopic(t, b.Kafka, o.topic, 6)
			first := j.join(t, b.Kafka, o)
			shared(t, 6, first)
			second, third := j.join(t, b.Kafka, o), j.join(t, b.Kafka, o)
			shared(t, 6, first, second, third)
			second.leave()
			shared(t, 6, first, third)
			first.leave()
			shared(t, 6, third)
		})
	}
}

func TestStaticMemberRestartsWithoutARebalance(t *testing.T) {
	b := Start(t)
	for _, j := range joiners {
		if !j.static {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			t.Parallel()
			o := groupOptions{topic: topicName("static", j.name), group: topicName("gs", j.name)}
			franz{}.CreateTopic(t, b.Kafka, o.topic, 4)
			o.instance = "one"
			one := j.join(t, b.Kafka, o)
			o.instance = "two"
			two := j.join(t, b.Kafka, o)
			shared(t, 4, one, two)
			before := groupGeneration(t, b.Kafka, o.group)
			held := two.assigned()
			losses := one.lost()
			two.leave() // a static member does not send LeaveGroup
			two = j.join(t, b.Kafka, o)
			eventually(t, clientLimit, func() string { return fmt.Sprintf("the restarted member holds %v, want %v", two.assigned(), held) },
				func() bool { return slices.Equal(two.assigned(), held) })
			if after := groupGeneration(t, b.Kafka, o.group); after != before {
				t.Errorf("members changed from %v to %v", before, after)
			}
			if one.lost() != losses {
				t.Errorf("the other member lost partitions while one restarted")
			}
		})
	}
}

// groupGeneration describes what a rebalance would change: state and the instance ids with their assignments.
func groupGeneration(t *testing.T, addr, group string) string {
	t.Helper()
	ds, err := kadmClient(t, addr).DescribeGroups(limited(t), group)
	if err != nil {
		t.Fatal(err)
	}
	d := ds[group]
	s := d.State
	for _, m := range d.Members {
		a, _ := m.Assigned.AsConsumer()
		s += fmt.Sprint(" ", *m.InstanceID, a.Topics)
	}
	return s
}

func TestCooperativeMembersKeepWhatTheyHold(t *testing.T) {
	b := Start(t)
	for _, j := range joiners {
		if !j.cooperative {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			t.Parallel()
			o := groupOptions{topic: topicName("coop", j.name), group: topicName("gc", j.name), cooperative: true}
			franz{}.CreateTopic(t, b.Kafka, o.topic, 6)
			first := j.join(t, b.Kafka, o)
			shared(t, 6, first)
			second := j.join(t, b.Kafka, o)
			shared(t, 6, first, second)
			if n := first.lost(); n != 3 {
				t.Errorf("the first member lost %d partitions to the second, want exactly the 3 it handed over", n)
			}
			third := j.join(t, b.Kafka, o)
			shared(t, 6, first, second, third)
			if n := first.lost() + second.lost(); n != 5 {
				t.Errorf("the first two lost %d partitions in all, want 5", n)
			}
		})
	}
}
