package kafka

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// records builds one batch with the given values.
func records(t testing.TB, o batch.BuilderOptions, values ...string) []byte {
	t.Helper()
	builder := batch.NewBuilder(o)
	for _, v := range values {
		builder.Add(batch.NewRecord{Timestamp: model.Timestamp(time.Now().UnixMilli()), Value: []byte(v)})
	}
	view, err := builder.Build()
	if err != nil {
		t.Fatal(err)
	}
	return view.Bytes()
}

func plain(t testing.TB, values ...string) []byte {
	return records(t, batch.BuilderOptions{}, values...)
}

// produceRequest writes one batch to partition 0 of a topic, by name or by id.
func produceRequest(topic *catalog.Topic, data []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = acksAll
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic.Name, topic.ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = data
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// produceOne sends a request and returns the answer for its first partition.
func produceOne(c *wireClient, version int16, req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return ask[*kmsg.ProduceResponse](c, version, req).Topics[0].Partitions[0]
}

func TestProduceAnswersWithOffsetsInEveryVersion(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	c := b.dial()
	next := int64(0)
	for version := produceFloor; version <= 13; version++ {
		got := produceOne(c, version, produceRequest(topic, plain(t, "a", "b")))
		if got.ErrorCode != 0 || got.BaseOffset != next || got.LogAppendTime != -1 || version >= 5 && got.LogStartOffset != 0 {
			t.Errorf("v%d: %+v, want base offset %d", version, got, next)
		}
		next += 2
	}
}

func TestProduceAcks(t *testing.T) {
	b := startBroker(t)
	topic, elsewhere := b.create("orders", 1), b.create("elsewhere", 1, "min.insync.replicas", "2")
	c := b.dial()
	for _, acks := range []int16{acksOne, acksAll} {
		req := produceRequest(topic, plain(t, "x"))
		req.Acks = acks
		if got := produceOne(c, 9, req); got.ErrorCode != 0 {
			t.Errorf("acks %d: error %d", acks, got.ErrorCode)
		}
	}
	for range 20 {
		// Not even a timeout of 0: there are no replicas to wait for, and no more are wanted
		// in sync than there are.
		for _, acks := range []int16{acksOne, acksAll} {
			req := produceRequest(elsewhere, plain(t, "x"))
			req.Acks, req.TimeoutMillis = acks, 0
			if got := produceOne(c, 9, req); got.ErrorCode != 0 {
				t.Fatalf("acks %d, no time: error %d", acks, got.ErrorCode)
			}
		}
	}
	silent := produceRequest(topic, plain(t, "y"))
	silent.Acks = acksNone
	c.send(9, silent)
	// The next answer on the connection is the next request's.
	if got := produceOne(c, 9, produceRequest(topic, plain(t, "z"))); got.BaseOffset != 3 {
		t.Errorf("after a silent produce: %+v, want base offset 3", got)
	}
	odd := produceRequest(topic, plain(t, "x"))
	odd.Acks = 2
	if got := produceOne(c, 9, odd); got.ErrorCode != kerr.InvalidRequiredAcks.Code {
		t.Errorf("acks 2: error %d", got.ErrorCode)
	}
	bad := produceRequest(&catalog.Topic{Name: "nowhere"}, plain(t, "x"))
	bad.Acks = acksNone
	c.send(9, bad)
	c.expectClosed()
}

func TestProduceRefusals(t *testing.T) {
	b := startBroker(t)
	orders := b.create("orders", 1, "max.message.bytes", "500")
	compacted := b.create("compacted", 1, "cleanup.policy", "compact")
	corrupt := plain(t, "value")
	corrupt[len(corrupt)-1] ^= 1
	future := batch.NewBuilder(batch.BuilderOptions{})
	future.Add(batch.NewRecord{Timestamp: model.Timestamp(time.Now().Add(2 * time.Hour).UnixMilli()), Value: []byte("x")})
	ahead, err := future.Build()
	if err != nil {
		t.Fatal(err)
	}
	messageSet := bytes.Clone(plain(t, "x"))
	messageSet[16] = 1

	for _, c := range []struct {
		name    string
		version int16
		topic   *catalog.Topic
		data    []byte
		want    *kerr.Error
		bad     int // records named
	}{
		{"version 2", 2, orders, plain(t, "x"), kerr.UnsupportedVersion, 0},
		{"unknown topic", 9, &catalog.Topic{Name: "nowhere"}, plain(t, "x"), kerr.UnknownTopicOrPartition, 0},
		{"unknown topic id", 13, &catalog.Topic{ID: model.NewTopicID()}, plain(t, "x"), kerr.UnknownTopicID, 0},
		{"illegal name", 9, &catalog.Topic{Name: "no/slashes"}, plain(t, "x"), kerr.InvalidTopicException, 0},
		{"internal topic", 9, &catalog.Topic{Name: "__consumer_offsets"}, plain(t, "x"), kerr.InvalidTopicException, 0},
		{"too large", 9, orders, plain(t, strings.Repeat("x", 600)), kerr.MessageTooLarge, 0},
		{"flipped bit", 9, orders, corrupt, kerr.CorruptMessage, 0},
		{"no batch", 9, orders, nil, kerr.InvalidRecord, 0},
		{"two batches", 9, orders, append(plain(t, "x"), plain(t, "y")...), kerr.InvalidRecord, 0},
		{"message format 1", 9, orders, messageSet, kerr.UnsupportedForMessageFormat, 0},
		{"null key into a compacted topic", 9, compacted, plain(t, "x", "y"), kerr.InvalidRecord, 2},
		{"two hours ahead", 9, orders, ahead.Bytes(), kerr.InvalidTimestamp, 1},
		{"zstd before version 7", 6, orders, records(t, batch.BuilderOptions{Codec: batch.DefaultCodec(batch.Zstd)}, "x"), kerr.UnsupportedCompressionType, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := produceOne(b.dial(), c.version, produceRequest(c.topic, c.data))
			if got.ErrorCode != c.want.Code || got.BaseOffset != -1 {
				t.Errorf("error %d at offset %d, want %v", got.ErrorCode, got.BaseOffset, c.want)
			}
			if len(got.ErrorRecords) != c.bad {
				t.Errorf("%d bad records named, want %d: %+v", len(got.ErrorRecords), c.bad, got.ErrorRecords)
			}
			if c.bad > 0 && (got.ErrorMessage == nil || got.ErrorRecords[0].ErrorMessage == nil) {
				t.Errorf("no words: %+v", got)
			}
		})
	}
	for _, topic := range []*catalog.Topic{orders, compacted} {
		p, err := b.coordinator.Partition(topic, 0)
		if err != nil || p.Bounds().End != 0 {
			t.Errorf("%s: end %d, %v: a refused batch was stored", topic.Name, p.Bounds().End, err)
		}
	}
}

