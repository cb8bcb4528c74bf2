package kafka

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/group"
)

// TestMoonMQGroupsLookLikeConsumers to Kafka's tools, which know no other kind.
func TestMoonMQGroupsLookLikeConsumers(t *testing.T) {
	b := startBroker(t)
	topic := b.create("t", 3)
	for _, id := range []string{"one", "two"} {
		_, err := b.coordinator.AttachMember(group.Attach{Group: "moon", Member: id, Topics: []string{"t", "gone"}, Session: time.Minute}).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	c := b.dial()
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = []string{"moon"}
	g := ask[*kmsg.DescribeGroupsResponse](c, 5, r).Groups[0]
	if g.State != "Stable" || g.ProtocolType != "consumer" || g.Protocol != "range" || len(g.Members) != 2 {
		t.Fatalf("described %+v", g)
	}
	for i, want := range [][]int32{{0, 1}, {2}} {
		var metadata kmsg.ConsumerMemberMetadata
		var assigned kmsg.ConsumerMemberAssignment
		if err := errors.Join(metadata.ReadFrom(g.Members[i].ProtocolMetadata), assigned.ReadFrom(g.Members[i].MemberAssignment)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(metadata.Topics, []string{"gone", "t"}) || len(assigned.Topics) != 2 ||
			len(assigned.Topics[0].Partitions) != 0 || !slices.Equal(assigned.Topics[1].Partitions, want) {
			t.Errorf("%s subscribes %q and reads %+v", g.Members[i].MemberID, metadata.Topics, assigned.Topics)
		}
	}
	if list := ask[*kmsg.ListGroupsResponse](c, 5, kmsg.NewPtrListGroupsRequest()).Groups; len(list) != 1 || list[0].ProtocolType != "consumer" {
		t.Errorf("listed %+v", list)
	}
	wantCode(t, "Kafka member", ask[*kmsg.JoinGroupResponse](c, 3, joinRequest("moon", "")).ErrorCode, kerr.InconsistentGroupProtocol)
	wantCode(t, "Kafka commit", ask[*kmsg.OffsetCommitResponse](c, 9, offsetCommitRequest("moon", topic, 0)).Topics[0].Partitions[0].ErrorCode, kerr.UnknownMemberID)
}

// What a few bytes ask for is answered at length: asked for often it is answered once.
func TestWhatIsNamedOftenIsToldOnce(t *testing.T) {
	b := startBroker(t)
	b.create("t", 2)
	c := b.dial()
	fetch := kmsg.NewPtrOffsetFetchRequest()
	for _, name := range []string{"g", "other", "g"} {
		fetch.Groups = append(fetch.Groups, kmsg.OffsetFetchRequestGroup{Group: name, MemberEpoch: -1})
	}
	if got := ask[*kmsg.OffsetFetchResponse](c, 8, fetch).Groups; len(got) != 2 || got[0].Group != "g" || got[1].Group != "other" {
		t.Errorf("offsets of groups: %+v", got)
	}
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{"x", "y", "x"}
	if got := ask[*kmsg.DescribeTransactionsResponse](c, 0, describe).TransactionStates; len(got) != 2 || got[0].TransactionalID != "x" || got[1].TransactionalID != "y" {
		t.Errorf("transactions: %+v", got)
	}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{1, 0, 1}}, {Topic: "t", Partitions: []int32{0, 7}}}
	var told []int32
	for _, topic := range ask[*kmsg.DescribeProducersResponse](c, 0, producers).Topics {
		for _, p := range topic.Partitions {
			told = append(told, p.Partition)
		}
	}
	if !slices.Equal(told, []int32{1, 0, 7}) {
		t.Errorf("producers of partitions %v", told)
	}
}

