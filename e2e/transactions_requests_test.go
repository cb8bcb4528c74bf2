package e2e

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// One partition that cannot be enrolled keeps the others out (A.3).
func TestAddPartitionsAllOrNothing(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 1)
	p := w.init("a")
	for version := range int16(6) {
		topics := map[string][]int32{"t": {0, 9}, "unknown": {0}}
		codes := w.addTopics(version, "a", p, topics)
		if want := map[string][]int16{"t": {55, 3}, "unknown": {3}}; fmt.Sprint(codes) != fmt.Sprint(want) {
			t.Errorf("v%d: %v, want %v", version, codes, want)
		}
		if got := w.describe("a").State; got != "Empty" {
			t.Errorf("v%d: %s afterwards", version, got)
		}
	}
	// The broker's own topics are not for clients to enrol.
	for version := range int16(6) {
		state, offsets := int16(29), int16(29)
		if version >= 4 {
			state, offsets = 17, 0
		}
		for topic, want := range map[string]int16{"__transaction_state": state, "__consumer_offsets": offsets} {
			if codes := w.addTopics(version, "a", p, map[string][]int32{topic: {0}}); codes[topic][0] != want {
				t.Errorf("v%d: %v, want %d", version, codes, want)
			}
		}
	}
}

// addTopics enrols several topics and returns the codes of their partitions.
func (w *raw) addTopics(version int16, txid string, p identity, topics map[string][]int32) map[string][]int16 {
	w.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = version
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = txid, p.id, p.epoch
	entry := kmsg.NewAddPartitionsToTxnRequestTransaction()
	entry.TransactionalID, entry.ProducerID, entry.ProducerEpoch = txid, p.id, p.epoch
	for topic, partitions := range topics {
		req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: topic, Partitions: partitions})
		entry.Topics = append(entry.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: topic, Partitions: partitions})
	}
	req.Transactions = append(req.Transactions, entry)
	resp := w.do(req).(*kmsg.AddPartitionsToTxnResponse)
	codes := map[string][]int16{}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			codes[topic.Topic] = append(codes[topic.Topic], p.ErrorCode)
		}
	}
	for _, txn := range resp.Transactions {
		for _, topic := range txn.Topics {
			for _, p := range topic.Partitions {
				codes[topic.Topic] = append(codes[topic.Topic], p.ErrorCode)
			}
		}
	}
	return codes
}

// AddOffsetsToTxn answers as AddPartitionsToTxn does (A.4).
func TestAddOffsetsInEveryVersion(t *testing.T) {
	_, w := txnBroker(t)
	for version := range int16(5) {
		id := fmt.Sprint("v", version)
		fenced := int16(90)
		if version < 2 {
			fenced = 47
		}
		w.want(id+" unknown id", w.addOffsets(version, id, identity{1, 0}, "g"), 49)
		p := w.init(id)
		w.want(id+" other producer", w.addOffsets(version, id, identity{p.id + 1000, 0}, "g"), 49)
		w.want(id+" other epoch", w.addOffsets(version, id, identity{p.id, p.epoch + 1}, "g"), fenced)
		w.want(id, w.addOffsets(version, id, p, "g"), 0)
		got := w.describe(id)
		if got.State != "Ongoing" || len(got.Topics) != 1 || got.Topics[0].Topic != "__consumer_offsets" {
			t.Errorf("v%d: %s with %v", version, got.State, got.Topics)
		}
		_, code := w.end(1, id, p, true)
		w.want(id+" commit", code, 0)
	}
}

