package compat

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

const newest = -1

// at is the same step in each of some versions.
func at(name string, request func(*side) kmsg.Request, versions ...int16) (steps []step) {
	for _, v := range versions {
		steps = append(steps, step{name: name, version: v, request: request})
	}
	return steps
}

// one is a step in the newest version both serve.
func one(name string, request func(*side) kmsg.Request) step {
	return step{name: name, version: newest, request: request}
}

func upTo(version int16) (versions []int16) {
	for v := range version + 1 {
		versions = append(versions, v)
	}
	return versions
}

// create makes a topic and remembers its id.
func create(name string, partitions int32, settings ...string) []step {
	return []step{
		{name: "create " + name, version: newest,
			request: func(s *side) kmsg.Request { return createTopic(s.prefix+name, partitions, settings...) },
			learn: func(s *side, resp kmsg.Response) {
				id := resp.(*kmsg.CreateTopicsResponse).Topics[0].TopicID
				s.topics[name], s.ids[id] = topic{s.prefix + name, id}, name
			}},
		{name: name + " has leaders", version: newest,
			request: func(s *side) kmsg.Request { return metadataOf(s.prefix + name) },
			until: func(resp kmsg.Response) bool {
				t := resp.(*kmsg.MetadataResponse).Topics[0]
				return t.ErrorCode == 0 && len(t.Partitions) == int(partitions) && t.Partitions[0].ErrorCode == 0
			}},
	}
}

