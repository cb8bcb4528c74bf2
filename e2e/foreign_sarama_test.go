package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct{}

func (saramaClient) Name() string { return "Sarama" }

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.MaxMessageBytes = 8 << 20
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	return c
}

func (saramaClient) CreateTopic(t *testing.T, addr, topic string, partitions int32) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{addr}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
		t.Fatal(err)
	}
}

func (saramaClient) Produce(t *testing.T, addr, topic, codec string, records []Record) {
	t.Helper()
	c := saramaConfig()
	c.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[codec]
	p, err := sarama.NewSyncProducer([]string{addr}, c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var out []*sarama.ProducerMessage
	for _, r := range records {
		m := &sarama.ProducerMessage{Topic: topic, Partition: r.Partition, Timestamp: r.Time}
		if r.Key != nil {
			m.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			m.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		out = append(out, m)
	}
	if err := p.SendMessages(out); err != nil {
		t.Fatal(err)
	}
}

func saramaRecord(m *sarama.ConsumerMessage) Record {
	r := Record{Partition: m.Partition, Offset: m.Offset, Time: m.Timestamp, Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, Header{string(h.Key), h.Value})
	}
	return r
}

func (saramaClient) From(t *testing.T, addr, topic string, partition int32, offset int64, n int) []Record {
	t.Helper()
	c, err := sarama.NewConsumer([]string{addr}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pc, err := c.ConsumePartition(topic, partition, offset)
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	return saramaTake(t, pc.Messages(), n)
}

func saramaTake(t *testing.T, ch <-chan *sarama.ConsumerMessage, n int) []Record {
	t.Helper()
	limit := time.After(clientLimit)
	var out []Record
	for len(out) < n {
		select {
		case m := <-ch:
			out = append(out, saramaRecord(m))
		case <-limit:
			t.Fatalf("got %d of %d records in %s", len(out), n, clientLimit)
		}
	}
	return out
}

func (s saramaClient) FromTime(t *testing.T, addr, topic string, partition int32, at time.Time, n int) []Record {
	t.Helper()
	cl, err := sarama.NewClient([]string{addr}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	offset, err := cl.GetOffset(topic, partition, at.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	return s.From(t, addr, topic, partition, offset, n)
}

type saramaHandler struct{ records chan Record }

func (saramaHandler) Setup(sarama.ConsumerGroupSession) error { return nil }
func (saramaHandler) Cleanup(s sarama.ConsumerGroupSession) error {
	s.Commit()
	return nil
}
func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for m := range c.Messages() {
		select {
		case h.records <- saramaRecord(m):
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			return nil
		}
	}
	return nil
}

func (saramaClient) Group(t *testing.T, addr, topic, group string, n int) []Record {
	t.Helper()
	g, err := sarama.NewConsumerGroup([]string{addr}, group, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	h := saramaHandler{records: make(chan Record)}
	ctx, cancel := context.WithCancel(limited(t))
	done := make(chan error, 1)
	go func() { // ends when ctx is cancelled
		var err error
		for err == nil && ctx.Err() == nil {
			err = g.Consume(ctx, []string{topic}, h)
		}
		done <- err
	}()
	var out []Record
	for len(out) < n {
		select {
		case r := <-h.records:
			out = append(out, r)
		case err := <-done:
			cancel()
			t.Fatalf("got %d of %d records: %v", len(out), n, err)
		}
	}
	cancel()
	<-done
	g.Close()
	return out
}
