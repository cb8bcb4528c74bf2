package e2e

import (
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

type rdkafka struct{}

func (rdkafka) Name() string { return "librdkafka" }

func rdConfig(addr string, more kafka.ConfigMap) *kafka.ConfigMap {
	c := kafka.ConfigMap{"bootstrap.servers": addr, "broker.address.family": "v4"}
	for k, v := range more {
		c[k] = v
	}
	return &c
}

func (rdkafka) CreateTopic(t *testing.T, addr, topic string, partitions int32) {
	t.Helper()
	admin, err := kafka.NewAdminClient(rdConfig(addr, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	res, err := admin.CreateTopics(limited(t), []kafka.TopicSpecification{{Topic: topic, NumPartitions: int(partitions), ReplicationFactor: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if code := res[0].Error.Code(); code != kafka.ErrNoError {
		t.Fatalf("create topic: %v", res[0].Error)
	}
}

func (rdkafka) Produce(t *testing.T, addr, topic, codec string, records []Record) {
	t.Helper()
	p, err := kafka.NewProducer(rdConfig(addr, kafka.ConfigMap{"enable.idempotence": true, "compression.type": codec, "message.max.bytes": 8 << 20, "linger.ms": 5}))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	delivered := make(chan kafka.Event, len(records))
	for _, r := range records {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: r.Partition}, Key: r.Key, Value: r.Value, Timestamp: r.Time}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		if err := p.Produce(m, delivered); err != nil {
			t.Fatal(err)
		}
	}
	limit := time.After(clientLimit)
	for range records {
		select {
		case e := <-delivered:
			if m := e.(*kafka.Message); m.TopicPartition.Error != nil {
				t.Fatal(m.TopicPartition.Error)
			}
		case <-limit:
			t.Fatalf("not all of %d records were acknowledged within %s", len(records), clientLimit)
		}
	}
}

func rdPoll(t *testing.T, c *kafka.Consumer, n int) []Record {
	t.Helper()
	limit := time.Now().Add(clientLimit)
	var out []Record
	for len(out) < n {
		if time.Now().After(limit) {
			t.Fatalf("got %d of %d records in %s", len(out), n, clientLimit)
		}
		switch e := c.Poll(100).(type) {
		case *kafka.Message:
			if e.TopicPartition.Error != nil {
				t.Fatal(e.TopicPartition.Error)
			}
			r := Record{Partition: e.TopicPartition.Partition, Offset: int64(e.TopicPartition.Offset), Time: e.Timestamp, Key: e.Key, Value: e.Value}
			for _, h := range e.Headers {
				r.Headers = append(r.Headers, Header{h.Key, h.Value})
			}
			out = append(out, r)
		case kafka.Error:
			if e.IsFatal() {
				t.Fatal(e)
			}
		}
	}
	return out
}

func rdConsumer(t *testing.T, addr, group string) *kafka.Consumer {
	t.Helper()
	c, err := kafka.NewConsumer(rdConfig(addr, kafka.ConfigMap{"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": false, "fetch.wait.max.ms": 100, "fetch.message.max.bytes": 8 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (rdkafka) From(t *testing.T, addr, topic string, partition int32, offset int64, n int) []Record {
	t.Helper()
	c := rdConsumer(t, addr, "unused")
	defer c.Close()
	if err := c.Assign([]kafka.TopicPartition{{Topic: &topic, Partition: partition, Offset: kafka.Offset(offset)}}); err != nil {
		t.Fatal(err)
	}
	return rdPoll(t, c, n)
}

func (r rdkafka) FromTime(t *testing.T, addr, topic string, partition int32, at time.Time, n int) []Record {
	t.Helper()
	c := rdConsumer(t, addr, "unused")
	found, err := c.OffsetsForTimes([]kafka.TopicPartition{{Topic: &topic, Partition: partition, Offset: kafka.Offset(at.UnixMilli())}}, int(clientLimit.Milliseconds()))
	c.Close()
	if err != nil {
		t.Fatal(err)
	}
	return r.From(t, addr, topic, partition, int64(found[0].Offset), n)
}

func (rdkafka) Group(t *testing.T, addr, topic, group string, n int) []Record {
	t.Helper()
	c := rdConsumer(t, addr, group)
	defer c.Close()
	if err := c.SubscribeTopics([]string{topic}, nil); err != nil {
		t.Fatal(err)
	}
	out := rdPoll(t, c, n)
	if _, err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	return out
}