func TestGroupsAreDescribedListedAndDeleted(t *testing.T) {
	b := startBroker(t)
	topic := b.create("t", 1)
	other := b.create("other", 1)
	c := b.dial()
	member, generation := stable(t, c, "live")
	commit := offsetCommitRequest("live", topic, 0)
	commit.Topics = append(commit.Topics, offsetCommitRequest("live", other, 0).Topics...)
	commit.MemberID, commit.Generation = member, generation
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](c, 9, commit).Topics[0].Partitions[0].ErrorCode, nil)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](c, 9, offsetCommitRequest("simple", topic, 0)).Topics[0].Partitions[0].ErrorCode, nil)

	t.Run("describe", func(t *testing.T) {
		served(t, 15, func(t *testing.T, v int16) {
			r := kmsg.NewPtrDescribeGroupsRequest()
			r.Groups = []string{"live", "simple", "live"} // who is named twice is described once
			resp := ask[*kmsg.DescribeGroupsResponse](c, v, r)
			if len(resp.Groups) != 2 {
				t.Fatalf("%d groups described, want 2", len(resp.Groups))
			}
			live, simple := resp.Groups[0], resp.Groups[1]
			if live.State != "Stable" || live.ProtocolType != "consumer" || live.Protocol != "range" || len(live.Members) != 1 {
				t.Fatalf("described %+v", live)
			}
			m := live.Members[0]
			if m.MemberID != member || m.ClientID != "wire-test" || !strings.HasPrefix(m.ClientHost, "/") ||
				string(m.MemberAssignment) != "all" || string(m.ProtocolMetadata) != string(subscription("t")) || m.InstanceID != nil {
				t.Errorf("member %+v", m)
			}
			if simple.State != "Empty" || simple.ProtocolType != "" || simple.AuthorizedOperations != -1<<31 {
				t.Errorf("described %+v", simple)
			}
		})
	})
	t.Run("list", func(t *testing.T) {
		served(t, 16, func(t *testing.T, v int16) {
			resp := ask[*kmsg.ListGroupsResponse](c, v, kmsg.NewPtrListGroupsRequest())
			want := []kmsg.ListGroupsResponseGroup{{Group: "live", ProtocolType: "consumer"}, {Group: "simple"}}
			if v >= 4 {
				want[0].GroupState, want[1].GroupState = "Stable", "Empty"
			}
			if v >= 5 {
				want[0].GroupType, want[1].GroupType = "classic", "classic"
			}
			slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
			if diff := cmp.Diff(want, resp.Groups, cmpopts.IgnoreTypes(kmsg.Tags{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
		for _, f := range []struct {
			states, types []string
			want          string
		}{
			{[]string{"EMPTY"}, nil, "simple"},
			{[]string{"stable"}, []string{"CLASSIC"}, "live"},
			{[]string{"Nonsense"}, nil, ""},
			{nil, []string{"Nonsense"}, ""},
			{nil, []string{"consumer"}, ""},
		} {
			r := kmsg.NewPtrListGroupsRequest()
			r.StatesFilter, r.TypesFilter = f.states, f.types
			var got []string
			for _, g := range ask[*kmsg.ListGroupsResponse](c, 5, r).Groups {
				got = append(got, g.Group)
			}
			if strings.Join(got, " ") != f.want {
				t.Errorf("filters %q %q: %q, want %q", f.states, f.types, got, f.want)
			}
		}
	})
	t.Run("delete offsets", func(t *testing.T) {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = "live"
		for _, name := range []string{"t", "other", "unknown"} {
			t := kmsg.NewOffsetDeleteRequestTopic()
			t.Topic, t.Partitions = name, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 9}}
			r.Topics = append(r.Topics, t)
		}
		resp := ask[*kmsg.OffsetDeleteResponse](c, 0, r)
		wantCode(t, "group", resp.ErrorCode, nil)
		wantCode(t, "subscribed", resp.Topics[0].Partitions[0].ErrorCode, kerr.GroupSubscribedToTopic)
		wantCode(t, "partition", resp.Topics[0].Partitions[1].ErrorCode, kerr.UnknownTopicOrPartition)
		wantCode(t, "other", resp.Topics[1].Partitions[0].ErrorCode, nil)
		wantCode(t, "unknown", resp.Topics[2].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
		topics, _ := fetchedOffsets(ask[*kmsg.OffsetFetchResponse](c, 9, offsetFetchRequest("live", nil)))
		if len(topics) != 1 || topics[0].Topic != "t" {
			t.Errorf("left: %+v", topics)
		}
	})
	t.Run("delete", func(t *testing.T) {
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{"live", "simple", "simple"}
		resp := ask[*kmsg.DeleteGroupsResponse](c, 3, r)
		if len(resp.Groups) != 2 {
			t.Fatalf("answered %+v", resp.Groups)
		}
		for i, want := range []*kerr.Error{kerr.NonEmptyGroup, nil} {
			wantCode(t, resp.Groups[i].Group, resp.Groups[i].ErrorCode, want)
		}
	})
}
