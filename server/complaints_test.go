package server

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// A producer that lost its place is refused with every batch and complained
// about once.
func TestARefusedProducerIsComplainedAboutOnce(t *testing.T) {
	b, _, log := runWithLogs(t, "")
	if r, err := adminOf(t, b).CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.KafkaAddr("PLAINTEXT").String()), kgo.ClientID("the-clerk"),
		kgo.MaxVersions(kversion.V2_8_0())) // topics by name
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, producer := range []model.ProducerID{7, 7, 7, 8} {
		if code := produceOutOfOrder(t, client, producer); code != kerr.OutOfOrderSequenceNumber.Code {
			t.Fatalf("producer %d: %v", producer, kerr.ErrorForCode(code))
		}
	}
	lines := strings.Count(log.text(), "producer refused")
	if lines != 2 || !strings.Contains(log.text(), `"producer_id":7,"epoch":0,"client_id":"the-clerk"`) || !strings.Contains(log.text(), "OUT_OF_ORDER_SEQUENCE_NUMBER") {
		t.Errorf("%d lines about two producers: %s", lines, log.text())
	}
}

// produceOutOfOrder sends batch 0 of a producer if it must, then one that is not
// its next, and returns the last code.
func produceOutOfOrder(t *testing.T, client *kgo.Client, producer model.ProducerID) (code int16) {
	t.Helper()
	for _, sequence := range []model.Sequence{0, 50} {
		build := batch.NewBuilder(batch.BuilderOptions{Producer: &batch.Producer{
			ProducerIdentity: model.ProducerIdentity{ID: producer}, BaseSequence: sequence,
		}})
		build.Add(batch.NewRecord{Value: []byte("x")})
		view, err := build.Build()
		if err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 10_000
		topic, partition := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
		topic.Topic, partition.Records = "orders", view.Bytes()
		topic.Partitions = append(topic.Partitions, partition)
		req.Topics = append(req.Topics, topic)
		resp, err := client.Broker(1).Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		code = resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	}
	return code
}
