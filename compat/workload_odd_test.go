package compat

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// oddStory is what no client means to send: contradictions, things named twice,
// lists that are empty instead of null, limits that are none.
func oddStory() []step {
	assigned := func(partitions ...int32) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			req := createTopic(s.prefix+"never", -1)
			req.Topics[0].ReplicationFactor = -1
			for _, p := range partitions {
				req.Topics[0].ReplicaAssignment = append(req.Topics[0].ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: []int32{s.node}})
			}
			return req
		}
	}
	deleted := func(edit func(s *side, add func(name *string, id [16]byte))) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TimeoutMillis = 10000
			edit(s, func(name *string, id [16]byte) {
				t := kmsg.NewDeleteTopicsRequestTopic()
				t.Topic, t.TopicID = name, id
				req.Topics = append(req.Topics, t)
				if name != nil {
					req.TopicNames = append(req.TopicNames, *name)
				}
			})
			return req
		}
	}
	page := func(limit int32, cursor string, names ...string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			req := kmsg.NewPtrDescribeTopicPartitionsRequest()
			req.ResponsePartitionLimit = limit
			for _, name := range names {
				req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: s.prefix + name})
			}
			if cursor != "" {
				req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: s.prefix + cursor}
			}
			return req
		}
	}
	empty := func(s *side, add func(*string, [16]byte)) {
		add(kmsg.StringPtr(""), [16]byte{})
		add(kmsg.StringPtr(s.prefix+"nowhere"), [16]byte{})
		add(kmsg.StringPtr(s.prefix+"nowhere"), [16]byte{})
	}
	steps := append(create("odd", 2), create("quiet", 1)...)
	steps = append(steps,
		one("a partition assigned twice", assigned(0, 0)),
		one("a partition before the first assigned", assigned(-1)),
		one("neither partitions nor copies", func(s *side) kmsg.Request {
			req := createTopic(s.prefix+"never", -2)
			req.Topics[0].ReplicationFactor = -2
			return req
		}),
		one("an empty list of assignments", func(s *side) kmsg.Request {
			req := createPartitions(s.prefix+"odd", 3)
			req.Topics[0].Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{}
			return req
		}),
		one("far too many partitions in all", func(s *side) kmsg.Request {
			req := createPartitions(s.prefix+"quiet", 6000)
			req.Topics = append(req.Topics, createPartitions(s.prefix+"odd", 6000).Topics...)
			req.Topics = req.Topics[1:]
			req.Topics[0].Count = 1
			return req
		}),
	)
	for _, v := range []int16{1, 4, 5} {
		steps = append(steps, at("delete the empty name and one twice", deleted(empty), v)...)
	}
	steps = append(steps,
		one("delete an id twice", deleted(func(s *side, add func(*string, [16]byte)) {
			add(nil, s.topic("odd").id)
			add(nil, s.topic("odd").id)
			add(nil, s.topic("nowhere").id)
		})),
		one("a page of nothing", page(0, "", "odd", "quiet")),
		one("a page of less", page(-1, "", "odd", "quiet")),
		one("a full page before an unknown topic", page(2, "", "odd", "oddly", "quiet")),
		one("a cursor at a topic that was not asked for", page(9, "oddly", "odd", "quiet")),
		one("a cursor at an unknown topic", page(9, "oddly", "oddly", "odd", "quiet")),
	)
	for _, v := range []int16{4, 9, 11} {
		steps = append(steps, at("the start of an empty partition", func(s *side) kmsg.Request { return listOffsets(s.prefix+"quiet", 0, -2) }, v)...)
	}
	steps = append(steps, oddConfigs()...)
	return append(steps, oddSessions()...)
}

func oddConfigs() (steps []step) {
	set := kmsg.IncrementalAlterConfigOpSet
	for _, c := range [][2]string{{"cleanup.policy", "compact,"}, {"cleanup.policy", ",compact"}, {"max.decompressed.message.bytes", "0"}, {"max.decompressed.message.bytes", "2147483640"},
		{"leader.replication.throttled.replicas", "none"}, {"leader.replication.throttled.replicas", "*"}} {
		steps = append(steps, one(fmt.Sprintf("%s of %q", c[0], c[1]), func(s *side) kmsg.Request {
			req := changeConfig(kmsg.ConfigResourceTypeTopic, s.prefix+"odd", c[0], set, &c[1])
			req.ValidateOnly = true
			return req
		}))
	}
	for _, key := range []string{"log.retention.ms", "max.connections.per.ip"} {
		steps = append(steps, one(key+" of 0", func(s *side) kmsg.Request {
			return changeConfig(kmsg.ConfigResourceTypeBroker, "", key, set, kmsg.StringPtr("0"))
		}))
	}
	return append(steps,
		one("settings of a topic with an illegal name", func(s *side) kmsg.Request {
			return changeConfig(kmsg.ConfigResourceTypeTopic, "a/b", "retention.ms", set, kmsg.StringPtr("1"))
		}),
		one("one kind of resource twice", func(*side) kmsg.Request {
			req := kmsg.NewPtrListConfigResourcesRequest()
			req.ResourceTypes = []int8{int8(kmsg.ConfigResourceTypeBroker), int8(kmsg.ConfigResourceTypeBroker)}
			return req
		}))
}

// oddSessions is a fetch session in which a topic goes and comes back, and one
// that loses everything.
func oddSessions() []step {
	ids := map[*side]int32{}
	ask := func(name string, epoch int32, edit func(s *side, req *kmsg.FetchRequest)) step {
		return step{name: name, version: 12,
			request: func(s *side) kmsg.Request {
				req := fetch(s.topic("quiet"), 0, 0)
				req.SessionID, req.SessionEpoch = ids[s], epoch
				edit(s, req)
				return req
			},
			learn: func(s *side, resp kmsg.Response) { ids[s] = max(ids[s], resp.(*kmsg.FetchResponse).SessionID) }}
	}
	nothing := func(_ *side, req *kmsg.FetchRequest) { req.Topics = nil }
	forget := func(name string, req *kmsg.FetchRequest, s *side) {
		req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: s.topic(name).name, Partitions: []int32{0}})
	}
	steps := []step{
		ask("a session of two topics", 0, func(s *side, req *kmsg.FetchRequest) {
			req.SessionID = 0
			req.Topics = append(req.Topics, fetch(s.topic("odd"), 0, 0).Topics...)
		}),
		ask("a negative epoch", -5, nothing),
		one("one topic goes", func(s *side) kmsg.Request { return deleteTopic(s.prefix + "quiet") }),
		{name: "it has gone", version: newest, request: func(s *side) kmsg.Request { return metadataOf(s.prefix + "quiet") }, until: func(resp kmsg.Response) bool {
			return resp.(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0
		}},
		ask("an error", 1, nothing),
		ask("the error again", 2, nothing),
	}
	steps = append(steps, create("quiet", 1)...)
	return append(steps,
		step{name: "it can be read", version: 12, request: func(s *side) kmsg.Request { return fetch(s.topic("quiet"), 0, 0) }, until: func(resp kmsg.Response) bool {
			return resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode == 0
		}},
		ask("the error is over", 3, nothing),
		ask("nothing new", 4, nothing),
		ask("wanted and forgotten", 5, func(s *side, req *kmsg.FetchRequest) { forget("quiet", req, s) }),
		ask("it was forgotten", 6, func(_ *side, req *kmsg.FetchRequest) { req.Topics = nil }),
		ask("the last is forgotten", 7, func(s *side, req *kmsg.FetchRequest) { req.Topics = nil; forget("odd", req, s) }),
		ask("the session is no more", 8, nothing))
}
