package kafka

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// append writes a batch of values to a partition and waits for it.
func (b *testBroker) append(topic *catalog.Topic, partition int32, values ...string) {
	b.t.Helper()
	p, err := b.coordinator.Partition(topic, partition)
	if err != nil {
		b.t.Fatal(err)
	}
	view, _, err := batch.Parse(plain(b.t, values...))
	if err != nil {
		b.t.Fatal(err)
	}
	pending, err := b.coordinator.Produce(coordinator.Produce{Owner: txn.Client, Batches: []coordinator.ProduceBatch{{Partition: p, Batch: view}}})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := pending.Wait(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// fetchRequest reads partitions of a topic from the given offsets.
func fetchRequest(topic *catalog.Topic, offsets map[int32]int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes = 0, 1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic.Name, topic.ID
	for partition := range topic.Partitions {
		if from, ok := offsets[partition]; ok {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, from, 1<<20
			rt.Partitions = append(rt.Partitions, p)
		}
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// fetched are the partitions of an answer.
func fetched(resp *kmsg.FetchResponse) (parts []kmsg.FetchResponseTopicPartition) {
	for _, t := range resp.Topics {
		parts = append(parts, t.Partitions...)
	}
	return parts
}

// values decodes the records of a partition.
func values(t testing.TB, p kmsg.FetchResponseTopicPartition) (vs []string) {
	t.Helper()
	for rest := p.RecordBatches; len(rest) > 0; {
		var v batch.View
		var err error
		if v, rest, err = batch.Parse(rest); err != nil {
			t.Fatal(err)
		}
		for r, err := range v.Records(batch.MaxDecompressedBytes) {
			if err != nil {
				t.Fatal(err)
			}
			vs = append(vs, string(r.Value))
		}
	}
	return vs
}

func TestFetchReturnsWhatWasProducedInEveryVersion(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 2)
	b.append(topic, 0, "a", "b")
	b.append(topic, 0, strings.Repeat("large", 10_000)) // above what is copied instead of sent
	c := b.dial()
	for version := int16(4); version <= 18; version++ {
		parts := fetched(ask[*kmsg.FetchResponse](c, version, fetchRequest(topic, map[int32]int64{0: 0, 1: 0})))
		if len(parts) != 2 {
			t.Fatalf("v%d: %d partitions", version, len(parts))
		}
		full, empty := parts[0], parts[1]
		if got := values(t, full); len(got) != 3 || got[0] != "a" || len(got[2]) != 50_000 {
			t.Errorf("v%d: %d values", version, len(got))
		}
		if full.HighWatermark != 3 || full.LastStableOffset != 3 || full.AbortedTransactions != nil {
			t.Errorf("v%d: high %d stable %d aborted %v", version, full.HighWatermark, full.LastStableOffset, full.AbortedTransactions)
		}
		if empty.ErrorCode != 0 || empty.HighWatermark != 0 || len(empty.RecordBatches) != 0 {
			t.Errorf("v%d: empty partition %+v", version, empty)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	b.restart() // so that there is an older epoch
	b.append(topic, 0, "a")
	epoch := int32(b.coordinator.LeaderEpoch())
	for _, c := range []struct {
		name    string
		version int16
		topic   *catalog.Topic
		edit    func(*kmsg.FetchRequestTopicPartition)
		want    *kerr.Error
	}{
		{"unknown topic", 12, &catalog.Topic{Name: "nowhere", Partitions: 1}, nil, kerr.UnknownTopicOrPartition},
		{"unknown topic id", 13, &catalog.Topic{ID: model.NewTopicID(), Partitions: 1}, nil, kerr.UnknownTopicID},
		{"unknown partition", 13, topic, func(p *kmsg.FetchRequestTopicPartition) { p.Partition = 9 }, kerr.UnknownTopicOrPartition},
		{"beyond the end", 13, topic, func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = 5 }, kerr.OffsetOutOfRange},
		{"below zero", 13, topic, func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -3 }, kerr.OffsetOutOfRange},
		{"older epoch", 13, topic, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = epoch - 1 }, kerr.FencedLeaderEpoch},
		{"newer epoch", 13, topic, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = epoch + 1 }, kerr.UnknownLeaderEpoch},
		{"this epoch", 13, topic, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = epoch }, nil},
	} {
		req := fetchRequest(c.topic, map[int32]int64{0: 0})
		req.MaxWaitMillis = 60_000 // an error does not wait
		if c.edit != nil {
			c.edit(&req.Topics[0].Partitions[0])
		}
		got := fetched(ask[*kmsg.FetchResponse](b.dial(), c.version, req))[0].ErrorCode
		if want := c.want; want == nil && got != 0 || want != nil && got != want.Code {
			t.Errorf("%s: error %d, want %v", c.name, got, c.want)
		}
	}
}

