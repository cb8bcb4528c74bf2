package compat

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// group returns the side's name of a group; the empty one stays empty.
func (s *side) group(name string) string {
	if name == "" {
		return ""
	}
	return s.prefix + name
}

func groupStory() []step {
	in := func(group string, f func(string, member) kmsg.Request, m string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return f(s.group(group), s.members[m]) }
	}
	// as makes the request of a member whose answer tells its id and generation.
	as := func(name string, version int16, group, m string, edit func(*kmsg.JoinGroupRequest)) step {
		return step{name: name, version: version,
			request: func(s *side) kmsg.Request {
				req := join(s.group(group), s.members[m])
				if edit != nil {
					edit(req)
				}
				return req
			},
			learn: func(s *side, resp kmsg.Response) {
				r := resp.(*kmsg.JoinGroupResponse)
				s.members[m] = member{id: r.MemberID, instance: s.members[m].instance, generation: r.Generation}
			}}
	}
	joins := func(g string, m member) kmsg.Request { return join(g, m) }
	syncs := func(g string, m member) kmsg.Request { return sync(g, m) }
	beats := func(g string, m member) kmsg.Request { return heartbeat(g, m) }
	leaves := func(g string, m member) kmsg.Request { return leave(g, m) }
	describes := func(g string, _ member) kmsg.Request { return describeGroup(g) }
	deletes := func(g string, _ member) kmsg.Request { return deleteGroup(g) }
	stranger := func(f func(string, member) kmsg.Request) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return f(s.group("readers"), member{id: "stranger", generation: 1}) }
	}
	old := func(f func(string, member) kmsg.Request) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			m := s.members["ann"]
			m.generation += 5
			return f(s.group("readers"), m)
		}
	}
	commits := func(group, m, of string, partition int32, offset int64) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			return commit(s.group(group), s.members[m], s.topic(of), partition, offset)
		}
	}
	offsets := func(group, of string, partitions ...int32) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return fetchOffsets(s.group(group), s.topic(of), partitions...) }
	}
	var steps []step
	steps = append(steps, at("a group's coordinator", func(s *side) kmsg.Request { return findCoordinator(0, 0, s.group("readers")) }, upTo(6)...)...)
	steps = append(steps,
		one("a transaction's coordinator", func(s *side) kmsg.Request { return findCoordinator(0, 1, s.prefix+"tx1") }),
		one("a coordinator of nothing known", func(s *side) kmsg.Request { return findCoordinator(0, 5, s.prefix+"tx1") }),
		one("a coordinator of no group", func(*side) kmsg.Request { return findCoordinator(0, 0, "") }),
	)
	// Before there is anything.
	for _, v := range []int16{0, 5, 6} {
		steps = append(steps, at("describe a group that is not", in("strangers", describes, "nobody"), v)...)
	}
	for _, v := range []int16{1, 7, 8, 9, 10} {
		steps = append(steps, at("offsets of a group that is not", offsets("strangers", "orders", 0, 1), v)...)
	}
	steps = append(steps,
		one("delete a group that is not", in("strangers", deletes, "nobody")),
		one("a heartbeat to a group that is not", in("strangers", beats, "nobody")),
		one("sync with a group that is not", in("strangers", syncs, "nobody")),
		one("leave a group that is not", in("strangers", leaves, "nobody")),
		one("delete an offset of a group that is not", func(s *side) kmsg.Request { return deleteOffset(s.group("strangers"), s.prefix+"orders", 0) }),
		one("join a group without a name", in("", joins, "nobody")),
		as("join with a session too short", newest, "readers", "nobody2", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 5 }),
		as("join with a session too long", newest, "readers", "nobody2", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 << 30 }),
		as("join without protocols", newest, "readers", "nobody2", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }),
		as("join without a protocol type", newest, "readers", "nobody2", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }),
	)
	// One member, from first to last.
	steps = append(steps,
		as("ann knocks", 9, "readers", "ann", nil),
		as("ann joins", 9, "readers", "ann", nil),
		one("sync as a stranger", stranger(syncs)),
		one("sync of another generation", old(syncs)),
		one("sync with another protocol", func(s *side) kmsg.Request {
			req := sync(s.group("readers"), s.members["ann"])
			req.Protocol = kmsg.StringPtr("roundrobin")
			return req
		}),
		one("commit before the sync", commits("readers", "ann", "orders", 0, 1)),
		one("ann syncs", in("readers", syncs, "ann")),
		one("ann syncs again", in("readers", syncs, "ann")),
		one("ann's heart beats", in("readers", beats, "ann")),
		one("a stranger's heart beats", stranger(beats)),
		one("a heart of another generation beats", old(beats)),
	)
	for _, v := range []int16{0, 3, 4, 5, 6} {
		steps = append(steps, at("describe the group", in("readers", describes, "nobody"), v)...)
	}
	steps = append(steps, one("describe with operations", func(s *side) kmsg.Request {
		req := describeGroup(s.group("readers"))
		req.IncludeAuthorizedOperations = true
		return req
	}))
	for _, v := range []int16{2, 5, 7, 8, 9, 10} {
		steps = append(steps, at("ann commits", commits("readers", "ann", "orders", 0, int64(v)), v)...)
		steps = append(steps, at("what ann committed", offsets("readers", "orders", 0, 1, 9), v)...)
	}
	steps = append(steps,
		one("commit from outside into a live group", commits("readers", "nobody", "orders", 0, 1)),
		one("a stranger commits", func(s *side) kmsg.Request {
			return commit(s.group("readers"), member{id: "stranger", generation: 1}, s.topic("orders"), 0, 1)
		}),
		one("commit in an unknown topic", commits("readers", "ann", "nowhere", 0, 1)),
		step{name: "commit in an unknown topic by name", version: 8, request: commits("readers", "ann", "nowhere", 0, 1)},
		one("commit in an unknown partition", commits("readers", "ann", "orders", 77, 1)),
		one("commit a negative offset", commits("readers", "ann", "orders", 0, -4)),
		one("commit a long note", func(s *side) kmsg.Request {
			req := commit(s.group("readers"), s.members["ann"], s.topic("orders"), 0, 1)
			req.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(fmt.Sprintf("%5000d", 1))
			return req
		}),
		one("no note", func(s *side) kmsg.Request {
			req := commit(s.group("readers"), s.members["ann"], s.topic("orders"), 1, 1)
			req.Topics[0].Partitions[0].Metadata = nil
			return req
		}),
		one("offset without a note", offsets("readers", "orders", 1)),
		one("all offsets", func(s *side) kmsg.Request {
			req := fetchOffsets(s.group("readers"), s.topic("orders"))
			req.Topics, req.Groups[0].Topics = nil, nil
			return req
		}),
		one("stable offsets", func(s *side) kmsg.Request {
			req := fetchOffsets(s.group("readers"), s.topic("orders"), 0)
			req.RequireStable = true
			return req
		}),
		one("offsets in an unknown topic", offsets("readers", "nowhere", 0)),
		one("delete a group with a member", in("readers", deletes, "nobody")),
		one("delete an offset the group reads", func(s *side) kmsg.Request { return deleteOffset(s.group("readers"), s.prefix+"orders", 0) }),
		one("join with another protocol type", func(s *side) kmsg.Request {
			req := join(s.group("readers"), nobody)
			req.ProtocolType = "connect"
			return req
		}),
		one("join with another protocol", func(s *side) kmsg.Request {
			req := join(s.group("readers"), nobody)
			req.Protocols[0].Name = "mine"
			return req
		}),
		one("join as a stranger", func(s *side) kmsg.Request { return join(s.group("readers"), member{id: "stranger"}) }),
		as("ann joins again with nothing new", 9, "readers", "ann", nil),
		one("sync after that", in("readers", syncs, "ann")),
	)
	list := func(edit func(*kmsg.ListGroupsRequest)) func(*side) kmsg.Request {
		return func(*side) kmsg.Request {
			req := kmsg.NewPtrListGroupsRequest()
			edit(req)
			return req
		}
	}
	for _, v := range []int16{0, 3, 4, 5} {
		steps = append(steps, at("all groups", list(func(*kmsg.ListGroupsRequest) {}), v)...)
	}
	steps = append(steps,
		one("stable groups", list(func(r *kmsg.ListGroupsRequest) { r.StatesFilter = []string{"sTaBlE"} })),
		one("empty groups", list(func(r *kmsg.ListGroupsRequest) { r.StatesFilter = []string{"Empty"} })),
		one("classic groups", list(func(r *kmsg.ListGroupsRequest) { r.TypesFilter = []string{"CLASSIC"} })),
		one("consumer groups", list(func(r *kmsg.ListGroupsRequest) { r.TypesFilter = []string{"consumer"} })),
		one("groups of an unknown type", list(func(r *kmsg.ListGroupsRequest) { r.TypesFilter = []string{"odd"} })),
		one("a stranger leaves", stranger(leaves)),
		one("ann leaves", in("readers", leaves, "ann")),
		one("ann leaves again", in("readers", leaves, "ann")),
		one("ann's heart beats on", in("readers", beats, "ann")),
		one("the group without members", in("readers", describes, "nobody")),
		one("commit from outside", commits("readers", "nobody", "orders", 0, 30)),
		one("what was committed", offsets("readers", "orders", 0)),
		one("delete an offset", func(s *side) kmsg.Request { return deleteOffset(s.group("readers"), s.prefix+"orders", 0) }),
		one("delete an offset of an unknown topic", func(s *side) kmsg.Request { return deleteOffset(s.group("readers"), s.prefix+"nowhere", 0) }),
		one("delete an offset of an unknown partition", func(s *side) kmsg.Request { return deleteOffset(s.group("readers"), s.prefix+"orders", 55) }),
		one("what was deleted", offsets("readers", "orders", 0)),
	)
	// A static member.
	sam := func(r *kmsg.JoinGroupRequest) { r.InstanceID = kmsg.StringPtr("sam") }
	steps = append(steps,
		as("sam joins", 9, "workers", "sam", sam),
		step{name: "sam syncs", version: newest, request: func(s *side) kmsg.Request {
			req := sync(s.group("workers"), s.members["sam"])
			req.InstanceID = kmsg.StringPtr("sam")
			return req
		}},
		as("sam comes back", 9, "workers", "sam2", sam),
		one("the old sam's heart beats", func(s *side) kmsg.Request {
			req := heartbeat(s.group("workers"), s.members["sam"])
			req.InstanceID = kmsg.StringPtr("sam")
			return req
		}),
		one("the old sam commits", func(s *side) kmsg.Request {
			req := commit(s.group("workers"), s.members["sam"], s.topic("orders"), 0, 1)
			req.InstanceID = kmsg.StringPtr("sam")
			return req
		}),
		one("the old sam joins", func(s *side) kmsg.Request {
			req := join(s.group("workers"), s.members["sam"])
			req.InstanceID = kmsg.StringPtr("sam")
			return req
		}),
		one("the group of sam", in("workers", describes, "nobody")),
		one("an unknown instance leaves", func(s *side) kmsg.Request {
			return leave(s.group("workers"), member{instance: kmsg.StringPtr("nobody")})
		}),
		one("sam is removed", func(s *side) kmsg.Request { return leave(s.group("workers"), member{instance: kmsg.StringPtr("sam")}) }),
		one("delete the group", in("workers", deletes, "nobody")),
		one("delete it again", in("workers", deletes, "nobody")),
		one("it is gone", in("workers", describes, "nobody")),
	)
	return steps
}

