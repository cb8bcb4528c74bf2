package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// offsetCommit serves OffsetCommit 0 to 10: 1 has members and generations, 2 to 4
// a retention, 6 leader epochs, 7 static members, 8 is flexible, 9 knows
// GROUP_ID_NOT_FOUND and member epochs (KIP-848), 10 has topic ids instead of
// names. Topics nobody knows are answered and dropped; the others are committed.
func offsetCommit(s *session, r *request) reply {
	req := r.body.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	c := group.CommitOffsets{
		Group:  req.Group,
		Caller: group.Caller{Member: req.MemberID, Instance: text(req.InstanceID), Generation: req.Generation},
	}
	if req.Version >= 2 && req.Version <= 4 {
		c.Retention = millis(req.RetentionTimeMillis)
	}
	var asked []*int16 // the code of each offset that is committed
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetCommitResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		topic.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		known, code := s.topic(t.TopicID, t.Topic)
		for i, p := range t.Partitions {
			topic.Partitions[i].Partition, topic.Partitions[i].ErrorCode = p.Partition, partitionCode(known, code, p.Partition)
			if topic.Partitions[i].ErrorCode == 0 {
				asked = append(asked, &topic.Partitions[i].ErrorCode)
				c.Offsets = append(c.Offsets, group.Commit{
					Topic: known.Name, TopicID: known.ID, Partition: p.Partition, Offset: model.Offset(p.Offset),
					LeaderEpoch: model.LeaderEpoch(p.LeaderEpoch), Metadata: text(p.Metadata),
				})
			}
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if len(c.Offsets) == 0 {
		return now(resp)
	}
	committed := s.coordinator.CommitOffsets(c)
	return func(ctx context.Context) kmsg.Response {
		results, err := committed.Wait(ctx)
		for i, code := range asked {
			if err != nil {
				*code = offsetCommitCode(err, req.Version)
			} else {
				*code = groupCode(results[i])
			}
		}
		return resp
	}
}

// partitionCode is the topic's code, or that the topic has no such partition.
func partitionCode(t *catalog.Topic, code int16, partition int32) int16 {
	if code == 0 && !t.Has(partition) {
		return kerr.UnknownTopicOrPartition.Code
	}
	return code
}

// offsetCommitCode tells a member of a group that is gone what its version knows.
func offsetCommitCode(err error, version int16) int16 {
	if errors.Is(err, group.ErrGroupNotFound) && version < 9 {
		return kerr.IllegalGeneration.Code
	}
	return groupCode(err)
}

// offsetFetch serves OffsetFetch 0 to 10: 2 can ask for every partition and has a
// code for the whole answer, 5 leader epochs, 6 is flexible, 7 can insist on
// stable offsets (KIP-447), 8 asks for several groups, 9 has member epochs
// (KIP-848), which classic groups do not look at, 10 has topic ids instead of
// names. A group or partition without a commit has offset -1 and no error. Everything a
// group has is told once, however often it is asked for.
func offsetFetch(s *session, r *request) reply {
	req := r.body.(*kmsg.OffsetFetchRequest)
	if req.Version < 8 {
		return s.offsetFetchOne(req)
	}
	var fetches []offsetsFetch
	whole := map[string]bool{}
	for i := range req.Groups {
		g := &req.Groups[i]
		if g.Topics == nil {
			if whole[g.Group] {
				continue
			}
			whole[g.Group] = true
		}
		fetches = append(fetches, s.fetchOffsets(g.Group, g.Topics, g.Topics == nil, req.RequireStable, req.Version))
	}
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, f := range fetches {
			resp.Groups = append(resp.Groups, f.wait(ctx))
		}
		return resp
	}
}

// offsetFetchOne serves the versions that ask for one group.
func (s *session) offsetFetchOne(req *kmsg.OffsetFetchRequest) reply {
	var topics []kmsg.OffsetFetchRequestGroupTopic
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.Partitions = t.Topic, t.Partitions
		topics = append(topics, topic)
	}
	f := s.fetchOffsets(req.Group, topics, req.Topics == nil && req.Version >= 2, req.RequireStable, req.Version)
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		g := f.wait(ctx)
		resp.ErrorCode = g.ErrorCode
		if g.ErrorCode != 0 && req.Version < 2 {
			g.Topics = failedOffsets(topics, g.ErrorCode)
		}
		for _, t := range g.Topics {
			topic := kmsg.NewOffsetFetchResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				topic.Partitions = append(topic.Partitions, kmsg.OffsetFetchResponseTopicPartition(p))
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp
	}
}

// offsetsFetch is the answer for one group in the making. Topics stand in it in
// the order they were asked for.
type offsetsFetch struct {
	s        *session
	resp     kmsg.OffsetFetchResponseGroup
	topics   []kmsg.OffsetFetchRequestGroupTopic
	codes    []int16 // of topics that cannot be asked for
	answers  machine.Future[[]group.Committed]
	everyone bool
	version  int16
}