func TestOnePartitionsRefusalDoesNotConcernTheOthers(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 2)
	req := produceRequest(topic, plain(t, "x"))
	for _, partition := range []int32{1, 2} {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = partition, plain(t, "y")
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	resp := ask[*kmsg.ProduceResponse](b.dial(), 9, req)
	want := []int16{0, 0, kerr.UnknownTopicOrPartition.Code}
	for i, p := range resp.Topics[0].Partitions {
		if p.Partition != int32(i) || p.ErrorCode != want[i] {
			t.Errorf("partition %d: error %d, want %d", p.Partition, p.ErrorCode, want[i])
		}
	}
}

// Large batches of one request are written side by side: each with its own answer, and
// a partition that a client names twice keeps the order of its batches.
func TestLargeBatchesOfOneRequest(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 6)
	large := strings.Repeat("v", jointBytes)
	numbered := func(sequence int32, value string) []byte {
		return records(t, batch.BuilderOptions{Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 7}, BaseSequence: model.Sequence(sequence)}}, value)
	}
	type part struct {
		partition int32
		data      []byte
		code      int16
		offset    int64
	}
	for _, request := range []struct {
		name  string
		parts []part
	}{
		{"each its own", []part{
			{0, plain(t, large), 0, 0},
			{1, numbered(0, large), 0, 0},
			{2, plain(t, large, large), 0, 0},
			{3, numbered(5, large), 0, 0},
			{4, plain(t, "small"), 0, 0},
			{6, plain(t, large), kerr.UnknownTopicOrPartition.Code, -1},
		}},
		{"one with a gap", []part{
			{0, plain(t, large), 0, 1},
			{1, numbered(9, large), kerr.OutOfOrderSequenceNumber.Code, -1},
			{2, plain(t, large), 0, 2},
		}},
		{"one twice", []part{
			{5, numbered(0, "small"), 0, 0},
			{5, numbered(1, large), 0, 1},
			{5, numbered(2, "small"), 0, 2},
			{5, numbered(3, large), 0, 3},
			{0, plain(t, large), 0, 2},
		}},
	} {
		req := produceRequest(topic, nil)
		req.Topics[0].Partitions = nil
		for _, p := range request.parts {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = p.partition, p.data
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
		}
		resp := ask[*kmsg.ProduceResponse](b.dial(), 9, req)
		for i, got := range resp.Topics[0].Partitions {
			if want := request.parts[i]; got.ErrorCode != want.code || got.BaseOffset != want.offset {
				t.Errorf("%s, partition %d: error %d offset %d, want %d and %d", request.name, got.Partition, got.ErrorCode, got.BaseOffset, want.code, want.offset)
			}
		}
	}
}

func TestLogAppendTimeIsInTheAnswer(t *testing.T) {
	b := startBroker(t)
	topic := b.create("stamped", 1, "message.timestamp.type", "LogAppendTime")
	before := time.Now().UnixMilli()
	got := produceOne(b.dial(), 9, produceRequest(topic, plain(t, "x")))
	if got.ErrorCode != 0 || got.LogAppendTime < before || got.LogAppendTime > time.Now().UnixMilli() {
		t.Errorf("%+v, want a time from %d on", got, before)
	}
}

func TestIdempotentProduce(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	c := b.dial()
	from := func(sequence int32, values ...string) []byte {
		return records(t, batch.BuilderOptions{Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 7}, BaseSequence: model.Sequence(sequence)}}, values...)
	}
	for _, step := range []struct {
		name   string
		data   []byte
		code   int16
		offset int64
	}{
		{"first", from(0, "a", "b"), 0, 0},
		{"next", from(2, "c"), 0, 2},
		{"the first again", from(0, "a", "b"), 0, 0},
		{"a gap", from(9, "d"), kerr.OutOfOrderSequenceNumber.Code, -1},
	} {
		if got := produceOne(c, 9, produceRequest(topic, step.data)); got.ErrorCode != step.code || got.BaseOffset != step.offset {
			t.Errorf("%s: error %d offset %d, want %d and %d", step.name, got.ErrorCode, got.BaseOffset, step.code, step.offset)
		}
	}
}