func topicStory() []step {
	named := func(f func(name string) kmsg.Request, name string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return f(s.prefix + name) }
	}
	of := func(f func(string, int32) *kmsg.CreatePartitionsRequest, name string, n int32) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return f(s.prefix+name, n) }
	}
	invalid := func(edit func(t *kmsg.CreateTopicsRequestTopic)) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			req := createTopic(s.prefix+"never", 1)
			edit(&req.Topics[0])
			return req
		}
	}
	meta := func(name string) kmsg.Request { return metadataOf(name) }
	steps := create("orders", 2)
	steps = append(steps, create("compacted", 1, "cleanup.policy", "compact")...)
	steps = append(steps, create("stamped", 1, "message.timestamp.type", "LogAppendTime")...)
	steps = append(steps, create("doomed", 1)...)
	steps = append(steps, create("small", 1, "max.message.bytes", "1000")...)
	steps = append(steps, at("a topic that exists", func(s *side) kmsg.Request { return createTopic(s.prefix+"orders", 2) }, upTo(7)...)...)
	steps = append(steps,
		one("no partitions", invalid(func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 0 })),
		one("fewer than the default", invalid(func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = -2 })),
		one("illegal name", func(s *side) kmsg.Request { return createTopic("a/b", 1) }),
		one("empty name", func(s *side) kmsg.Request { return createTopic("", 1) }),
		one("name .", func(s *side) kmsg.Request { return createTopic(".", 1) }),
		one("name of 250 bytes", func(s *side) kmsg.Request { return createTopic(strings.Repeat("x", 250), 1) }),
		one("unknown setting", invalid(func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "color", Value: kmsg.StringPtr("blue")}}
		})),
		one("bad value", invalid(func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: kmsg.StringPtr("soon")}}
		})),
		one("null value", invalid(func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
		})),
		one("assignment and partitions", invalid(func(t *kmsg.CreateTopicsRequestTopic) {
			t.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{0}}}
		})),
		one("assignment to an unknown node", invalid(func(t *kmsg.CreateTopicsRequestTopic) {
			t.NumPartitions, t.ReplicationFactor = -1, -1
			t.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{77}}}
		})),
		one("assignment with a gap", func(s *side) kmsg.Request {
			req := createTopic(s.prefix+"never", -1)
			req.Topics[0].ReplicationFactor = -1
			req.Topics[0].ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 1, Replicas: []int32{s.node}}}
			return req
		}),
		one("replication factor 0", invalid(func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 0 })),
		one("the same topic twice", func(s *side) kmsg.Request {
			req := createTopic(s.prefix+"never", 1)
			req.Topics = append(req.Topics, req.Topics[0])
			return req
		}),
		one("validate only", func(s *side) kmsg.Request {
			req := createTopic(s.prefix+"never", 3, "retention.ms", "1000")
			req.ValidateOnly = true
			return req
		}),
		one("one bad, one good", func(s *side) kmsg.Request {
			req := createTopic(s.prefix+"never", 1, "segment.bytes", "-4")
			req.Topics = append(req.Topics, createTopic(s.prefix+"beside", 1).Topics...)
			return req
		}),
		one("name that collides", func(s *side) kmsg.Request { return createTopic(s.prefix+"a.b", 1) }),
		one("name that collides", func(s *side) kmsg.Request { return createTopic(s.prefix+"a_b", 1) }),
	)
	steps = append(steps, at("a topic", named(meta, "orders"), upTo(13)...)...)
	steps = append(steps, at("an unknown topic", named(meta, "nowhere"), 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)...)
	steps = append(steps, at("no topics", func(*side) kmsg.Request { return metadataOf() }, 1, 4, 9, 13)...)
	byID := func(name string) func(s *side) kmsg.Request {
		return func(s *side) kmsg.Request {
			req := metadataOf("")
			req.Topics[0].Topic, req.Topics[0].TopicID = nil, s.topic(name).id
			return req
		}
	}
	steps = append(steps, at("by id", byID("orders"), 12, 13)...)
	steps = append(steps, at("by an unknown id", byID("nowhere"), 12, 13)...)
	steps = append(steps, at("with operations", func(s *side) kmsg.Request {
		req := metadataOf(s.prefix + "orders")
		req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
		return req
	}, 8, 10, 12)...)
	steps = append(steps, at("more partitions", of(createPartitions, "orders", 3), newest)...)
	steps = append(steps,
		step{name: "they are there", version: newest, request: named(meta, "orders"), until: func(resp kmsg.Response) bool {
			return len(resp.(*kmsg.MetadataResponse).Topics[0].Partitions) == 3
		}},
		one("the same number", of(createPartitions, "orders", 3)),
		one("fewer", of(createPartitions, "orders", 1)),
		one("no partitions at all", of(createPartitions, "orders", 0)),
		one("of an unknown topic", of(createPartitions, "nowhere", 9)),
		one("with an assignment of another length", func(s *side) kmsg.Request {
			req := createPartitions(s.prefix+"orders", 5)
			req.Topics[0].Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{s.node}}}
			return req
		}),
		one("to an unknown node", func(s *side) kmsg.Request {
			req := createPartitions(s.prefix+"orders", 4)
			req.Topics[0].Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{99}}}
			return req
		}),
		one("one topic twice", func(s *side) kmsg.Request {
			req := createPartitions(s.prefix+"orders", 5)
			req.Topics = append(req.Topics, req.Topics[0])
			return req
		}),
		one("partitions of a topic", func(s *side) kmsg.Request { return describePartitions(s.prefix + "orders") }),
		one("partitions of an unknown topic", func(s *side) kmsg.Request { return describePartitions(s.prefix + "nowhere") }),
		one("partitions with an illegal name", func(*side) kmsg.Request { return describePartitions("a/b") }),
		one("a page of partitions", func(s *side) kmsg.Request {
			req := describePartitions(s.prefix + "orders")
			req.ResponsePartitionLimit = 2
			return req
		}),
		one("the next page", func(s *side) kmsg.Request {
			req := describePartitions(s.prefix + "orders")
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: s.prefix + "orders", Partition: 2}
			return req
		}),
	)
	for _, v := range []int16{1, 5, newest} {
		steps = append(steps, at("delete an unknown topic", func(s *side) kmsg.Request { return deleteTopic(s.prefix + "nowhere") }, v)...)
	}
	steps = append(steps,
		one("delete by an unknown id", func(s *side) kmsg.Request {
			req := deleteTopic("")
			req.Topics[0].Topic, req.Topics[0].TopicID = nil, s.topic("nowhere").id
			return req
		}),
		one("delete by name and id", func(s *side) kmsg.Request {
			req := deleteTopic(s.prefix + "orders")
			req.Topics[0].TopicID = s.topic("orders").id
			return req
		}),
		one("delete by neither", func(s *side) kmsg.Request {
			req := deleteTopic("")
			req.Topics[0].Topic = nil
			return req
		}),
		one("delete", func(s *side) kmsg.Request { return deleteTopic(s.prefix + "doomed") }),
		one("delete by id", func(s *side) kmsg.Request {
			req := deleteTopic("")
			req.Topics[0].Topic, req.Topics[0].TopicID = nil, s.topic("doomed").id
			return req
		}),
		step{name: "it is gone", version: newest, request: named(meta, "doomed"), until: func(resp kmsg.Response) bool {
			return resp.(*kmsg.MetadataResponse).Topics[0].ErrorCode != 0
		}},
		one("the node", func(*side) kmsg.Request {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.IncludeClusterAuthorizedOperations = true
			return req
		}),
		one("the controllers", func(*side) kmsg.Request {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType = 2
			return req
		}),
		one("what is no endpoint", func(*side) kmsg.Request {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType = 9
			return req
		}),
		one("elect the preferred leader", func(s *side) kmsg.Request { return electLeader(s.prefix+"orders", 0) }),
		one("elect a leader of an unknown topic", func(s *side) kmsg.Request { return electLeader(s.prefix+"nowhere", 0) }),
		one("elect a leader of an unknown partition", func(s *side) kmsg.Request { return electLeader(s.prefix+"orders", 9) }),
		one("an unclean election", func(s *side) kmsg.Request {
			req := electLeader(s.prefix+"orders", 0)
			req.ElectionType = 1
			return req
		}),
		one("an election of no known type", func(s *side) kmsg.Request {
			req := electLeader(s.prefix+"orders", 0)
			req.ElectionType = 7
			return req
		}),
		one("reassignments of a topic", func(s *side) kmsg.Request {
			req := kmsg.NewPtrListPartitionReassignmentsRequest()
			req.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: s.prefix + "orders", Partitions: []int32{0, 9}}}
			return req
		}),
		one("log directories of a topic", func(s *side) kmsg.Request { return describeLogDirs(s.prefix+"orders", 0, 2, 9) }),
		one("log directories of an unknown topic", func(s *side) kmsg.Request { return describeLogDirs(s.prefix+"nowhere", 0) }),
	)
	return steps
}

