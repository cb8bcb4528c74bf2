package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

func listRequest(topic string, timestamps ...int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for i, timestamp := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.MaxNumOffsets, p.CurrentLeaderEpoch = int32(i), timestamp, 1, -1
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// timed appends records with the given timestamps, one batch each.
func (b *testBroker) timed(topic *catalog.Topic, timestamps ...model.Timestamp) {
	b.t.Helper()
	for _, at := range timestamps {
		builder := batch.NewBuilder(batch.BuilderOptions{})
		builder.Add(batch.NewRecord{Timestamp: at, Value: []byte("x")})
		view, err := builder.Build()
		if err != nil {
			b.t.Fatal(err)
		}
		if got := produceOne(b.dial(), 9, produceRequest(topic, view.Bytes())); got.ErrorCode != 0 {
			b.t.Fatalf("produce: error %d", got.ErrorCode)
		}
	}
}

func TestListOffsets(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	b.timed(topic, 1000, 3000, 2000) // the largest timestamp is not the last one
	epoch := int32(b.coordinator.LeaderEpoch())
	for _, c := range []struct {
		name              string
		version           int16
		ask               int64
		offset, timestamp int64
		code              int16
	}{
		{"latest", 11, askLatest, 3, -1, 0},
		{"latest, first version with one offset", 1, askLatest, 3, -1, 0},
		{"earliest", 11, askEarliest, 0, -1, 0},
		{"largest timestamp", 7, askMaxTimestamp, 1, 3000, 0},
		{"largest timestamp before it could be asked", 6, askMaxTimestamp, -1, -1, kerr.UnsupportedVersion.Code},
		{"earliest local", 8, askEarliestLocal, 0, -1, 0},
		{"latest tiered", 9, askLatestTiered, -1, -1, 0},
		{"earliest to upload", 11, askEarliestUploaded, -1, -1, 0},
		{"an unknown question", 11, -7, -1, -1, kerr.UnsupportedVersion.Code},
		{"a time between records", 11, 1500, 1, 3000, 0},
		{"a time before all", 11, 1, 0, 1000, 0},
		{"a time after all", 11, 9999, -1, -1, 0},
	} {
		got := ask[*kmsg.ListOffsetsResponse](b.dial(), c.version, listRequest("orders", c.ask)).Topics[0].Partitions[0]
		if got.ErrorCode != c.code || got.Offset != c.offset || got.Timestamp != c.timestamp {
			t.Errorf("%s: error %d offset %d timestamp %d, want %d, %d, %d", c.name, got.ErrorCode, got.Offset, got.Timestamp, c.code, c.offset, c.timestamp)
		}
		if c.version >= 4 && c.offset >= 0 && got.LeaderEpoch != epoch {
			t.Errorf("%s: leader epoch %d, want %d", c.name, got.LeaderEpoch, epoch)
		}
	}
	old := ask[*kmsg.ListOffsetsResponse](b.dial(), 0, listRequest("orders", askLatest)).Topics[0].Partitions[0]
	if len(old.OldStyleOffsets) != 1 || old.OldStyleOffsets[0] != 3 {
		t.Errorf("version 0: offsets %v", old.OldStyleOffsets)
	}
}

func TestListOffsetsRefusals(t *testing.T) {
	b := startBroker(t)
	b.create("orders", 1)
	if got := ask[*kmsg.ListOffsetsResponse](b.dial(), 7, listRequest("nowhere", askLatest)).Topics[0].Partitions[0]; got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown topic: error %d", got.ErrorCode)
	}
	twice := listRequest("orders", askLatest, askEarliest)
	twice.Topics[0].Partitions[1].Partition = 0
	for _, p := range ask[*kmsg.ListOffsetsResponse](b.dial(), 7, twice).Topics[0].Partitions {
		if p.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("a partition asked twice: error %d", p.ErrorCode)
		}
	}
	b.restart() // so that there is an older epoch
	stale := listRequest("orders", askLatest)
	stale.Topics[0].Partitions[0].CurrentLeaderEpoch = int32(b.coordinator.LeaderEpoch()) - 1
	if got := ask[*kmsg.ListOffsetsResponse](b.dial(), 7, stale).Topics[0].Partitions[0]; got.ErrorCode != kerr.FencedLeaderEpoch.Code {
		t.Errorf("older epoch: error %d", got.ErrorCode)
	}
}

func TestDeleteRecords(t *testing.T) {
	b := startBroker(t)
	orders := b.create("orders", 1)
	compacted := b.create("compacted", 1, "cleanup.policy", "compact")
	b.append(orders, 0, "a", "b", "c")
	for _, c := range []struct {
		name   string
		topic  string
		before int64
		low    int64
		code   int16
	}{
		{"two records", "orders", 2, 2, 0},
		{"what is gone already", "orders", 1, 2, 0},
		{"beyond the end", "orders", 9, -1, kerr.OffsetOutOfRange.Code},
		{"a negative offset", "orders", -2, -1, kerr.OffsetOutOfRange.Code},
		{"everything", "orders", -1, 3, 0},
		{"a compacted topic", compacted.Name, 0, -1, kerr.PolicyViolation.Code},
		{"an internal topic", "__consumer_offsets", 0, -1, kerr.InvalidTopicException.Code},
		{"an unknown topic", "nowhere", 0, -1, kerr.UnknownTopicOrPartition.Code},
	} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 0 // there are no replicas to wait for
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = c.topic
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Offset = c.before
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		got := ask[*kmsg.DeleteRecordsResponse](b.dial(), 2, req).Topics[0].Partitions[0]
		if got.ErrorCode != c.code || got.LowWatermark != c.low {
			t.Errorf("%s: error %d low watermark %d, want %d and %d", c.name, got.ErrorCode, got.LowWatermark, c.code, c.low)
		}
	}
	gone := fetched(ask[*kmsg.FetchResponse](b.dial(), 13, fetchRequest(orders, map[int32]int64{0: 0})))[0]
	if gone.ErrorCode != kerr.OffsetOutOfRange.Code || gone.LogStartOffset != 3 {
		t.Errorf("fetch of what was deleted: error %d, start %d", gone.ErrorCode, gone.LogStartOffset)
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	b.append(topic, 0, "a", "b")
	first := int32(b.coordinator.LeaderEpoch())
	b.restart()
	topic, _ = b.coordinator.Catalog().Topic("orders")
	b.append(topic, 0, "c")
	second := int32(b.coordinator.LeaderEpoch())
	for _, c := range []struct {
		name     string
		asked    int32
		epoch    int32
		end      int64
		believed int32
		code     int16
	}{
		{"the epoch before", first, first, 2, -1, 0},
		{"this epoch", second, second, 3, -1, 0},
		{"an epoch to come", second + 1, -1, -1, -1, 0},
		{"with an older idea of the leader", first, -1, -1, first, kerr.FencedLeaderEpoch.Code},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = "orders"
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.LeaderEpoch, rp.CurrentLeaderEpoch = c.asked, c.believed
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		for version := int16(2); version <= 4; version++ {
			got := ask[*kmsg.OffsetForLeaderEpochResponse](b.dial(), version, req).Topics[0].Partitions[0]
			if got.ErrorCode != c.code || got.LeaderEpoch != c.epoch || got.EndOffset != c.end {
				t.Errorf("%s, v%d: error %d epoch %d end %d, want %d, %d, %d", c.name, version, got.ErrorCode, got.LeaderEpoch, got.EndOffset, c.code, c.epoch, c.end)
			}
		}
	}
}
