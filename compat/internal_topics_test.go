package compat

import (
	"encoding/binary"
	"fmt"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What clients did to groups and transactions can be read from the internal
// topics with Kafka's published schemas, as tools such as Burrow do.
func TestInternalTopicsHaveKafkasSchema(t *testing.T) {
	addr := start(t, "group.initial.rebalance.delay.ms=0")
	s := &scene{t: t, wire: dial(t, addr)}
	group, m := s.member()
	of := s.topic()
	ask[*kmsg.OffsetCommitResponse](t, s.wire, 9, commit(group, m, of, 0, 2))
	idle, idleTopic := s.group()
	ask[*kmsg.OffsetDeleteResponse](t, s.wire, 0, deleteOffset(idle, idleTopic.name, 0))
	p, txTopic := s.inTxn()
	ask[*kmsg.AddOffsetsToTxnResponse](t, s.wire, 3, addOffsets(p, group))
	ask[*kmsg.TxnOffsetCommitResponse](t, s.wire, 3, commitInTxn(p, group, m, of, 0, 3))
	ask[*kmsg.EndTxnResponse](t, s.wire, 4, endTxn(p, true))

	offsets, groups := readGroups(t, addr)
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"offset", offsets[offsetKey(group, of.name)][0], &kmsg.OffsetCommitValue{Version: 4, Offset: 2, LeaderEpoch: -1, Metadata: "note", TopicID: of.id}},
		{"offset in a transaction", offsets[offsetKey(group, of.name)][1], &kmsg.OffsetCommitValue{Version: 4, Offset: 3, LeaderEpoch: -1, TopicID: of.id}},
		{"deleted offset", offsets[offsetKey(idle, idleTopic.name)][1], (*kmsg.OffsetCommitValue)(nil)},
	} {
		if diff := cmp.Diff(c.want, c.got, cmpopts.IgnoreFields(kmsg.OffsetCommitValue{}, "CommitTimestamp", "ExpireTimestamp", "UnknownTags"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	last := groups[group][len(groups[group])-1]
	if last.Generation != m.generation || last.ProtocolType != "consumer" || *last.Leader != m.id || len(last.Members) != 1 || string(last.Members[0].Assignment) != "everything" {
		t.Errorf("group: %+v", last)
	}

	states := readTransactions(t, addr)[p.txid]
	var seen []string
	for _, v := range states {
		seen = append(seen, fmt.Sprintf("%v %d", v.State, len(v.Topics)))
		if v.ProducerID != p.id || v.TimeoutMillis != 60000 {
			t.Errorf("transaction: %+v", v)
		}
	}
	if first, last := states[0], states[len(states)-1]; first.State != kmsg.TransactionStateEmpty || last.State != kmsg.TransactionStateCompleteCommit {
		t.Errorf("states %v", seen)
	}
	enrolled := false
	for _, v := range states {
		for _, topic := range v.Topics {
			enrolled = enrolled || topic.Topic == txTopic.name && cmp.Equal(topic.Partitions, []int32{0})
		}
	}
	if !enrolled {
		t.Errorf("the partition is in none of %v", seen)
	}
}

func offsetKey(group, topic string) string { return group + "/" + topic }

// readGroups reads __consumer_offsets: what each key had, in order; nil for a tombstone.
func readGroups(t *testing.T, addr string) (offsets map[string][]*kmsg.OffsetCommitValue, groups map[string][]*kmsg.GroupMetadataValue) {
	t.Helper()
	offsets, groups = map[string][]*kmsg.OffsetCommitValue{}, map[string][]*kmsg.GroupMetadataValue{}
	for r := range everything(t, addr, "__consumer_offsets") {
		switch version := int16(binary.BigEndian.Uint16(r.Key)); version {
		case 0, 1:
			var k kmsg.OffsetCommitKey
			decode(t, &k, r.Key)
			offsets[offsetKey(k.Group, k.Topic)] = append(offsets[offsetKey(k.Group, k.Topic)], value[kmsg.OffsetCommitValue](t, r))
		case 2:
			var k kmsg.GroupMetadataKey
			decode(t, &k, r.Key)
			groups[k.Group] = append(groups[k.Group], value[kmsg.GroupMetadataValue](t, r))
		default:
			t.Errorf("a record with a key of version %d", version)
		}
	}
	return offsets, groups
}

// readTransactions reads __transaction_state.
func readTransactions(t *testing.T, addr string) map[string][]*kmsg.TxnMetadataValue {
	t.Helper()
	states := map[string][]*kmsg.TxnMetadataValue{}
	for r := range everything(t, addr, "__transaction_state") {
		var k kmsg.TxnMetadataKey
		decode(t, &k, r.Key)
		states[k.TransactionalID] = append(states[k.TransactionalID], value[kmsg.TxnMetadataValue](t, r))
	}
	return states
}

type schema interface {
	ReadFrom([]byte) error
	AppendTo([]byte) []byte
}

// decode requires that bytes are a message, all of it, and encode to themselves.
func decode(t *testing.T, into schema, b []byte) {
	t.Helper()
	if err := into.ReadFrom(b); err != nil {
		t.Fatalf("decode %T from % x: %v", into, b, err)
	}
	if diff := cmp.Diff(b, into.AppendTo(nil)); diff != "" {
		t.Errorf("%T (-ours +kmsg):\n%s", into, diff)
	}
}

func value[V any, P interface {
	*V
	schema
}](t *testing.T, r *kgo.Record) P {
	t.Helper()
	if r.Value == nil {
		return nil
	}
	var v V
	decode(t, P(&v), r.Value)
	return &v
}

// everything yields the records of an internal topic, from its start to its end.
func everything(t *testing.T, addr, topic string) iter.Seq[*kgo.Record] {
	t.Helper()
	const partitions = 50
	w, last := dial(t, addr), map[int32]int64{}
	for p := range int32(partitions) {
		if end := ask[*kmsg.ListOffsetsResponse](t, w, 5, listOffsets(topic, p, -1)).Topics[0].Partitions[0].Offset; end > 0 {
			last[p] = end - 1
		}
	}
	client := kafkaClient(t, addr, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	return func(yield func(*kgo.Record) bool) {
		for len(last) > 0 {
			fetches := client.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			for r := range fetches.RecordsAll() {
				if r.Offset == last[r.Partition] {
					delete(last, r.Partition)
				}
				if !r.Attrs.IsControl() && !yield(r) {
					return
				}
			}
		}
	}
}