// fetchOffsets asks for the offsets of one group.
func (s *session) fetchOffsets(id string, topics []kmsg.OffsetFetchRequestGroupTopic, everyone, stable bool, version int16) offsetsFetch {
	f := offsetsFetch{s: s, resp: kmsg.NewOffsetFetchResponseGroup(), topics: topics, everyone: everyone, version: version}
	f.resp.Group = id
	c := group.FetchOffsets{Group: id, Stable: stable}
	if !everyone {
		c.Partitions = []group.PartitionOf{}
	}
	for _, t := range topics {
		known, code := s.topic(t.TopicID, t.Topic)
		p := group.PartitionOf{Topic: t.Topic}
		switch {
		case code == 0:
			p.Topic, p.TopicID = known.Name, known.ID
		case version < 10:
			code = 0 // the name of a topic that does not exist has no offsets, which is no error
		}
		f.codes = append(f.codes, code)
		for _, n := range t.Partitions {
			if p.Partition = n; code == 0 {
				c.Partitions = append(c.Partitions, p)
			}
		}
	}
	f.answers = s.coordinator.FetchOffsets(c)
	return f
}

func (f offsetsFetch) wait(ctx context.Context) kmsg.OffsetFetchResponseGroup {
	answers, err := f.answers.Wait(ctx)
	switch {
	case err != nil:
		f.resp.ErrorCode = groupCode(err)
	case f.everyone:
		f.resp.Topics = f.allTopics(answers)
	default:
		f.resp.Topics = f.askedTopics(answers)
	}
	return f.resp
}

func (f offsetsFetch) askedTopics(answers []group.Committed) (topics []kmsg.OffsetFetchResponseGroupTopic) {
	for i, t := range f.topics {
		if f.codes[i] != 0 {
			topics = append(topics, failedOffsets(f.topics[i:i+1], f.codes[i])...)
			continue
		}
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for range t.Partitions {
			topic.Partitions = append(topic.Partitions, fetchedOffset(answers[0]))
			answers = answers[1:]
		}
		topics = append(topics, topic)
	}
	return topics
}

// allTopics groups everything there is by topic. Offsets of topics that no longer
// exist are left out: they are about to be dropped.
func (f offsetsFetch) allTopics(answers []group.Committed) (topics []kmsg.OffsetFetchResponseGroupTopic) {
	last := ""
	for _, c := range answers {
		known, code := f.s.topic(model.TopicID{}, c.Topic)
		if code != 0 || !c.TopicID.IsZero() && c.TopicID != known.ID {
			continue
		}
		if len(topics) == 0 || last != c.Topic {
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic, topic.TopicID = c.Topic, known.ID
			topics = append(topics, topic)
			last = c.Topic
		}
		topic := &topics[len(topics)-1]
		topic.Partitions = append(topic.Partitions, fetchedOffset(c))
	}
	return topics
}

func fetchedOffset(c group.Committed) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = c.Partition, int64(c.Offset), int32(c.LeaderEpoch)
	p.Metadata, p.ErrorCode = &c.Metadata, groupCode(c.Err)
	return p
}

// failedOffsets answers every partition of some topics with a code.
func failedOffsets(topics []kmsg.OffsetFetchRequestGroupTopic, code int16) (failed []kmsg.OffsetFetchResponseGroupTopic) {
	for _, t := range topics {
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, n := range t.Partitions {
			p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = n, -1, -1, new(string), code
			topic.Partitions = append(topic.Partitions, p)
		}
		failed = append(failed, topic)
	}
	return failed
}

// offsetDelete serves OffsetDelete 0 (KIP-496).
func offsetDelete(s *session, r *request) reply {
	req := r.body.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	c := group.DeleteOffsets{Group: req.Group}
	var asked []*int16
	for _, t := range req.Topics {
		topic := kmsg.NewOffsetDeleteResponseTopic()
		topic.Topic = t.Topic
		topic.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		known, code := s.topic(model.TopicID{}, t.Topic)
		for i, p := range t.Partitions {
			topic.Partitions[i].Partition, topic.Partitions[i].ErrorCode = p.Partition, partitionCode(known, code, p.Partition)
			if topic.Partitions[i].ErrorCode == 0 {
				asked = append(asked, &topic.Partitions[i].ErrorCode)
				c.Partitions = append(c.Partitions, group.PartitionOf{Topic: known.Name, TopicID: known.ID, Partition: p.Partition})
			}
		}
		resp.Topics = append(resp.Topics, topic)
	}
	deleted := s.coordinator.DeleteOffsets(c)
	return func(ctx context.Context) kmsg.Response {
		results, err := deleted.Wait(ctx)
		if err != nil {
			resp.ErrorCode, resp.Topics = groupCode(err), nil
			return resp
		}
		for i, code := range asked {
			*code = groupCode(results[i])
		}
		return resp
	}
}