func TestADivergedClientIsToldWhere(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	b.append(topic, 0, "a", "b")
	first := b.coordinator.LeaderEpoch()
	b.restart()
	topic, _ = b.coordinator.Catalog().Topic("orders")
	b.append(topic, 0, "c")
	req := fetchRequest(topic, map[int32]int64{0: 5})
	req.Topics[0].Partitions[0].LastFetchedEpoch = int32(first)
	got := fetched(ask[*kmsg.FetchResponse](b.dial(), 12, req))[0]
	if got.DivergingEpoch.Epoch != int32(first) || got.DivergingEpoch.EndOffset != 2 || got.ErrorCode != 0 {
		t.Errorf("diverging %+v, error %d; want epoch %d ending at 2", got.DivergingEpoch, got.ErrorCode, first)
	}
}

func TestFetchLimits(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 3)
	for partition := range int32(3) {
		for range 4 {
			b.append(topic, partition, strings.Repeat("x", 1000))
		}
	}
	everything := map[int32]int64{0: 0, 1: 0, 2: 0}
	count := func(edit func(*kmsg.FetchRequest)) (n [3]int) {
		req := fetchRequest(topic, everything)
		edit(req)
		for i, p := range fetched(ask[*kmsg.FetchResponse](b.dial(), 13, req)) {
			n[i] = len(values(t, p))
		}
		return n
	}
	if got := count(func(r *kmsg.FetchRequest) { r.MaxBytes = 1 }); got != [3]int{1, 0, 0} {
		t.Errorf("max bytes 1: %v, want one whole batch", got)
	}
	if got := count(func(r *kmsg.FetchRequest) {
		for i := range r.Topics[0].Partitions {
			r.Topics[0].Partitions[i].PartitionMaxBytes = 1
		}
	}); got != [3]int{1, 0, 0} {
		t.Errorf("partition max bytes 1: %v, want one whole batch of the first", got)
	}
	if got := count(func(r *kmsg.FetchRequest) {
		for i := range r.Topics[0].Partitions {
			r.Topics[0].Partitions[i].PartitionMaxBytes = 2500
		}
	}); got != [3]int{2, 2, 2} {
		t.Errorf("partition max bytes 2500: %v, want two batches of each", got)
	}
	if got := count(func(r *kmsg.FetchRequest) { r.MaxBytes = 5000 }); got != [3]int{4, 0, 0} {
		t.Errorf("max bytes 5000: %v, want the first partition", got)
	}
}

func TestALongPollIsWokenByDataAndEndsByTime(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	c := b.dial()
	req := fetchRequest(topic, map[int32]int64{0: 0})
	req.MaxWaitMillis = 60_000
	req.SetVersion(13)
	id := c.send(13, req)
	b.untilNoFrames()
	b.append(topic, 0, "at last")
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	c.read(id, resp)
	if got := values(t, fetched(resp)[0]); len(got) != 1 || got[0] != "at last" {
		t.Errorf("values %q", got)
	}

	req = fetchRequest(topic, map[int32]int64{0: 1})
	req.MaxWaitMillis = 50
	began := time.Now()
	if got := fetched(ask[*kmsg.FetchResponse](c, 13, req))[0]; got.ErrorCode != 0 || len(got.RecordBatches) != 0 {
		t.Errorf("at the end of the log: %+v", got)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("answered after %v although nothing came", took)
	}
}

func TestMinBytesWaitsForMore(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	b.append(topic, 0, "little")
	c := b.dial()
	req := fetchRequest(topic, map[int32]int64{0: 0})
	req.MaxWaitMillis, req.MinBytes = 60_000, 1000
	req.SetVersion(13)
	id := c.send(13, req)
	b.append(topic, 0, strings.Repeat("x", 1000))
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	c.read(id, resp)
	if got := values(t, fetched(resp)[0]); len(got) != 2 {
		t.Errorf("%d values, want both", len(got))
	}
}