// The transaction's side of TxnOffsetCommit, in every version (A.5, rows 1 to 3, 5).
func TestTxnOffsetCommitInEveryVersion(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("input", 1)
	for version := range int16(7) {
		id, group := fmt.Sprint("v", version), fmt.Sprint("g", version)
		notEnrolled := int16(48)
		if version >= 4 {
			notEnrolled = 120
		}
		w.want(id+" unknown id", w.commitOffset(version, id, identity{1, 0}, group, "input", 0, 1), 49)
		p := w.init(id)
		w.want(id+" other producer", w.commitOffset(version, id, identity{p.id + 1000, 0}, group, "input", 0, 1), 49)
		w.want(id+" other epoch", w.commitOffset(version, id, identity{p.id, p.epoch + 1}, group, "input", 0, 1), 47)
		if version < 5 {
			w.want(id+" not enrolled", w.commitOffset(version, id, p, group, "input", 0, 1), notEnrolled)
			w.want(id+" AddOffsets", w.addOffsets(1, id, p, group), 0)
		}
		w.want(id+" no group", w.commitOffset(version, id, p, "", "input", 0, 1), map[bool]int16{true: 24, false: notEnrolled}[version >= 5])
		unknown := int16(3)
		if version >= 6 {
			unknown = 100
		}
		w.ids["nowhere"] = model.NewTopicID()
		w.want(id+" unknown topic", w.commitOffset(version, id, p, group, "nowhere", 0, 1), unknown)
		w.want(id+" unknown partition", w.commitOffset(version, id, p, group, "input", 1, 1), 3)
		w.want(id, w.commitOffset(version, id, p, group, "input", 0, 5), 0)
		if _, code := w.fetchOffset(group, "input", 0, true); code != 88 {
			t.Errorf("v%d: stable offset answered %d, want 88", version, code)
		}
		if at, code := w.fetchOffset(group, "input", 0, false); at != -1 || code != 0 {
			t.Errorf("v%d: offset %d, code %d before the commit", version, at, code)
		}
		_, code := w.end(1, id, p, true)
		w.want(id+" commit", code, 0)
		if at, code := w.fetchOffset(group, "input", 0, true); at != 5 || code != 0 {
			t.Errorf("v%d: offset %d, code %d after the commit", version, at, code)
		}
	}
}

// The group's side of TxnOffsetCommit (A.5, row 6; KIP-447).
func TestTxnOffsetCommitGroupChecks(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("input", 1)
	p := w.init("a")
	member, generation := w.joinGroup("live", "instance-1")
	for _, row := range []struct {
		name, group, member, instance string
		generation                    int32
		want                          int16
	}{
		{"an absent group, nothing given", "absent-1", "", "", -1, 0},
		{"an absent group, a generation", "absent-2", "m", "", 3, 22},
		{"an absent group, only a member", "absent-3", "m", "", -1, 0},
		{"a live group, nothing given", "live", "", "", -1, 0},
		{"its member", "live", member, "instance-1", generation, 0},
		{"an unknown member", "live", "stranger", "", generation, 25},
		{"an instance of another member", "live", "stranger", "instance-1", generation, 82},
		{"an old generation", "live", member, "instance-1", generation - 1, 22},
		{"a future generation", "live", member, "instance-1", generation + 1, 22},
	} {
		for _, version := range []int16{3, 4, 5} {
			if version < 5 {
				w.want("AddOffsets", w.addOffsets(3, "a", p, row.group), 0)
			}
			req := w.offsetRequest(version, "a", p, row.group, "input", "")
			req.Generation, req.MemberID = row.generation, row.member
			if row.instance != "" {
				req.InstanceID = &row.instance
			}
			if got := w.do(req).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; got != row.want {
				t.Errorf("%s, v%d: %d, want %d", row.name, version, got, row.want)
			}
		}
	}
	long := strings.Repeat("x", 4097)
	req := w.offsetRequest(5, "a", p, "absent-1", "input", long)
	w.want("long metadata", w.do(req).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode, 12)
}

func (w *raw) offsetRequest(version int16, txid string, p identity, group, topic, metadata string) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version = version
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = txid, p.id, p.epoch, group
	req.Generation = -1
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Offset, part.Metadata = 1, &metadata
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, TopicID: w.ids[topic], Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{part}}}
	return req
}

// joinGroup makes a group of one static member.
func (w *raw) joinGroup(group, instance string) (member string, generation int32) {
	w.t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version = 5
	join.Group, join.InstanceID = group, &instance
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = 30_000, 30_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	joined := w.do(join).(*kmsg.JoinGroupResponse)
	w.want("JoinGroup", joined.ErrorCode, 0)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version = 3
	sync.Group, sync.MemberID, sync.Generation, sync.InstanceID = group, joined.MemberID, joined.Generation, &instance
	w.want("SyncGroup", w.do(sync).(*kmsg.SyncGroupResponse).ErrorCode, 0)
	return joined.MemberID, joined.Generation
}

