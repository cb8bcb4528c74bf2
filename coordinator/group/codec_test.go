package group

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

var someID = model.TopicID{1, 2, 3, 15: 16}

func someGroup() *group {
	g := newGroup("g", time.UnixMilli(42))
	g.state, g.protocolType, g.protocol, g.leader, g.generation = Stable, "consumer", "range", "a", 7
	g.members["a"] = &member{
		id: "a", instance: "static", clientID: "client", clientHost: "/127.0.0.1", order: 1,
		session: 10 * time.Second, rebalance: time.Minute,
		protocols: []Protocol{{"sticky", []byte("s")}, {"range", []byte("r")}}, assignment: []byte("all"),
	}
	g.members["b"] = &member{id: "b", order: 2, session: time.Second, rebalance: time.Second, protocols: []Protocol{{"range", nil}}}
	return g
}

// TestBytesAreKafkas compares our records with an independent encoder of
// Kafka's published schema.
func TestBytesAreKafkas(t *testing.T) {
	at := time.UnixMilli(1234567)
	offsetKey := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t", Partition: 3}
	groupKey := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	nonNull := func(s string) *string { return &s }
	value := committed{offset: 9, epoch: 4, metadata: "m", at: at}
	withID, expiring := value, value
	withID.topicID = someID
	expiring.expires = at.Add(time.Second)

	for _, c := range []struct {
		name  string
		fact  Fact
		key   interface{ AppendTo([]byte) []byte }
		value interface{ AppendTo([]byte) []byte }
	}{
		{"offset", offsetSet{group: "g", partition: partition{"t", 3}, value: value}, &offsetKey,
			&kmsg.OffsetCommitValue{Version: 3, Offset: 9, LeaderEpoch: 4, Metadata: "m", CommitTimestamp: 1234567}},
		{"offset with topic id", offsetSet{group: "g", partition: partition{"t", 3}, value: withID}, &offsetKey,
			&kmsg.OffsetCommitValue{Version: 4, Offset: 9, LeaderEpoch: 4, Metadata: "m", CommitTimestamp: 1234567, TopicID: someID}},
		{"expiring offset", offsetSet{group: "g", partition: partition{"t", 3}, value: expiring}, &offsetKey,
			&kmsg.OffsetCommitValue{Version: 1, Offset: 9, Metadata: "m", CommitTimestamp: 1234567, ExpireTimestamp: 1235567}},
		{"offset tombstone", offsetDeleted{group: "g", partition: partition{"t", 3}}, &offsetKey, nil},
		{"stable group", groupChanged{group: someGroup(), journal: true}, &groupKey,
			&kmsg.GroupMetadataValue{Version: 3, ProtocolType: "consumer", Generation: 7, Protocol: nonNull("range"), Leader: nonNull("a"),
				CurrentStateTimestamp: 42, Members: []kmsg.GroupMetadataValueMember{
					{MemberID: "a", InstanceID: nonNull("static"), ClientID: "client", ClientHost: "/127.0.0.1",
						RebalanceTimeoutMillis: 60000, SessionTimeoutMillis: 10000, Subscription: []byte("r"), Assignment: []byte("all")},
					{MemberID: "b", RebalanceTimeoutMillis: 1000, SessionTimeoutMillis: 1000, Subscription: []byte{}, Assignment: []byte{}},
				}}},
		{"empty group", groupChanged{group: newGroup("g", time.UnixMilli(42)), journal: true}, &groupKey,
			&kmsg.GroupMetadataValue{Version: 3, CurrentStateTimestamp: 42}},
		{"group tombstone", groupDeleted{group: "g"}, &groupKey, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			key, got, ok := Codec{}.Encode(c.fact)
			if !ok {
				t.Fatal("not journaled")
			}
			if diff := cmp.Diff(c.key.AppendTo(nil), key); diff != "" {
				t.Errorf("key (-kmsg +ours):\n%s", diff)
			}
			var want []byte
			if c.value != nil {
				want = c.value.AppendTo(nil)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("value (-kmsg +ours):\n%s", diff)
			}
		})
	}
}

// TestEveryVersionOfAnOffsetIsRead covers what brokers since 0.9 have written.
func TestEveryVersionOfAnOffsetIsRead(t *testing.T) {
	for version := range int16(5) {
		written := kmsg.OffsetCommitValue{
			Version: version, Offset: 9, LeaderEpoch: 4, Metadata: "m", CommitTimestamp: 1234567, ExpireTimestamp: 1235567, TopicID: someID,
		}
		want := committed{offset: 9, epoch: -1, metadata: "m", at: time.UnixMilli(1234567)}
		if version == 1 {
			want.expires = time.UnixMilli(1235567)
		}
		if version >= 3 {
			want.epoch = 4
		}
		if version >= 4 {
			want.topicID = someID
			written.UnknownTags.Set(5, []byte("from the future"))
		}
		key := kmsg.OffsetCommitKey{Version: min(version, 1), Group: "g", Topic: "t", Partition: 3}
		f, err := Codec{}.Decode(machine.Record{Key: key.AppendTo(nil), Value: written.AppendTo(nil)})
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if got := f.(offsetSet); got.value != want || got.group != "g" || got.partition != (partition{"t", 3}) {
			t.Errorf("version %d: read %+v, want %+v", version, got, want)
		}
	}
}