// inSession sends an incremental request and returns the partitions answered.
func inSession(c *wireClient, id, epoch int32, change func(*kmsg.FetchRequest)) *kmsg.FetchResponse {
	c.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.SessionID, req.SessionEpoch = id, epoch
	if change != nil {
		change(req)
	}
	return ask[*kmsg.FetchResponse](c, 13, req)
}

// openSession turns a full fetch into the first of a session and returns its id.
func openSession(c *wireClient, version int16, req *kmsg.FetchRequest) int32 {
	c.t.Helper()
	req.SessionEpoch = 0
	return ask[*kmsg.FetchResponse](c, version, req).SessionID
}

func TestFetchSession(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 3)
	b.append(topic, 0, "zero")
	c := b.dial()
	open := fetchRequest(topic, map[int32]int64{0: 0, 1: 0, 2: 0})
	open.SessionEpoch = 0
	first := ask[*kmsg.FetchResponse](c, 13, open)
	if first.SessionID == 0 || len(fetched(first)) != 3 {
		t.Fatalf("session %d with %d partitions", first.SessionID, len(fetched(first)))
	}
	id := first.SessionID

	caughtUp := func(r *kmsg.FetchRequest) {
		r.Topics = fetchRequest(topic, map[int32]int64{0: 1}).Topics
	}
	if got := fetched(inSession(c, id, 1, caughtUp)); len(got) != 0 {
		t.Errorf("nothing is new, yet %d partitions are sent: %+v", len(got), got)
	}
	b.append(topic, 2, "two")
	got := fetched(inSession(c, id, 2, nil))
	if len(got) != 1 || got[0].Partition != 2 || values(t, got[0])[0] != "two" {
		t.Errorf("only partition 2 is new, got %+v", got)
	}
	forget := func(r *kmsg.FetchRequest) {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.TopicID, f.Partitions = topic.ID, []int32{2}
		r.ForgottenTopics = append(r.ForgottenTopics, f)
	}
	if got := fetched(inSession(c, id, 3, forget)); len(got) != 0 {
		t.Errorf("the forgotten partition is sent: %+v", got)
	}
	if got := inSession(c, id, 3, nil).ErrorCode; got != kerr.InvalidFetchSessionEpoch.Code {
		t.Errorf("an old epoch: error %d", got)
	}
	if got := inSession(c, id+1, 1, nil).ErrorCode; got != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("an unknown session: error %d", got)
	}
	if got := inSession(b.dial(), id, 4, nil).ErrorCode; got != 0 {
		t.Errorf("the session on another connection: error %d", got)
	}
	if got := inSession(c, id, -5, nil).ErrorCode; got != kerr.InvalidFetchSessionEpoch.Code {
		t.Errorf("an epoch that is none: error %d", got)
	}
	inSession(c, id, epochFinal, nil)
	if n := b.fetches.count(); n != 0 {
		t.Errorf("%d sessions left", n)
	}
}

// Who forgets the last partition has ended the session, and is told so.
func TestASessionEndsWithItsLastPartition(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 2)
	b.append(topic, 0, "zero")
	c := b.dial()
	id := openSession(c, 13, fetchRequest(topic, map[int32]int64{0: 0, 1: 0}))
	forget := func(r *kmsg.FetchRequest, partition int32) {
		r.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: topic.ID, Partitions: []int32{partition}}}
	}
	both := inSession(c, id, 1, func(r *kmsg.FetchRequest) { // wanted and forgotten: forgotten
		r.Topics = fetchRequest(topic, map[int32]int64{0: 0}).Topics
		forget(r, 0)
	})
	if got := fetched(both); both.SessionID != id || len(got) != 0 {
		t.Errorf("session %d, want %d; sent: %+v", both.SessionID, id, got)
	}
	last := inSession(c, id, 2, func(r *kmsg.FetchRequest) { forget(r, 1) })
	if last.ErrorCode != 0 || last.SessionID != 0 || len(last.Topics) != 0 {
		t.Errorf("error %d, session %d, %d topics; want 0, 0 and none", last.ErrorCode, last.SessionID, len(last.Topics))
	}
	if got := inSession(c, id, 3, nil).ErrorCode; got != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("the session goes on: error %d", got)
	}
}