// What was written later wins: a plain commit behind a pending one survives the
// transaction's commit, one before it does not; an abort changes nothing.
func TestNewestCommitWins(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("input", 1)
	plain := func(offset int64) {
		t.Helper()
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation = 8, "g", -1
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Offset = offset
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "input", Partitions: []kmsg.OffsetCommitRequestTopicPartition{part}}}
		w.want("OffsetCommit", w.do(req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode, 0)
	}
	expect := func(what string, want int64) {
		t.Helper()
		if at, code := w.fetchOffset("g", "input", 0, true); at != want || code != 0 {
			t.Errorf("%s: offset %d, code %d, want %d", what, at, code, want)
		}
	}
	p := w.init("a")
	end := func(commit bool) {
		t.Helper()
		var code int16
		p, code = w.end(5, "a", p, commit)
		w.want("EndTxn", code, 0)
	}
	plain(1)
	w.want("TxnOffsetCommit", w.commitOffset(5, "a", p, "g", "input", 0, 7), 0)
	end(true)
	expect("the later transaction", 7)
	w.want("TxnOffsetCommit", w.commitOffset(5, "a", p, "g", "input", 0, 9), 0)
	plain(3)
	end(true)
	expect("the later plain commit", 3)
	w.want("TxnOffsetCommit", w.commitOffset(5, "a", p, "g", "input", 0, 9), 0)
	end(false)
	expect("after an abort", 3)
}

// Produce, before anything of the log is looked at (A.7).
func TestProduceRefusals(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 2)
	w.init("a")
	p := w.init("a") // epoch 1, so that there is one below
	q := w.init("b")
	for _, version := range []int16{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13} {
		send := func(what, txid string, want int16, batches ...[]byte) {
			t.Helper()
			req := w.produceRequest(version, txid, "t", 0, batches[0])
			for i, b := range batches[1:] {
				part := kmsg.NewProduceRequestTopicPartition()
				part.Partition, part.Records = int32(i+1), b
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, part)
			}
			for _, got := range w.do(req).(*kmsg.ProduceResponse).Topics[0].Partitions {
				if got.ErrorCode != want {
					t.Errorf("v%d: %s: %d, want %d", version, what, got.ErrorCode, want)
				}
			}
		}
		marker := batch.NewMarker(batch.Marker{Producer: model.ProducerIdentity{ID: model.ProducerID(p.id)}})
		send("a control batch", "a", 87, marker.Bytes())
		send("no transactional id", "", 53, records(p, 0, "x"))
		send("two producers", "a", 49, records(p, 0, "x"), records(q, 0, "x"))
		send("two epochs", "a", 49, records(p, 0, "x"), records(identity{p.id, p.epoch - 1}, 0, "x"))
		send("an unknown transactional id", "nobody", 49, records(p, 0, "x"))
		send("another producer's transactional id", "b", 49, records(p, 0, "x"))
		send("an old epoch", "a", 47, records(identity{p.id, p.epoch - 1}, 0, "x"))
	}
	if end := w.latest("t", 0, false); end != 0 {
		t.Errorf("the log grew to %d", end)
	}
}

// The rest of A.7: duplicates before everything, open transactions, sequences.
func TestProduceByTheLog(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 8)
	partition := int32(-1)
	begin := func(version int16) (identity, func(p identity, seq int32, want int16)) {
		partition++
		id := fmt.Sprint("p", partition)
		p := w.init(id)
		send := func(p identity, seq int32, want int16) {
			t.Helper()
			if version < 12 {
				w.addPartitions(3, id, p, "t", partition)
			}
			if _, code := w.produce(version, id, p, seq, "t", partition, "v"); code != want {
				t.Errorf("v%d, partition %d, %v, sequence %d: %d, want %d", version, partition, p, seq, code, want)
			}
		}
		return p, send
	}
	// A duplicate is found although its transaction has ended in the same epoch.
	p, send := begin(9)
	send(p, 0, 0)
	send(p, 1, 0)
	_, code := w.end(1, "p0", p, true)
	w.want("EndTxn", code, 0)
	if offset, code := w.produce(9, "p0", p, 1, "t", 0, "v"); code != 0 || offset != 1 {
		t.Errorf("a duplicate after the end: offset %d, code %d", offset, code)
	}
	// A batch outside the transaction its producer has open.
	p, send = begin(12)
	send(p, 0, 0)
	plain := batch.NewBuilder(batch.BuilderOptions{Producer: &batch.Producer{
		ProducerIdentity: model.ProducerIdentity{ID: model.ProducerID(p.id), Epoch: model.ProducerEpoch(p.epoch)}, BaseSequence: 1,
	}})
	plain.Add(batch.NewRecord{Value: []byte("outside")})
	view, err := plain.Build()
	if err != nil {
		t.Fatal(err)
	}
	_, code = produced(w.do(w.produceRequest(12, "", "t", partition, view.Bytes())))
	w.want("Produce outside the transaction", code, 48)
	// Gaps and old ranges.
	send(p, 2, 45)
	send(p, 1, 0)
	send(p, 5, 45)
	// A new epoch starts at 0, under either version; partitions with only a marker too.
	for _, version := range []int16{9, 12} {
		p, send = begin(version)
		send(p, 0, 0)
		p = w.init(fmt.Sprint("p", partition))
		send(p, 1, 45)
		send(p, 0, 0)
	}
	p, send = begin(9)
	id := fmt.Sprint("p", partition)
	w.addPartitions(3, id, p, "t", partition)
	_, code = w.end(1, id, p, true)
	w.want("EndTxn of nothing", code, 0)
	send(p, 0, 0)
	// Sequences wrap, inside a batch too.
	p, send = begin(9)
	send(p, math.MaxInt32-1, 0)
	id = fmt.Sprint("p", partition)
	if _, code := w.produce(9, id, p, math.MaxInt32, "t", partition, "max", "zero"); code != 0 {
		t.Errorf("a batch over the wrap: %d", code)
	}
	send(p, 1, 0)
}