func recordStory() []step {
	write := func(name string, partition int32, acks int16, data func(s *side) []byte) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return produce(s.topic(name), partition, acks, data(s)) }
	}
	some := func(s *side) []byte { return records(s.t, nil, false, "a", "b", "c") }
	damaged := func(at int) func(s *side) []byte {
		return func(s *side) []byte {
			b := some(s)
			b[at] ^= 0x55
			return b
		}
	}
	var steps []step
	for v := int16(3); v <= 13; v++ {
		steps = append(steps, at("three records", write("orders", 0, -1, some), v)...)
	}
	steps = append(steps, at("to an unknown topic", write("nowhere", 0, -1, some), 3, 8, 12, 13)...)
	steps = append(steps, at("to an unknown partition", write("orders", 9, -1, some), 3, 8, 13)...)
	steps = append(steps,
		step{name: "to an illegal name", version: 8, request: func(s *side) kmsg.Request { return produce(topic{name: "a/b"}, 0, -1, some(s)) }},
		one("one acknowledgement", write("orders", 0, 1, some)),
		one("two acknowledgements", write("orders", 0, 2, some)),
		one("a flipped bit in a record", write("orders", 0, -1, damaged(70))),
		one("a flipped bit in the length", write("orders", 0, -1, damaged(11))),
		one("another magic", write("orders", 0, -1, damaged(16))),
		one("no bytes", write("orders", 0, -1, func(*side) []byte { return []byte{} })),
		one("two batches", write("orders", 0, -1, func(s *side) []byte { return append(some(s), some(s)...) })),
		one("half a batch", write("orders", 0, -1, func(s *side) []byte { return some(s)[:80] })),
		one("no key", write("compacted", 0, -1, func(s *side) []byte { return keyless(s) })),
		one("too large", write("small", 0, -1, func(s *side) []byte { return records(s.t, nil, false, strings.Repeat("x", 2000)) })),
		one("of the broker's time", write("stamped", 0, -1, some)),
		one("a control batch", write("orders", 0, -1, func(*side) []byte {
			return batch.NewMarker(batch.Marker{Type: batch.Commit, Producer: model.ProducerIdentity{ID: 9}}).Bytes()
		})),
		one("transactional without a name", write("orders", 0, -1, func(s *side) []byte {
			return records(s.t, &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 9}}, true, "x")
		})),
	)
	get := func(name string, partition int32, offset int64, edit func(*kmsg.FetchRequest)) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			req := fetch(s.topic(name), partition, offset)
			if edit != nil {
				edit(req)
			}
			return req
		}
	}
	for v := int16(4); v <= 18; v++ {
		steps = append(steps, at("the records", get("orders", 0, 0, nil), v)...)
	}
	partition := func(edit func(*kmsg.FetchRequestTopicPartition)) func(*kmsg.FetchRequest) {
		return func(req *kmsg.FetchRequest) { edit(&req.Topics[0].Partitions[0]) }
	}
	steps = append(steps, at("of an unknown topic", get("nowhere", 0, 0, nil), 4, 12, 13, 18)...)
	steps = append(steps, at("of an unknown partition", get("orders", 9, 0, nil), 4, 12, 18)...)
	steps = append(steps,
		one("in the middle of a batch", get("orders", 0, 4, nil)),
		one("at the end", get("orders", 0, 39, nil)),
		one("beyond the end", get("orders", 0, 1000, nil)),
		one("before the start", get("orders", 0, -5, nil)),
		one("one byte", get("orders", 0, 0, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 })),
		one("one byte of the partition", get("orders", 0, 0, partition(func(p *kmsg.FetchRequestTopicPartition) { p.PartitionMaxBytes = 1 }))),
		one("nothing at all", get("orders", 0, 0, func(r *kmsg.FetchRequest) { r.MaxBytes = 0 })),
		one("committed records", get("orders", 0, 0, func(r *kmsg.FetchRequest) { r.IsolationLevel = 1 })),
		one("with an epoch of the future", get("orders", 0, 0, partition(func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 1000 }))),
		one("with a last fetched epoch of the future", get("orders", 0, 3, partition(func(p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 1000 }))),
		one("in a session that never was", get("orders", 0, 0, func(r *kmsg.FetchRequest) { r.SessionID, r.SessionEpoch = 12345, 3 })),
		one("stamped by the broker", get("stamped", 0, 0, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 })),
	)
	where := func(name string, p int32, timestamp int64) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return listOffsets(s.prefix+name, p, timestamp) }
	}
	for _, v := range []int16{1, 4, 7, 9, 11} {
		for _, timestamp := range []int64{-1, -2, -3, -4, -5, -7, 0, int64(recordTime) + 1, 1 << 42} {
			steps = append(steps, at("offset at "+when(timestamp), where("orders", 0, timestamp), v)...)
		}
		steps = append(steps, at("offset in an unknown topic", where("nowhere", 0, -1), v)...)
		steps = append(steps, at("offset in an unknown partition", where("orders", 9, -1), v)...)
		steps = append(steps, at("offset in an empty partition", where("orders", 1, -3), v)...)
		steps = append(steps, at("offset at a time in an empty partition", where("orders", 1, 5), v)...)
	}
	steps = append(steps,
		one("the end of epoch 0", func(s *side) kmsg.Request { return epochEnd(s.prefix+"orders", 0, 0) }),
		one("the end of a later epoch", func(s *side) kmsg.Request { return epochEnd(s.prefix+"orders", 0, 7) }),
		one("the end of an epoch before all", func(s *side) kmsg.Request { return epochEnd(s.prefix+"orders", 0, -1) }),
		one("the end of an epoch of an unknown topic", func(s *side) kmsg.Request { return epochEnd(s.prefix+"nowhere", 0, 0) }),
		one("delete records", func(s *side) kmsg.Request { return deleteRecords(s.prefix+"orders", 0, 4) }),
		one("delete them again", func(s *side) kmsg.Request { return deleteRecords(s.prefix+"orders", 0, 2) }),
		one("delete beyond the end", func(s *side) kmsg.Request { return deleteRecords(s.prefix+"orders", 0, 4000) }),
		one("delete before -1", func(s *side) kmsg.Request { return deleteRecords(s.prefix+"orders", 0, -2) }),
		one("delete in an unknown topic", func(s *side) kmsg.Request { return deleteRecords(s.prefix+"nowhere", 0, 1) }),
		one("delete in a compacted topic", func(s *side) kmsg.Request { return deleteRecords(s.prefix+"compacted", 0, 0) }),
		one("what was deleted", get("orders", 0, 0, nil)),
		one("in the middle of what was deleted", get("orders", 0, 4, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 })),
		one("offset at the start", where("orders", 0, -2)),
		one("offset at a time that was deleted", where("orders", 0, 0)),
	)
	return steps
}