// After an error a partition is sent again once it is there, also when its bounds
// are those the client was told before the error.
func TestASessionTellsThatAnErrorIsOver(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	b.append(topic, 0, "first")
	c := b.dial()
	named := func(from int64) *kmsg.FetchRequest {
		req := fetchRequest(topic, map[int32]int64{0: from})
		req.Topics[0].Topic, req.Topics[0].TopicID = "orders", [16]byte{}
		return req
	}
	id := openSession(c, 12, named(0))
	epoch := int32(0)
	next := func(change func(*kmsg.FetchRequest)) []kmsg.FetchResponseTopicPartition {
		epoch++
		req := kmsg.NewPtrFetchRequest()
		req.SessionID, req.SessionEpoch = id, epoch
		if change != nil {
			change(req)
		}
		return fetched(ask[*kmsg.FetchResponse](c, 12, req))
	}
	next(func(r *kmsg.FetchRequest) { r.Topics = named(1).Topics })
	if got := next(nil); len(got) != 0 {
		t.Fatalf("nothing is new: %+v", got)
	}
	name := "orders"
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TopicNames = []string{name}
	ask[*kmsg.DeleteTopicsResponse](c, 5, remove)
	for range 2 {
		if got := next(nil); len(got) != 1 || got[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("the topic is gone: %+v", got)
		}
	}
	b.append(b.create("orders", 1), 0, "again")
	if got := next(nil); len(got) != 1 || got[0].ErrorCode != 0 || got[0].HighWatermark != 1 {
		t.Errorf("the topic is there again: %+v", got)
	}
	if got := next(nil); len(got) != 0 {
		t.Errorf("nothing is new: %+v", got)
	}
}

// A partition without records is sent again when only its last stable offset
// moved, or only its start.
func TestASessionTellsWhenOnlyBoundsMove(t *testing.T) {
	p := fetchPart{told: true, toldBounds: model.Bounds{Start: 1, Stable: 5, High: 9}}
	for _, c := range []struct {
		bounds model.Bounds
		want   bool
	}{
		{model.Bounds{Start: 1, Stable: 5, High: 9, End: 20}, false},
		{model.Bounds{Start: 1, Stable: 6, High: 9}, true},
		{model.Bounds{Start: 2, Stable: 5, High: 9}, true},
		{model.Bounds{Start: 1, Stable: 5, High: 10}, true},
	} {
		if got := p.news(c.bounds); got != c.want {
			t.Errorf("%+v: news %v, want %v", c.bounds, got, c.want)
		}
	}
}