// WriteTxnMarkers, as an operator's tool sends it (A.9).
func TestWriteTxnMarkers(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 1)
	w.newTopic("input", 1)
	write := func(version int16, topic string, partition int32, p identity, coordinator int32, commit bool) int16 {
		t.Helper()
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version = version
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Committed, m.TransactionVersion = p.id, p.epoch, coordinator, commit, 2
		m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: []int32{partition}}}
		req.Markers = append(req.Markers, m)
		return w.do(req).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0].ErrorCode
	}
	w.init("a")
	p := w.init("a") // epoch 1, so that there is one below
	_, code := w.produce(12, "a", p, 0, "t", 0, "x")
	w.want("Produce", code, 0)
	w.want("unknown topic", write(1, "nowhere", 0, p, 5, false), 3)
	w.want("unknown partition", write(1, "t", 9, p, 5, false), 3)
	w.want("nobody", write(1, "t", 0, nobody, 5, false), -1)
	w.want("no epoch", write(1, "t", 0, identity{p.id + 1000, -1}, 5, false), -1)
	w.want("an older epoch", write(1, "t", 0, identity{p.id, p.epoch - 1}, 5, false), 47)
	w.want("version 2: the epoch of the open transaction", write(2, "t", 0, p, 5, false), 47)
	w.want("version 1: the epoch of the open transaction", write(1, "t", 0, p, 5, false), 0)
	w.closed("t", 0)
	w.want("version 2: again, nothing is open", write(2, "t", 0, p, 5, false), 0)
	w.want("an older coordinator", write(1, "t", 0, p, 4, false), 52)
	w.want("offsets", w.commitOffset(5, "a", p, "g", "input", 0, 7), 0)
	w.want("a marker for the offsets", write(1, "__consumer_offsets", javaPartition("g", 50), p, 5, true), 0)
	if at, code := w.fetchOffset("g", "input", 0, true); at != 7 || code != 0 {
		t.Errorf("offset %d, code %d", at, code)
	}
	_, code = w.end(5, "a", p, true) // the coordinator's own end is not in the way
	w.want("EndTxn", code, 0)
}

