package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

// createTopics serves CreateTopics 0 to 7: 1 can only validate and has messages,
// 5 is flexible and tells the partitions, copies and settings a topic got, 7 its
// id.
func createTopics(s *session, r *request) reply {
	req := r.body.(*kmsg.CreateTopicsRequest)
	topics, names := uniqueTopics(req)
	var asked []catalog.NewTopic
	for _, name := range names {
		if topics[name].Err == nil {
			asked = append(asked, topics[name].NewTopic)
		}
	}
	created := s.coordinator.CreateTopics(asked, req.ValidateOnly)
	return func(ctx context.Context) kmsg.Response {
		results, err := created.Wait(ctx)
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, name := range names {
			result := catalog.CreatedTopic{Err: topics[name].Err}
			if result.Err == nil {
				result.Err = err
				if err == nil {
					result, results = results[0], results[1:]
				}
			}
			resp.Topics = append(resp.Topics, s.createdTopic(name, result))
		}
		return resp
	}
}

// askedTopic is a topic of the request, or why it cannot be meant.
type askedTopic struct {
	catalog.NewTopic
	Err error
}

// uniqueTopics translates the request. A name that stands twice is answered
// once, with an error.
func uniqueTopics(req *kmsg.CreateTopicsRequest) (topics map[string]askedTopic, names []string) {
	topics = make(map[string]askedTopic, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		if _, twice := topics[t.Topic]; twice {
			topics[t.Topic] = askedTopic{Err: &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "Duplicate topic name."}}
			continue
		}
		n, err := newTopic(t)
		topics[t.Topic] = askedTopic{n, err}
		names = append(names, t.Topic)
	}
	return topics, names
}

// newTopic translates what is asked for.
func newTopic(t *kmsg.CreateTopicsRequestTopic) (catalog.NewTopic, error) {
	n := catalog.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor, Settings: map[string]string{}}
	if len(t.ReplicaAssignment) > 0 {
		n.Assignments = make(map[int32][]int32, len(t.ReplicaAssignment))
		for _, a := range t.ReplicaAssignment {
			if _, twice := n.Assignments[a.Partition]; twice {
				return n, &catalog.Error{Kind: catalog.ErrInvalidReplicaAssignment, Text: fmt.Sprintf("Found multiple manual partition assignments for partition %d", a.Partition)}
			}
			n.Assignments[a.Partition] = a.Replicas
		}
	}
	for _, c := range t.Configs {
		if c.Value == nil {
			return n, &catalog.Error{Kind: catalog.ErrInvalidConfig, Text: "Null value not supported for topic configs: " + c.Name}
		}
		n.Settings[c.Name] = *c.Value
	}
	return n, nil
}

func (s *session) createdTopic(name string, result catalog.CreatedTopic) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.ErrorCode, t.ErrorMessage = name, codeOf(result.Err), wordsOf(result.Err)
	t.NumPartitions, t.ReplicationFactor, t.Configs = -1, -1, []kmsg.CreateTopicsResponseTopicConfig{}
	if result.Err != nil {
		return t
	}
	t.TopicID, t.NumPartitions, t.ReplicationFactor = result.Topic.ID, result.Topic.Partitions, 1
	for _, k := range config.TopicTable.Keys() {
		v := s.coordinator.Catalog().Values().Topic(k, result.Topic.Overrides)
		if k.Hidden && v.Source != config.SourceTopic {
			continue
		}
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.Source, c.IsSensitive = k.Name, valueOf(v.Value, v.Null), int8(v.Source), k.Sensitive
		t.Configs = append(t.Configs, c)
	}
	return t
}

// valueOf is a value as answers carry it.
func valueOf(text string, null bool) *string {
	if null {
		return nil
	}
	return &text
}