// On the wire: a reader at the last stable offset is told of the high watermark that
// others' records moved, once, and of the start.
func TestASessionSendsAPartitionWithoutRecords(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	producer := b.client(kgo.TransactionalID("clerk"), kgo.DefaultProduceTopic("orders"))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(t.Context(), kgo.StringRecord("pending")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c := b.dial()
	committed := func(r *kmsg.FetchRequest) { r.IsolationLevel = 1 }
	open := fetchRequest(topic, map[int32]int64{0: 0})
	open.SessionEpoch, open.IsolationLevel = 0, 1
	id := ask[*kmsg.FetchResponse](c, 13, open).SessionID
	b.append(topic, 0, "behind it")
	got := fetched(inSession(c, id, 1, committed))
	if len(got) != 1 || got[0].LastStableOffset != 0 || got[0].HighWatermark != 2 || len(got[0].RecordBatches) != 0 {
		t.Errorf("only the high watermark moved: %+v", got)
	}
	if got := fetched(inSession(c, id, 2, committed)); len(got) != 0 {
		t.Errorf("nothing moved: %+v", got)
	}
	log, err := b.coordinator.Partition(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	deleted, _, err := log.DeleteRecords(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := deleted.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	atEnd := func(r *kmsg.FetchRequest) {
		r.IsolationLevel, r.Topics = 1, fetchRequest(topic, map[int32]int64{0: 2}).Topics
	}
	if got := fetched(inSession(c, id, 3, atEnd)); len(got) != 1 || got[0].LogStartOffset != 2 || got[0].ErrorCode != 0 {
		t.Errorf("only the start moved: %+v", got)
	}
}

func TestPartitionsTakeTurnsInASession(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 3)
	for partition := range int32(3) {
		for range 3 {
			b.append(topic, partition, strings.Repeat("x", 1000))
		}
	}
	c := b.dial()
	req := fetchRequest(topic, map[int32]int64{0: 0, 1: 0, 2: 0})
	req.SessionEpoch, req.MaxBytes = 0, 1
	resp := ask[*kmsg.FetchResponse](c, 13, req)
	var served []int32
	for epoch := int32(1); epoch <= 3; epoch++ {
		for _, p := range fetched(resp) {
			if len(p.RecordBatches) > 0 {
				served = append(served, p.Partition)
			}
		}
		resp = inSession(c, resp.SessionID, epoch, func(r *kmsg.FetchRequest) { r.MaxBytes = 1 })
	}
	if len(served) != 3 || served[0] == served[1] || served[1] == served[2] || served[0] == served[2] {
		t.Errorf("served %v, want each partition once", served)
	}
}

// A consumer that pauses and resumes a partition forgets it and adds it again with
// every request; a session of two partitions must not grow by that.
func TestASessionDoesNotGrowByPauses(t *testing.T) {
	cache := newFetchSessions(1)
	s := cache.open(time.Now(), true)
	change := func(forget bool) *kmsg.FetchRequest {
		req := kmsg.NewPtrFetchRequest()
		t := kmsg.NewFetchRequestTopic()
		t.Partitions = []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}
		req.Topics = append(req.Topics, t)
		if forget {
			req.Topics = nil
			f := kmsg.NewFetchRequestForgottenTopic()
			f.Partitions = []int32{0}
			req.ForgottenTopics = append(req.ForgottenTopics, f)
		}
		return req
	}
	for i := range 1000 {
		s.update(change(i%2 == 1))
	}
	if len(s.parts) != 0 || len(s.order) > 100 {
		t.Errorf("%d partitions in a list of %d", len(s.parts), len(s.order))
	}
}

// Two requests of one session may be under way when a client reconnects. What the
// second one forgets, the first one may still serve.
func TestAPartitionForgottenWhileItIsServed(t *testing.T) {
	s := newFetchSessions(1).open(time.Now(), true)
	add, forget := kmsg.NewPtrFetchRequest(), kmsg.NewPtrFetchRequest()
	topic, forgotten := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestForgottenTopic()
	for n := range int32(40) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = n
		topic.Partitions = append(topic.Partitions, p)
		forgotten.Partitions = append(forgotten.Partitions, n)
	}
	add.Topics = append(add.Topics, topic)
	forget.ForgottenTopics = append(forget.ForgottenTopics, forgotten)
	s.update(add)
	targets := s.targets(nil)
	s.update(forget)
	s.compact()
	for _, target := range targets {
		s.served(target.part)
	}
	if got := s.targets(nil); len(got) != 0 {
		t.Errorf("%d partitions are back", len(got))
	}
}

func TestSessionCache(t *testing.T) {
	now := time.Now()
	cache := newFetchSessions(2)
	first, second := cache.open(now, true), cache.open(now.Add(time.Minute), true)
	if first == nil || second == nil || cache.open(now.Add(time.Minute), true) != nil {
		t.Fatal("a full cache of sessions in use gave a session away")
	}
	third := cache.open(now.Add(sessionIdle), true)
	if third == nil || cache.byID[first.id] != nil || cache.byID[second.id] == nil {
		t.Error("the session idle for long was not the one dropped")
	}
	if newFetchSessions(0).open(now, true) != nil {
		t.Error("a cache of no slots has a session")
	}
}

func TestReadCommittedGetsAListOfAbortedTransactionsThatIsNotNull(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	b.append(topic, 0, "plain")
	req := fetchRequest(topic, map[int32]int64{0: 0})
	req.IsolationLevel = 1
	got := fetched(ask[*kmsg.FetchResponse](b.dial(), 13, req))[0]
	if got.AbortedTransactions == nil || len(got.AbortedTransactions) != 0 || !bytes.Contains(got.RecordBatches, []byte("plain")) {
		t.Errorf("aborted %v", got.AbortedTransactions)
	}
}