// DescribeTransactions, ListTransactions and DescribeProducers (A.10).
func TestDescribeAndList(t *testing.T) {
	_, w := txnBroker(t)
	w.newTopic("t", 2)
	w.want("DescribeTransactions of no name", w.describe("").ErrorCode, 42)
	w.want("DescribeTransactions of nobody", w.describe("nobody").ErrorCode, 105)

	open, code := w.tryInit(4, "pay-1", 45*time.Second, nobody)
	w.want("InitProducerId", code, 0)
	before := time.Now().UnixMilli()
	w.produce(12, "pay-1", open, 0, "t", 0, "x")
	w.produce(12, "pay-1", open, 0, "t", 1, "y")
	idle := w.init("pay-2")
	got := w.describe("pay-1")
	if got.ErrorCode != 0 || got.State != "Ongoing" || got.ProducerID != open.id || got.ProducerEpoch != open.epoch ||
		got.TimeoutMillis != 45_000 || got.StartTimestamp < before-1000 || len(got.Topics) != 1 || !slices.Equal(got.Topics[0].Partitions, []int32{0, 1}) {
		t.Errorf("described %+v", got)
	}
	if open := w.openProducers("t", 1); !slices.Equal(open, []int64{got.ProducerID}) {
		t.Errorf("producers with an open transaction: %v", open)
	}

	odd := kmsg.NewPtrDescribeProducersRequest()
	for _, name := range []string{"nowhere", "no name"} {
		odd.Topics = append(odd.Topics, kmsg.DescribeProducersRequestTopic{Topic: name, Partitions: []int32{0}})
	}
	for i, want := range []int16{3, 17} {
		w.want(odd.Topics[i].Topic, w.do(odd).(*kmsg.DescribeProducersResponse).Topics[i].Partitions[0].ErrorCode, want)
	}

	list := func(version int16, change func(*kmsg.ListTransactionsRequest)) (ids []string, resp *kmsg.ListTransactionsResponse) {
		t.Helper()
		req := kmsg.NewPtrListTransactionsRequest()
		req.Version = version
		req.DurationFilterMillis = -1
		change(req)
		resp = w.do(req).(*kmsg.ListTransactionsResponse)
		for _, s := range resp.TransactionStates {
			ids = append(ids, s.TransactionalID)
		}
		return ids, resp
	}
	pattern := func(p string) func(*kmsg.ListTransactionsRequest) {
		return func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = &p }
	}
	for _, row := range []struct {
		name    string
		version int16
		change  func(*kmsg.ListTransactionsRequest)
		want    []string
	}{
		{"all", 0, func(*kmsg.ListTransactionsRequest) {}, []string{"pay-1", "pay-2"}},
		{"by state", 0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Empty", "Bogus"} }, []string{"pay-2"}},
		{"by unknown states", 0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Bogus"} }, nil},
		{"by producer", 1, func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{idle.id} }, []string{"pay-2"}},
		{"longer than an hour and ongoing", 1, func(r *kmsg.ListTransactionsRequest) {
			r.DurationFilterMillis, r.StateFilters = 3_600_000, []string{"Ongoing"}
		}, nil},
		{"longer than there is time", 1, func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = math.MaxInt64 }, nil},
		{"by pattern", 2, pattern("pay-[1-9]"), []string{"pay-1", "pay-2"}},
		{"by a pattern that matches a part", 2, pattern("pay"), nil},
	} {
		if ids, resp := list(row.version, row.change); resp.ErrorCode != 0 || !slices.Equal(ids, row.want) {
			t.Errorf("%s: code %d, %v, want %v", row.name, resp.ErrorCode, ids, row.want)
		}
	}
	_, resp := list(0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Bogus", "Ongoing", "Bogus"} })
	if !slices.Equal(resp.UnknownStateFilters, []string{"Bogus"}) {
		t.Errorf("unknown states: %v", resp.UnknownStateFilters)
	}
	if _, resp := list(2, pattern("(")); resp.ErrorCode != 128 {
		t.Errorf("a bad pattern: %d", resp.ErrorCode)
	}
}

// The feature levels say which protocol clients are to speak, and the table of
// APIs what they may send.
func TestTransactionVersionIsAdvertised(t *testing.T) {
	for level := range int16(3) {
		_, w := txnBroker(t, fmt.Sprintf("perigee.transaction.version=%d", level))
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = 4 // the first that may say "from level 0"
		req.ClientSoftwareName, req.ClientSoftwareVersion = "raw", "1"
		resp := w.do(req).(*kmsg.ApiVersionsResponse)
		finalized := int16(0)
		for _, f := range resp.FinalizedFeatures {
			if f.Name == "transaction.version" {
				finalized = f.MaxVersionLevel
			}
		}
		supported := slices.ContainsFunc(resp.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool {
			return f.Name == "transaction.version" && f.MinVersion == 0 && f.MaxVersion == 2
		})
		if finalized != level || !supported || resp.FinalizedFeaturesEpoch < 0 {
			t.Errorf("level %d: finalized %d, epoch %d, supported %v", level, finalized, resp.FinalizedFeaturesEpoch, supported)
		}
		want := map[int16][2]int16{0: {0, 13}, 22: {0, 5}, 24: {0, 5}, 25: {0, 4}, 26: {0, 5}, 27: {1, 2}, 28: {0, 6}, 61: {0, 0}, 65: {0, 0}, 66: {0, 2}}
		for _, k := range resp.ApiKeys {
			if r, ok := want[k.ApiKey]; ok && r != [2]int16{k.MinVersion, k.MaxVersion} {
				t.Errorf("%s: versions %d to %d, want %v", kmsg.NameForKey(k.ApiKey), k.MinVersion, k.MaxVersion, r)
			}
			delete(want, k.ApiKey)
		}
		if len(want) > 0 {
			t.Errorf("not advertised: %v", want)
		}
	}
}