func transactionStory() []step {
	with := func(f func(s *side, p producer) kmsg.Request, name string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request { return f(s, s.producer(name)) }
	}
	// begins initialises a producer and remembers what it was given.
	begins := func(step_ string, version int16, name string, from func(s *side) producer) step {
		return step{name: step_, version: version,
			request: func(s *side) kmsg.Request { return initProducer(from(s)) },
			learn: func(s *side, resp kmsg.Response) {
				if r := resp.(*kmsg.InitProducerIDResponse); r.ErrorCode == 0 {
					p := from(s)
					s.producers[name] = producer{p.txid, r.ProducerID, r.ProducerEpoch}
				}
			}}
	}
	new := func(txid string) func(s *side) producer {
		return func(s *side) producer { return newcomer(s.prefix + txid) }
	}
	again := func(name string) func(s *side) producer { return func(s *side) producer { return s.producer(name) } }
	enrol := func(topic string, partition int32) func(s *side, p producer) kmsg.Request {
		return func(s *side, p producer) kmsg.Request { return addPartition(p, s.prefix+topic, partition, false) }
	}
	write := func(topic string, partition int32, sequence model.Sequence, transactional bool) func(s *side, p producer) kmsg.Request {
		return func(s *side, p producer) kmsg.Request {
			b := &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: model.ProducerID(p.id), Epoch: model.ProducerEpoch(p.epoch)}, BaseSequence: sequence}
			req := produce(s.topic(topic), partition, -1, records(s.t, b, transactional, "x", "y"))
			if transactional {
				req.TransactionID = &p.txid
			}
			return req
		}
	}
	ends := func(commit bool) func(s *side, p producer) kmsg.Request {
		return func(_ *side, p producer) kmsg.Request { return endTxn(p, commit) }
	}
	epoch := func(f func(s *side, p producer) kmsg.Request, by int16) func(s *side, p producer) kmsg.Request {
		return func(s *side, p producer) kmsg.Request {
			p.epoch += by
			return f(s, p)
		}
	}
	describe := func(s *side, p producer) kmsg.Request { return describeTxn(p.txid) }
	groupOf := func(s *side, p producer) kmsg.Request { return addOffsets(p, s.group("readers")) }
	offset := func(topic string, to int64, m func(s *side) member) func(s *side, p producer) kmsg.Request {
		return func(s *side, p producer) kmsg.Request {
			return commitInTxn(p, s.group("readers"), m(s), s.topic(topic), 0, to)
		}
	}
	outside := func(*side) member { return nobody }
	committed := func(s *side) kmsg.Request {
		req := fetch(s.topic("ledger"), 0, 0)
		req.IsolationLevel = 1
		return req
	}
	stable := func(s *side) kmsg.Request {
		req := listOffsets(s.prefix+"ledger", 0, -1)
		req.IsolationLevel = 1
		return req
	}
	open := func(s *side) kmsg.Request { return describeProducers(s.prefix+"ledger", 0) }
	at := func(name string, version int16, request func(*side) kmsg.Request) step {
		return step{name: name, version: version, request: request}
	}
	// An end is answered before its markers are written where a broker does that later.
	ended := step{name: "nothing is open", version: newest, request: open, until: func(resp kmsg.Response) bool {
		for _, p := range resp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ActiveProducers {
			if p.CurrentTxnStartOffset >= 0 {
				return false
			}
		}
		return true
	}}
	steps := append(create("ledger", 2),
		// Idempotence.
		begins("an idempotent producer", newest, "idle", func(*side) producer { return newcomer("") }),
		at("its first batch", newest, with(write("ledger", 1, 0, false), "idle")),
		at("the same again", newest, with(write("ledger", 1, 0, false), "idle")),
		at("a gap", newest, with(write("ledger", 1, 9, false), "idle")),
		at("an old sequence that was not", newest, with(write("ledger", 1, 1, false), "idle")),
		at("a newer epoch with a sequence", newest, with(epoch(write("ledger", 1, 3, false), 1), "idle")),
		at("a newer epoch", newest, with(epoch(write("ledger", 1, 0, false), 1), "idle")),
		at("the epoch before", newest, with(write("ledger", 1, 2, false), "idle")),
		at("who wrote", newest, func(s *side) kmsg.Request { return describeProducers(s.prefix+"ledger", 1) }),
		// Names and timeouts.
		at("an empty name", newest, func(*side) kmsg.Request {
			req := initProducer(newcomer(""))
			req.TransactionalID = kmsg.StringPtr("")
			return req
		}),
		at("no timeout", newest, func(s *side) kmsg.Request {
			req := initProducer(newcomer(s.prefix + "hasty"))
			req.TransactionTimeoutMillis = 0
			return req
		}),
		at("a timeout too long", newest, func(s *side) kmsg.Request {
			req := initProducer(newcomer(s.prefix + "hasty"))
			req.TransactionTimeoutMillis = 1 << 30
			return req
		}),
		begins("a caller's own id for a new name", 4, "caller", func(s *side) producer { return producer{s.prefix + "caller", 1234, 5} }),
		at("an id without an epoch", 4, func(s *side) kmsg.Request { return initProducer(producer{s.prefix + "hasty", 1234, -1}) }),
		// Requests before there is a transaction.
		at("describe an unknown name", newest, with(describe, "tx9")),
		at("enrol as an unknown name", 3, with(enrol("ledger", 0), "tx9")),
		at("end as an unknown name", 4, with(ends(true), "tx9")),
		begins("tx1 begins", 5, "tx1", new("tx1")),
		at("tx1 without a transaction", newest, with(describe, "tx1")),
		at("commit nothing, version 1", 4, with(ends(true), "tx1")),
		at("write without enrolling, version 1", 11, with(write("ledger", 0, 0, true), "tx1")),
		// Version 1.
		at("enrol", 3, with(enrol("ledger", 0), "tx1")),
		at("enrol again", 0, with(enrol("ledger", 0), "tx1")),
		at("enrol in an unknown topic", 3, with(enrol("nowhere", 0), "tx1")),
		at("enrol in an unknown partition", 1, with(enrol("ledger", 9), "tx1")),
		at("enrol with an older epoch", 3, with(epoch(enrol("ledger", 0), -1), "tx1")),
		at("enrol with a newer epoch", 1, with(epoch(enrol("ledger", 0), 3), "tx1")),
		at("write", 11, with(write("ledger", 0, 0, true), "tx1")),
		at("write the same again", 11, with(write("ledger", 0, 0, true), "tx1")),
		at("write outside the transaction", 11, with(write("ledger", 0, 2, false), "tx1")),
		at("the open transaction", newest, with(describe, "tx1")),
		at("its producer", newest, open),
		at("committed records while it is open", newest, committed),
		at("stable offset while it is open", newest, stable),
		at("add a group", 3, with(groupOf, "tx1")),
		at("an offset in the transaction", 3, with(offset("orders", 17, outside), "tx1")),
		at("an offset in an unknown topic", 3, with(offset("nowhere", 1, outside), "tx1")),
		at("an offset by a member that is not", 3, with(offset("orders", 1, func(*side) member { return member{id: "x", generation: 4} }), "tx1")),
		at("the offset before the end", newest, func(s *side) kmsg.Request { return fetchOffsets(s.group("readers"), s.topic("orders"), 0) }),
		at("the stable offset before the end", 7, func(s *side) kmsg.Request {
			req := fetchOffsets(s.group("readers"), s.topic("orders"), 0)
			req.RequireStable = true
			return req
		}),
		at("end with an older epoch", 4, with(epoch(ends(true), -1), "tx1")),
		at("end with a newer epoch", 1, with(epoch(ends(true), 4), "tx1")),
		at("commit", 3, with(ends(true), "tx1")),
		ended,
		at("commit again", 3, with(ends(true), "tx1")),
		at("abort what was committed", 3, with(ends(false), "tx1")),
		decided("the transaction after its end", "tx1"),
		at("committed records after the end", newest, committed),
		at("stable offset after the end", newest, stable),
		at("its producer after the end", newest, open),
		at("the offset after the end", newest, func(s *side) kmsg.Request { return fetchOffsets(s.group("readers"), s.topic("orders"), 0) }),
		at("enrol again after the end", 3, with(enrol("ledger", 0), "tx1")),
		at("write what will be aborted", 11, with(write("ledger", 0, 2, true), "tx1")),
		at("abort", 3, with(ends(false), "tx1")),
		ended,
		at("commit what was aborted", 3, with(ends(true), "tx1")),
		at("committed records after the abort", newest, committed),
		// A second instance fences the first.
		begins("another tx1", 4, "tx1b", new("tx1")),
		at("the first one enrols", 3, with(enrol("ledger", 0), "tx1")),
		at("the first one enrols, version 0", 0, with(enrol("ledger", 0), "tx1")),
		at("the first one writes", 11, with(write("ledger", 0, 4, true), "tx1")),
		at("the first one ends", 1, with(ends(true), "tx1")),
		begins("the first one wants a newer epoch", 4, "tx1", again("tx1")),
		begins("the second one wants a newer epoch", 4, "tx1b", again("tx1b")),
		// A transaction that a new instance takes over.
		at("the second one enrols", 3, with(enrol("ledger", 0), "tx1b")),
		at("the second one writes", 11, with(write("ledger", 0, 0, true), "tx1b")),
		begins("a third tx1", 4, "tx1c", new("tx1")),
		decided("what it was", "tx1c"),
		ended,
		at("committed records after the takeover", newest, committed),
		// Version 2.
		begins("tx2 begins", 5, "tx2", new("tx2")),
		at("write without enrolling", 12, with(write("ledger", 0, 0, true), "tx2")),
		at("an offset without adding its group", 5, with(offset("orders", 18, outside), "tx2")),
		at("the transaction with both", newest, with(describe, "tx2")),
		step{name: "commit, version 2", version: 5, request: with(ends(true), "tx2"), learn: func(s *side, resp kmsg.Response) {
			r := resp.(*kmsg.EndTxnResponse)
			s.producers["tx2"] = producer{s.prefix + "tx2", r.ProducerID, r.ProducerEpoch}
		}},
		decided("the transaction after its end, version 2", "tx2"),
		at("write with the new epoch", 12, with(write("ledger", 0, 0, true), "tx2")),
		at("abort, version 2, with the epoch before", 5, with(epoch(ends(false), -1), "tx2")),
		step{name: "abort, version 2", version: 5, request: with(ends(false), "tx2"), learn: func(s *side, resp kmsg.Response) {
			r := resp.(*kmsg.EndTxnResponse)
			s.producers["tx2"] = producer{s.prefix + "tx2", r.ProducerID, r.ProducerEpoch}
		}},
		at("abort nothing, version 2", 5, with(ends(false), "tx2")),
		ended,
		at("committed records after all", newest, committed),
		at("all records", newest, func(s *side) kmsg.Request { return fetch(s.topic("ledger"), 0, 0) }),
		at("who writes there", newest, open),
		at("who writes in an unknown topic", newest, func(s *side) kmsg.Request { return describeProducers(s.prefix+"nowhere", 0) }),
	)
	list := func(edit func(*kmsg.ListTransactionsRequest)) func(*side) kmsg.Request {
		return func(*side) kmsg.Request {
			req := kmsg.NewPtrListTransactionsRequest()
			edit(req)
			return req
		}
	}
	return append(steps,
		at("all transactions", 0, list(func(*kmsg.ListTransactionsRequest) {})),
		at("open transactions", newest, list(func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing"} })),
		at("transactions in an unknown state", newest, list(func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Odd", "Ongoing"} })),
		at("transactions of nobody", newest, list(func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{1 << 40} })),
		at("long transactions", 1, list(func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 1 << 40 })),
		at("transactions with a bad pattern", 2, list(func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("(") })),
	)
}