// A read_committed consumer that waits in its session at the last stable offset
// is woken when the transaction before it ends, although it fetched nothing new
// of its own; see pitfalls: sessions that never re-send such a partition.
func TestAReadCommittedSessionIsWokenByTheEndOfATransaction(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	producer := b.client(kgo.TransactionalID("clerk"), kgo.DefaultProduceTopic("orders"))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(t.Context(), kgo.StringRecord("pending")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c := b.dial()
	open := fetchRequest(topic, map[int32]int64{0: 0})
	open.SessionEpoch, open.IsolationLevel = 0, 1
	first := ask[*kmsg.FetchResponse](c, 13, open)
	if p := fetched(first)[0]; p.LastStableOffset != 0 || p.HighWatermark != 1 || len(p.RecordBatches) != 0 {
		t.Fatalf("during the transaction: stable %d high %d, %d bytes", p.LastStableOffset, p.HighWatermark, len(p.RecordBatches))
	}
	wait := kmsg.NewPtrFetchRequest()
	wait.SessionID, wait.SessionEpoch, wait.IsolationLevel = first.SessionID, 1, 1
	wait.MaxWaitMillis, wait.MinBytes = 60_000, 1
	id := c.send(13, wait)
	if err := producer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	resp := wait.ResponseKind().(*kmsg.FetchResponse)
	c.read(id, resp)
	p := fetched(resp)[0]
	if p.LastStableOffset != 2 || len(p.AbortedTransactions) != 1 || p.AbortedTransactions[0].FirstOffset != 0 {
		t.Errorf("after the abort: stable %d, aborted %+v", p.LastStableOffset, p.AbortedTransactions)
	}
}

// A topic deleted and made again under its name is another topic: requests with
// the old id are refused, and none of the old records appears.
func TestARecreatedTopicIsAnother(t *testing.T) {
	b := startBroker(t)
	old := b.create("orders", 1)
	b.append(old, 0, "of the old one")
	deleted, err := b.coordinator.DeleteTopics([]catalog.TopicRef{{Name: "orders"}})(t.Context())
	if err != nil || deleted[0].Err != nil {
		t.Fatalf("delete: %v, %+v", err, deleted)
	}
	fresh := b.create("orders", 1)
	c := b.dial()
	if got := produceOne(c, 13, produceRequest(old, plain(t, "x"))); got.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("produce with the old id: error %d", got.ErrorCode)
	}
	if got := fetched(ask[*kmsg.FetchResponse](c, 13, fetchRequest(old, map[int32]int64{0: 0})))[0]; got.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("fetch with the old id: error %d", got.ErrorCode)
	}
	if got := fetched(ask[*kmsg.FetchResponse](c, 13, fetchRequest(fresh, map[int32]int64{0: 0})))[0]; got.ErrorCode != 0 || got.HighWatermark != 0 {
		t.Errorf("the new topic: %+v", got)
	}
}

// No answer is larger than max bytes, so min bytes cannot ask for more, as in Kafka.
func TestMinBytesBeyondWhatAnAnswerMayHoldDoesNotWait(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	for range 4 {
		b.append(topic, 0, strings.Repeat("x", 1000))
	}
	req := fetchRequest(topic, map[int32]int64{0: 0})
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 3_600_000, 1<<30, 2000
	if got := fetched(ask[*kmsg.FetchResponse](b.dial(), 13, req)); len(values(t, got[0])) != 1 {
		t.Errorf("%d values", len(values(t, got[0])))
	}
}

// A waiting fetch is answered when its topic is deleted.
func TestALongPollEndsWhenItsTopicIsDeleted(t *testing.T) {
	b := startBroker(t)
	topic := b.create("orders", 1)
	c := b.dial()
	req := fetchRequest(topic, map[int32]int64{0: 0})
	req.MaxWaitMillis = 3_600_000
	id := c.send(13, req)
	if _, err := b.coordinator.DeleteTopics([]catalog.TopicRef{{Name: "orders"}})(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	c.read(id, resp)
	if got := fetched(resp)[0].ErrorCode; got != kerr.UnknownTopicOrPartition.Code && got != kerr.UnknownTopicID.Code {
		t.Errorf("error %d", got)
	}
}