// when shows a timestamp the same way in every run.
func when(timestamp int64) string {
	if timestamp == int64(recordTime)+1 {
		return "the second record"
	}
	return fmt.Sprint(timestamp)
}

// keyless is a batch of a record without a key.
func keyless(s *side) []byte {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Add(batch.NewRecord{Timestamp: recordTime, Value: []byte("v")})
	v, err := b.Build()
	if err != nil {
		s.t.Fatal(err)
	}
	return v.Bytes()
}

// randomSteps asks what changes nothing, with arguments from small pools of good
// and bad ones, in any version.
func randomSteps(r *rand.Rand, n int) (steps []step) {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	number := func(numbers ...int64) int64 { return numbers[r.IntN(len(numbers))] }
	for range n {
		name, group, tx := pick("orders", "stamped", "nowhere", "compacted"), pick("readers", "workers", "strangers", ""), pick("tx1", "tx2", "strangers")
		partition, offset, timestamp := int32(number(0, 1, 2, 3, -1)), number(0, 1, 39, 1000, -1), number(-1, -2, -3, -4, 0, int64(recordTime)+1)
		isolation, session := int8(number(0, 1)), int32(number(-1, 0, 5))
		var request func(s *side) kmsg.Request
		kind := r.IntN(10)
		switch kind {
		case 0:
			request = func(s *side) kmsg.Request {
				req := fetch(s.topic(name), partition, offset)
				req.IsolationLevel, req.Topics[0].Partitions[0].CurrentLeaderEpoch = isolation, session
				return req
			}
		case 1:
			request = func(s *side) kmsg.Request {
				req := listOffsets(s.prefix+name, partition, timestamp)
				req.IsolationLevel, req.Topics[0].Partitions[0].CurrentLeaderEpoch = isolation, session
				return req
			}
		case 2:
			request = func(s *side) kmsg.Request { return fetchOffsets(s.group(group), s.topic(name), partition, 0) }
		case 3:
			request = func(s *side) kmsg.Request { return describeGroup(s.group(group)) }
		case 4:
			request = func(s *side) kmsg.Request { return heartbeat(s.group(group), member{id: "x", generation: session}) }
		case 5:
			request = func(s *side) kmsg.Request { return describeTxn(s.prefix + tx) }
		case 6:
			request = func(s *side) kmsg.Request { return describeProducers(s.prefix+name, partition) }
		case 7:
			request = func(s *side) kmsg.Request { return metadataOf(s.prefix+name, s.prefix+"orders") }
		case 8:
			request = func(s *side) kmsg.Request { return leave(s.group(group), member{id: "x"}) }
		case 9:
			request = func(s *side) kmsg.Request { return epochEnd(s.prefix+name, partition, session) }
		}
		st := one(fmt.Sprintf("%s %s %s partition %d offset %d at %s", name, group, tx, partition, offset, when(timestamp)), request)
		if st.version = int16(r.IntN(14)); st.version < 4 && kind == 7 {
			st.version += 4 // Metadata before version 4 creates what it asks for
		}
		steps = append(steps, st)
	}
	return steps
}
