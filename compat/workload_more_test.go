package compat

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// sessionStory is one incremental fetch session, from first to last.
func sessionStory() []step {
	var ids = map[*side]int32{} // session ids, which each side chooses
	ask := func(name string, epoch int32, edit func(s *side, req *kmsg.FetchRequest)) step {
		return step{name: name, version: newest,
			request: func(s *side) kmsg.Request {
				req := fetch(s.topic("orders"), 0, 4)
				req.SessionID, req.SessionEpoch = ids[s], epoch
				edit(s, req)
				return req
			},
			learn: func(s *side, resp kmsg.Response) {
				if id := resp.(*kmsg.FetchResponse).SessionID; id != 0 {
					ids[s] = id
				}
			}}
	}
	nothing := func(_ *side, req *kmsg.FetchRequest) { req.Topics = nil }
	same := func(*side, *kmsg.FetchRequest) {}
	return []step{
		ask("a session begins", 0, same),
		ask("nothing new in it, one partition asked again", 1, same),
		ask("everything was read", 2, func(s *side, req *kmsg.FetchRequest) { req.Topics[0].Partitions[0].FetchOffset = 36 }),
		ask("nothing new", 3, nothing),
		one("three more", func(s *side) kmsg.Request {
			return produce(s.topic("orders"), 0, -1, records(s.t, nil, false, "d", "e", "f"))
		}),
		ask("they come", 4, nothing),
		ask("another partition joins", 5, func(s *side, req *kmsg.FetchRequest) {
			req.Topics[0].Partitions[0].Partition, req.Topics[0].Partitions[0].FetchOffset = 1, 0
		}),
		ask("an unknown partition joins", 6, func(s *side, req *kmsg.FetchRequest) { req.Topics[0].Partitions[0].Partition = 44 }),
		ask("the first is forgotten", 7, func(s *side, req *kmsg.FetchRequest) {
			req.Topics = nil
			req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: s.topic("orders").id, Partitions: []int32{0, 44}}}
		}),
		ask("an old epoch", 3, nothing),
		ask("an epoch too far", 90, nothing),
		ask("the right epoch after those", 8, nothing),
		ask("it ends", -1, func(s *side, req *kmsg.FetchRequest) { req.Topics[0].Partitions[0].FetchOffset = 36 }),
		ask("it has ended", 9, nothing),
	}
}

// operatorStory is what operators and brokers ask around transactions.
func operatorStory() []step {
	as := func(f func(s *side, p producer) kmsg.Request) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return f(s, s.producer("tx3")) }
	}
	begins := step{name: "tx3 begins", version: 4,
		request: func(s *side) kmsg.Request { return initProducer(newcomer(s.prefix + "tx3")) },
		learn: func(s *side, resp kmsg.Response) {
			r := resp.(*kmsg.InitProducerIDResponse)
			s.producers["tx3"] = producer{s.prefix + "tx3", r.ProducerID, r.ProducerEpoch}
		}}
	write := func(s *side, p producer) kmsg.Request {
		b := &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: model.ProducerID(p.id), Epoch: model.ProducerEpoch(p.epoch)}}
		req := produce(s.topic("markers"), 0, -1, records(s.t, b, true, "x"))
		req.TransactionID = &p.txid
		return req
	}
	batched := func(partition int32, verify bool) func(s *side, p producer) kmsg.Request {
		return func(s *side, p producer) kmsg.Request { return addPartition(p, s.prefix+"markers", partition, verify) }
	}
	open := func(s *side) kmsg.Request { return describeProducers(s.prefix+"markers", 0) }
	at := func(name string, version int16, request func(*side) kmsg.Request) step {
		return step{name: name, version: version, request: request}
	}
	return append(create("markers", 2), begins,
		at("verify a partition that is not in it", 4, as(batched(0, true))),
		at("add it", 4, as(batched(0, false))),
		at("add it, version 5", 5, as(batched(0, false))),
		at("verify it", 4, as(batched(0, true))),
		at("verify it, version 5", 5, as(batched(0, true))),
		at("add an unknown partition", 4, as(batched(9, false))),
		at("write", 11, as(write)),
		at("who writes", newest, open),
		at("an operator's marker of an older epoch", 1, as(func(s *side, p producer) kmsg.Request {
			p.epoch--
			return writeMarker(p, s.prefix+"markers", 0, false)
		})),
		at("an operator's marker", 1, as(func(s *side, p producer) kmsg.Request { return writeMarker(p, s.prefix+"markers", 0, false) })),
		at("an operator's marker for a stranger", 1, func(s *side) kmsg.Request { return writeMarker(producer{"", 1 << 40, 0}, s.prefix+"markers", 0, true) }),
		at("an operator's marker in an unknown topic", 1, as(func(s *side, p producer) kmsg.Request { return writeMarker(p, s.prefix+"nowhere", 0, true) })),
		at("nothing is open any more", newest, open),
		at("the log", newest, func(s *side) kmsg.Request { return fetch(s.topic("markers"), 0, 0) }),
		at("abort all the same", 3, as(func(_ *side, p producer) kmsg.Request { return endTxn(p, false) })),
		decided("what it is", "tx3"),
	)
}

