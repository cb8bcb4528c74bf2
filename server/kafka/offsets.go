package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// Timestamps that are questions.
const (
	askLatest           int64 = -1
	askEarliest         int64 = -2
	askMaxTimestamp     int64 = -3 // KIP-734
	askEarliestLocal    int64 = -4 // KIP-405
	askLatestTiered     int64 = -5 // KIP-1005
	askEarliestUploaded int64 = -6 // KIP-1023
)

// askableFrom is the first version that may ask each of them.
var askableFrom = map[int64]int16{
	askLatest: 0, askEarliest: 0, askMaxTimestamp: 7, askEarliestLocal: 8, askLatestTiered: 9, askEarliestUploaded: 11,
}

// listOffsets serves ListOffsets 0 to 11: 0 returns a list of offsets, 1 one
// offset with its timestamp, 2 adds isolation, 4 the leader epoch, 6 is
// flexible, 7 to 9 and 11 add questions, 10 a timeout for remote storage, which
// we do not need. Searches by time read files, so they run in the reply.
func listOffsets(s *session, r *request) reply {
	req := r.body.(*kmsg.ListOffsetsRequest)
	return func(context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		asked := make(map[fetchKey]int)
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				asked[fetchKey{name: req.Topics[i].Topic, partition: req.Topics[i].Partitions[j].Partition}]++
			}
		}
		for i := range req.Topics {
			t := kmsg.NewListOffsetsResponseTopic()
			t.Topic = req.Topics[i].Topic
			for j := range req.Topics[i].Partitions {
				q := &req.Topics[i].Partitions[j]
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.Offset, p.Timestamp = q.Partition, -1, -1
				if asked[fetchKey{name: t.Topic, partition: q.Partition}] > 1 {
					p.ErrorCode = kerr.InvalidRequest.Code
				} else {
					s.listOffset(t.Topic, q, model.Isolation(req.IsolationLevel), req.Version, &p)
				}
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp
	}
}

// listOffset answers for one partition.
func (s *session) listOffset(topic string, q *kmsg.ListOffsetsRequestTopicPartition, iso model.Isolation, version int16, p *kmsg.ListOffsetsResponseTopicPartition) {
	log, code := s.leading(model.TopicID{}, topic, q.Partition, model.LeaderEpoch(q.CurrentLeaderEpoch))
	if first, known := askableFrom[q.Timestamp]; code == 0 && q.Timestamp < 0 && (!known || version < first) {
		code = kerr.UnsupportedVersion.Code
	}
	if code != 0 {
		p.ErrorCode = code
		return
	}
	found, err := offsetFor(log, q.Timestamp, iso)
	if err != nil {
		p.ErrorCode = codeOf(err)
		return
	}
	if q.Timestamp == askLatest || found.Offset >= 0 && found.LeaderEpoch < 0 { // where no record stands yet, it will be ours
		found.LeaderEpoch = s.coordinator.LeaderEpoch()
	}
	p.Timestamp, p.Offset, p.LeaderEpoch = int64(found.Timestamp), int64(found.Offset), int32(found.LeaderEpoch)
	if version == 0 && found.Offset >= 0 && q.MaxNumOffsets > 0 {
		p.OldStyleOffsets = []int64{int64(found.Offset)}
	}
}

// offsetFor answers a question, or finds the first record at or after a time.
// "None" is -1 in every field.
func offsetFor(p *storage.Partition, timestamp int64, iso model.Isolation) (storage.TimestampOffset, error) {
	none := storage.TimestampOffset{Timestamp: model.NoTimestamp, Offset: model.NoOffset, LeaderEpoch: model.NoLeaderEpoch}
	if err := p.Err(); err != nil {
		return none, err
	}
	found, ok := none, true
	var err error
	switch timestamp {
	case askLatest:
		found.Offset = p.Bounds().Visible(iso)
	case askEarliest, askEarliestLocal:
		found.Offset = p.Bounds().Start
		found.LeaderEpoch = p.EpochAt(found.Offset)
	case askMaxTimestamp:
		found, ok, err = p.MaxTimestamp(iso)
	case askLatestTiered, askEarliestUploaded:
		// Nothing is tiered: there is no such offset.
	default:
		found, ok, err = p.OffsetForTimestamp(model.Timestamp(timestamp), iso)
	}
	if err != nil || !ok {
		return none, err
	}
	return found, nil
}

// deleteRecords serves DeleteRecords 0 to 2; 2 is flexible. -1 deletes
// everything that is durable. The answer leaves when the deletion is durable; the
// request's timeout is for replicas, as that of Produce.
func deleteRecords(s *session, r *request) reply {
	req := r.body.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	var waits []func(context.Context)
	for i := range req.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = req.Topics[i].Topic
		t.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(req.Topics[i].Partitions))
		for j, q := range req.Topics[i].Partitions {
			p := &t.Partitions[j]
			p.Partition, p.LowWatermark = q.Partition, -1
			pending, start, code := s.deleteBefore(t.Topic, q.Partition, model.Offset(q.Offset))
			if code != 0 {
				p.ErrorCode = code
				continue
			}
			waits = append(waits, func(ctx context.Context) {
				if err := pending.Wait(ctx); err != nil {
					p.ErrorCode = codeOf(err)
					return
				}
				p.LowWatermark = int64(start)
			})
		}
		resp.Topics = append(resp.Topics, t)
	}
	return func(ctx context.Context) kmsg.Response {
		for _, wait := range waits {
			wait(ctx)
		}
		return resp
	}
}

func (s *session) deleteBefore(topic string, partition int32, before model.Offset) (*storage.Pending, model.Offset, int16) {
	t, code := s.topic(model.TopicID{}, topic)
	switch {
	case code != 0:
		return nil, 0, code
	case t.Internal:
		return nil, 0, kerr.InvalidTopicException.Code
	case !t.Settings.Delete:
		return nil, 0, kerr.PolicyViolation.Code // a compacted topic: keys decide what goes
	}
	p, err := s.coordinator.Partition(t, partition)
	if err != nil {
		return nil, 0, codeOf(err)
	}
	high := p.Bounds().High
	if before == -1 {
		before = high
	}
	if before < 0 || before > high {
		return nil, 0, kerr.OffsetOutOfRange.Code
	}
	pending, start, err := p.DeleteRecords(before)
	return pending, start, codeOf(err)
}

// offsetForLeaderEpoch serves OffsetForLeaderEpoch 0 to 4: 1 answers with the
// epoch too, 2 checks the epoch the client believes in, 3 names the replica, 4
// is flexible.
func offsetForLeaderEpoch(s *session, r *request) reply {
	req := r.body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range req.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, q := range req.Topics[i].Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = q.Partition, -1, -1
			log, code := s.leading(model.TopicID{}, t.Topic, q.Partition, model.LeaderEpoch(q.CurrentLeaderEpoch))
			if p.ErrorCode = code; code == 0 {
				epoch, end := log.EpochEnd(model.LeaderEpoch(q.LeaderEpoch))
				p.LeaderEpoch, p.EndOffset = int32(epoch), int64(end)
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return now(resp)
}