// TestEveryVersionOfAGroupIsRead reads back members and their places.
func TestEveryVersionOfAGroupIsRead(t *testing.T) {
	name := "range"
	for version := range int16(5) {
		written := kmsg.GroupMetadataValue{
			Version: version, ProtocolType: "consumer", Generation: 7, Protocol: &name, Leader: &name, CurrentStateTimestamp: 42,
			Members: []kmsg.GroupMetadataValueMember{{
				MemberID: "a", ClientID: "c", ClientHost: "h", RebalanceTimeoutMillis: 5000, SessionTimeoutMillis: 6000,
				Subscription: []byte("s"), Assignment: []byte("all"),
			}},
		}
		key := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
		f, err := Codec{}.Decode(machine.Record{Key: key.AppendTo(nil), Value: written.AppendTo(nil), Timestamp: 99})
		if err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		g := f.(groupChanged).group
		m := g.members["a"]
		if g.state != Stable || g.generation != 7 || g.protocol != "range" || !g.unarmed || m == nil {
			t.Fatalf("version %d: read %+v", version, g)
		}
		since, rebalance := time.UnixMilli(99), 6*time.Second
		if version >= 1 {
			rebalance = 5 * time.Second
		}
		if version >= 2 {
			since = time.UnixMilli(42)
		}
		if !g.since.Equal(since) || m.rebalance != rebalance || m.session != 6*time.Second ||
			string(m.metadata("range")) != "s" || string(m.assignment) != "all" {
			t.Errorf("version %d: read %+v since %v", version, m, g.since)
		}
	}
}

func TestAttemptCountersAreReadBack(t *testing.T) {
	set := attemptsSet{attemptKey{"g", someID, 3, 99}, attempt{count: 2, last: time.UnixMilli(5), dead: true}}
	key, value, _ := Codec{}.Encode(set)
	if !IsAttempt(key) || IsAttempt(encodeGroupKey("g")) || IsAttempt(nil) {
		t.Fatal("keys are told apart wrongly")
	}
	f, err := Codec{}.Decode(machine.Record{Key: key, Value: value})
	if err != nil || f.(attemptsSet) != set {
		t.Fatalf("read %+v, %v; want %+v", f, err, set)
	}
	key, value, _ = Codec{}.Encode(attemptsCleared{set.key})
	f, err = Codec{}.Decode(machine.Record{Key: key, Value: value})
	if err != nil || value != nil || f.(attemptsCleared).key != set.key {
		t.Fatalf("read %+v, %v; want a tombstone of %+v", f, err, set.key)
	}
}

func TestRecordsThatAreNotFacts(t *testing.T) {
	offsetKey, groupKey := encodeOffsetKey("g", partition{"t", 1}), encodeGroupKey("g")
	for _, c := range []struct {
		name       string
		key, value []byte
		want       error
	}{
		{"empty key", nil, nil, machine.ErrMalformed},
		{"key of a newer kind", []byte{0, 3, 0, 0}, nil, machine.ErrUnknownFact},
		{"short offset key", offsetKey[:5], []byte{0, 3}, machine.ErrMalformed},
		{"short offset tombstone", offsetKey[:5], nil, machine.ErrMalformed},
		{"short offset", offsetKey, []byte{0, 3, 0}, machine.ErrMalformed},
		{"newer offset", offsetKey, []byte{0, 5, 0}, machine.ErrUnknownFact},
		{"newer group", groupKey, []byte{0, 5, 0}, machine.ErrUnknownFact},
		{"too many members", groupKey, append([]byte{0, 3, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255}, 0, 0, 0, 0, 0, 0, 0, 9, 127, 0, 0, 0), machine.ErrMalformed},
		{"short counter", encodeAttemptKey(attemptKey{}), []byte{0, 0}, machine.ErrMalformed},
		{"newer counter", encodeAttemptKey(attemptKey{}), []byte{0, 1}, machine.ErrUnknownFact},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Codec{}.Decode(machine.Record{Key: c.key, Value: c.value})
			if !errors.Is(err, c.want) {
				t.Fatalf("read %+v, %v; want %v", f, err, c.want)
			}
		})
	}
}

// FuzzDecode: no bytes make it panic, and what was read and can be written is
// read again the same.
func FuzzDecode(f *testing.F) {
	for _, fact := range []Fact{
		offsetSet{group: "g", partition: partition{"t", 1}, value: committed{topicID: someID}},
		groupChanged{group: someGroup(), journal: true},
		attemptsSet{},
	} {
		key, value, _ := Codec{}.Encode(fact)
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		fact, err := Codec{}.Decode(machine.Record{Key: key, Value: value})
		if err != nil {
			return
		}
		k, v, ok := Codec{}.Encode(fact)
		if !ok {
			t.Fatalf("%+v is not journaled", fact)
		}
		again, err := Codec{}.Decode(machine.Record{Key: k, Value: v})
		if err != nil {
			t.Fatalf("%+v cannot be read again: %v", fact, err)
		}
		k2, v2, _ := Codec{}.Encode(again)
		if string(k) != string(k2) || string(v) != string(v2) {
			t.Fatalf("%+v became %+v", fact, again)
		}
	})
}