// clusterStory is about users and what else is there once.
func clusterStory() []step {
	user := func(f func(name string) kmsg.Request, name string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return f(s.prefix + name) }
	}
	describe := func(name string) kmsg.Request { return describeSCRAM(name) }
	settled := func(gone bool) func(kmsg.Response) bool {
		return func(resp kmsg.Response) bool {
			return (resp.(*kmsg.DescribeUserSCRAMCredentialsResponse).Results[0].ErrorCode != 0) == gone
		}
	}
	alter := func(edit func(*kmsg.AlterUserSCRAMCredentialsRequest)) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			req := upsertSCRAM(s.prefix + "clerk")
			edit(req)
			return req
		}
	}
	remove := func(mechanism int8) func(*kmsg.AlterUserSCRAMCredentialsRequest) {
		return func(req *kmsg.AlterUserSCRAMCredentialsRequest) {
			req.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: req.Upsertions[0].Name, Mechanism: mechanism}}
			req.Upsertions = nil
		}
	}
	hello := func(name, version string) func(*side) kmsg.Request {
		return func(*side) kmsg.Request {
			req := kmsg.NewPtrApiVersionsRequest()
			req.ClientSoftwareName, req.ClientSoftwareVersion = name, version
			return req
		}
	}
	steps := []step{
		one("an unknown user", user(describe, "clerk")),
		one("no such credential", alter(remove(1))),
		one("too few iterations", alter(func(r *kmsg.AlterUserSCRAMCredentialsRequest) { r.Upsertions[0].Iterations = 10 })),
		one("too many iterations", alter(func(r *kmsg.AlterUserSCRAMCredentialsRequest) { r.Upsertions[0].Iterations = 1 << 20 })),
		one("an unknown mechanism", alter(func(r *kmsg.AlterUserSCRAMCredentialsRequest) { r.Upsertions[0].Mechanism = 9 })),
		one("no name", alter(func(r *kmsg.AlterUserSCRAMCredentialsRequest) { r.Upsertions[0].Name = "" })),
		one("the same twice", alter(func(r *kmsg.AlterUserSCRAMCredentialsRequest) { r.Upsertions = append(r.Upsertions, r.Upsertions[0]) })),
		one("a credential", alter(func(*kmsg.AlterUserSCRAMCredentialsRequest) {})),
		{name: "the user", version: newest, request: user(describe, "clerk"), until: settled(false)},
		one("asked for twice", func(s *side) kmsg.Request {
			req := describeSCRAM(s.prefix + "clerk")
			req.Users = append(req.Users, req.Users[0])
			return req
		}),
		one("delete it", alter(remove(1))),
		{name: "it is gone", version: newest, request: user(describe, "clerk"), until: settled(true)},
		one("a client without a name", hello("", "1")),
		one("a client with an odd version", hello("x", "1 beta")),
		one("config resources of an unknown kind", func(*side) kmsg.Request {
			req := kmsg.NewPtrListConfigResourcesRequest()
			req.ResourceTypes = []int8{77}
			return req
		}),
	}
	return steps
}