// decided describes a transaction once its end is complete, which comes after
// the answer to the end where markers are written later.
func decided(name, tx string) step {
	return step{name: name, version: newest,
		request: func(s *side) kmsg.Request { return describeTxn(s.producer(tx).txid) },
		until: func(resp kmsg.Response) bool {
			return !strings.HasPrefix(resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].State, "Prepare")
		}}
}

func configStory() []step {
	of := func(kind kmsg.ConfigResourceType, name string, keys ...string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			if kind == kmsg.ConfigResourceTypeTopic {
				return describeConfigs(kind, s.prefix+name, keys...)
			}
			if name == "" {
				return describeConfigs(kind, fmt.Sprint(s.node), keys...)
			}
			return describeConfigs(kind, name, keys...)
		}
	}
	set := func(name, key string, op kmsg.IncrementalAlterConfigOp, value *string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			return changeConfig(kmsg.ConfigResourceTypeTopic, s.prefix+name, key, op, value)
		}
	}
	replace := func(name, key, value string) func(*side) kmsg.Request {
		return func(s *side) kmsg.Request {
			return alterConfig(kmsg.ConfigResourceTypeTopic, s.prefix+name, key, value)
		}
	}
	const topicKind, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	put, del, app, sub := kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	v := kmsg.StringPtr
	settled := func(value string) func(kmsg.Response) bool {
		return func(resp kmsg.Response) bool {
			for _, c := range resp.(*kmsg.DescribeConfigsResponse).Resources[0].Configs {
				if c.Value != nil && *c.Value == value {
					return true
				}
			}
			return false
		}
	}
	var steps []step
	for _, version := range []int16{1, 2, 3, 4} {
		steps = append(steps, at("a topic's settings", of(topicKind, "orders"), version)...)
		steps = append(steps, at("two settings", of(topicKind, "compacted", "cleanup.policy", "retention.ms"), version)...)
	}
	return append(steps,
		one("no such setting", of(topicKind, "orders", "color")),
		one("settings of an unknown topic", of(topicKind, "nowhere")),
		one("settings of the node", of(broker, "", "log.retention.hours", "num.partitions", "message.max.bytes")),
		one("settings of another node", of(broker, "77")),
		one("settings of no node", of(broker, "first")),
		one("settings of an unknown kind", of(kmsg.ConfigResourceType(99), "x")),
		one("set one", set("orders", "retention.ms", put, v("86400000"))),
		step{name: "it is set", version: newest, request: of(topicKind, "orders", "retention.ms"), until: settled("86400000")},
		one("append", set("orders", "cleanup.policy", app, v("compact"))),
		step{name: "it is appended", version: newest, request: of(topicKind, "orders", "cleanup.policy"), until: settled("delete,compact")},
		one("append what is there", set("orders", "cleanup.policy", app, v("compact"))),
		one("subtract", set("orders", "cleanup.policy", sub, v("compact"))),
		step{name: "it is subtracted", version: newest, request: of(topicKind, "orders", "cleanup.policy"), until: settled("delete")},
		one("append to what is no list", set("orders", "retention.ms", app, v("1"))),
		one("an operation nobody knows", set("orders", "retention.ms", 9, v("1"))),
		one("a bad value", set("orders", "retention.ms", put, v("soon"))),
		one("a value out of range", set("orders", "min.cleanable.dirty.ratio", put, v("7"))),
		one("a null value", set("orders", "retention.ms", put, nil)),
		one("an unknown setting", set("orders", "color", put, v("blue"))),
		one("in an unknown topic", set("nowhere", "retention.ms", put, v("1"))),
		one("the same setting twice", func(s *side) kmsg.Request {
			req := changeConfig(topicKind, s.prefix+"orders", "retention.ms", put, v("1"))
			req.Resources[0].Configs = append(req.Resources[0].Configs, req.Resources[0].Configs[0])
			return req
		}),
		one("one topic twice", func(s *side) kmsg.Request {
			req := changeConfig(topicKind, s.prefix+"orders", "retention.ms", put, v("1"))
			req.Resources = append(req.Resources, req.Resources[0])
			return req
		}),
		one("only validate", func(s *side) kmsg.Request {
			req := changeConfig(topicKind, s.prefix+"orders", "retention.ms", put, v("1"))
			req.ValidateOnly = true
			return req
		}),
		one("delete it", set("orders", "retention.ms", del, nil)),
		one("delete it again", set("orders", "retention.ms", del, nil)),
		step{name: "it is the default", version: newest, request: of(topicKind, "orders", "retention.ms"), until: settled("604800000")},
		one("replace all", replace("orders", "segment.bytes", "1048576")),
		step{name: "they are replaced", version: newest, request: of(topicKind, "orders", "segment.bytes", "cleanup.policy"), until: settled("1048576")},
		one("replace with a bad value", replace("orders", "segment.bytes", "many")),
		one("replace in an unknown topic", replace("nowhere", "segment.bytes", "1048576")),
		one("back to the default", set("orders", "segment.bytes", del, nil)),
		one("an unknown feature", func(*side) kmsg.Request { return updateFeature("color.version", 1, 1) }),
		one("a feature at a level nobody supports", func(*side) kmsg.Request { return updateFeature("transaction.version", 9, 1) }),
		one("a feature at its level", func(*side) kmsg.Request { return updateFeature("transaction.version", 2, 1) }),
		one("a downgrade called an upgrade", func(*side) kmsg.Request { return updateFeature("transaction.version", 1, 1) }),
		one("an upgrade of no known type", func(*side) kmsg.Request { return updateFeature("transaction.version", 2, 9) }),
		one("no feature", func(*side) kmsg.Request { return kmsg.NewPtrUpdateFeaturesRequest() }),
		one("a downgrade, only validated", func(*side) kmsg.Request {
			req := updateFeature("transaction.version", 1, 2)
			req.ValidateOnly = true
			return req
		}),
	)
}