// deleteTopics serves DeleteTopics 0 to 6: 3 has an error of its own for a
// broker that deletes nothing, 4 is flexible, 5 has messages, 6 names topics by
// id too.
func deleteTopics(s *session, r *request) reply {
	req := r.body.(*kmsg.DeleteTopicsRequest)
	results := collectDeletions(req)
	var refs []catalog.TopicRef
	for i := range results {
		if results[i].err == nil {
			refs = append(refs, results[i].ref)
		}
	}
	deleted := s.coordinator.DeleteTopics(refs)
	return func(ctx context.Context) kmsg.Response {
		outcomes, err := deleted(ctx)
		resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
		for _, d := range results {
			if d.err == nil {
				d.err = err
				if err == nil {
					d.topic, d.err = outcomes[0].Topic, outcomes[0].Err
					outcomes = outcomes[1:]
				}
			}
			resp.Topics = append(resp.Topics, d.answer(r.version))
		}
		return resp
	}
}

// deletion is one topic to be deleted and what became of it.
type deletion struct {
	named *string // nil: asked for by id
	ref   catalog.TopicRef
	topic *catalog.Topic
	err   error
}

// collectDeletions brings the two forms of the request into one. A name that
// stands twice is answered once, with an error.
func collectDeletions(req *kmsg.DeleteTopicsRequest) []deletion {
	topics := req.Topics
	for i := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &req.TopicNames[i]
		topics = append(topics, t)
	}
	var all []deletion
	type key struct {
		named bool
		ref   catalog.TopicRef
	}
	place := map[key]int{}
	for _, t := range topics {
		d := deletion{named: t.Topic, ref: catalog.TopicRef{ID: t.TopicID}}
		switch id := model.TopicID(t.TopicID); {
		case t.Topic != nil && !id.IsZero():
			d.ref.Name = *t.Topic
			d.err = &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "You may not specify both topic name and topic id."}
		case t.Topic == nil && id.IsZero():
			d.err = &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "Neither topic name nor id were specified."}
		case t.Topic != nil:
			d.ref.Name = *t.Topic
		}
		k := key{d.named != nil, d.ref}
		if first, twice := place[k]; twice {
			what := "name"
			if d.named == nil {
				what = "id"
			}
			all[first].err = &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "Duplicate topic " + what + "."}
			continue
		}
		place[k] = len(all)
		all = append(all, d)
	}
	return all
}

func (d deletion) answer(version int16) kmsg.DeleteTopicsResponseTopic {
	t := kmsg.NewDeleteTopicsResponseTopic()
	t.Topic, t.TopicID = d.named, d.ref.ID
	if d.err == nil {
		t.Topic, t.TopicID = &d.topic.Name, d.topic.ID
	}
	t.ErrorCode, t.ErrorMessage = codeOf(d.err), wordsOf(d.err)
	if version < 3 && errors.Is(d.err, catalog.ErrDeletionDisabled) {
		t.ErrorCode = kerr.InvalidRequest.Code
	}
	return t
}

// createPartitions serves CreatePartitions 0 to 3: 2 is flexible, 1 and 3
// changed when quotas are applied.
func createPartitions(s *session, r *request) reply {
	req := r.body.(*kmsg.CreatePartitionsRequest)
	growth := make([]catalog.Growth, len(req.Topics))
	for i := range req.Topics {
		t := &req.Topics[i]
		growth[i] = catalog.Growth{Name: t.Topic, Count: t.Count}
		if t.Assignment != nil {
			growth[i].Assignments = [][]int32{}
		}
		for _, a := range t.Assignment {
			growth[i].Assignments = append(growth[i].Assignments, a.Replicas)
		}
	}
	grown := s.coordinator.CreatePartitions(growth, req.ValidateOnly)
	return func(ctx context.Context) kmsg.Response {
		errs, err := grown.Wait(ctx)
		resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
		answered := map[string]bool{}
		for i, g := range growth {
			if answered[g.Name] {
				continue
			}
			answered[g.Name] = true
			failure := err
			if err == nil {
				failure = errs[i]
			}
			t := kmsg.NewCreatePartitionsResponseTopic()
			t.Topic, t.ErrorCode, t.ErrorMessage = g.Name, codeOf(failure), wordsOf(failure)
			resp.Topics = append(resp.Topics, t)
		}
		return resp
	}
}
