package kafka

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
)

// The expectations of this file were compared with the answers of a Kafka 4.4.0
// broker to the same requests, version by version.

// served calls f with every version of an API we serve.
func served(t *testing.T, key int16, f func(t *testing.T, version int16)) {
	t.Helper()
	a := apiFor(key)
	if a == nil {
		t.Fatalf("API %d is not served", key)
	}
	for version := a.min; version <= a.max; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) { f(t, version) })
	}
}

func wantCode(t *testing.T, what string, got int16, want *kerr.Error) {
	t.Helper()
	var code int16
	if want != nil {
		code = want.Code
	}
	if got != code {
		t.Errorf("%s: %v, want %v", what, kerr.ErrorForCode(got), kerr.ErrorForCode(code))
	}
}

func instance(id string) *string { return &id }

// subscription is a consumer's metadata.
func subscription(topics ...string) []byte {
	m := kmsg.ConsumerMemberMetadata{Version: 1, Topics: topics}
	return m.AppendTo(nil)
}

func joinRequest(group, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.ProtocolType = group, member, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10_000, 60_000
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
	return r
}

func syncRequest(group, member string, generation int32, assignments ...string) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.Generation = group, member, generation
	r.ProtocolType, r.Protocol = instance("consumer"), instance("range")
	for i := 0; i < len(assignments); i += 2 {
		r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
			MemberID: assignments[i], MemberAssignment: []byte(assignments[i+1]),
		})
	}
	return r
}

func heartbeatRequest(group, member string, generation int32, instance *string) *kmsg.HeartbeatRequest {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.Generation, r.InstanceID = group, member, generation, instance
	return r
}

// offsetCommitRequest commits offset 5 for partitions of a topic.
func offsetCommitRequest(group string, topic *catalog.Topic, partitions ...int32) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group = group
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic.Name, topic.ID
	for _, n := range partitions {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = n, 5, 1, instance("meta")
		t.Partitions = append(t.Partitions, p)
	}
	r.Topics = append(r.Topics, t)
	return r
}

// offsetFetchRequest asks for partitions of a topic; without any, for everything.
func offsetFetchRequest(group string, topic *catalog.Topic, partitions ...int32) *kmsg.OffsetFetchRequest {
	r := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	r.Group, g.Group = group, group
	if partitions != nil {
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic.Name, Partitions: partitions}}
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic.Name, TopicID: topic.ID, Partitions: partitions}}
	}
	r.Groups = append(r.Groups, g)
	return r
}

// fetchedOffsets brings the two shapes of an OffsetFetch answer into one.
func fetchedOffsets(resp *kmsg.OffsetFetchResponse) (topics []kmsg.OffsetFetchResponseGroupTopic, code int16) {
	if resp.Version >= 8 {
		return resp.Groups[0].Topics, resp.Groups[0].ErrorCode
	}
	for _, t := range resp.Topics {
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition(p))
		}
		topics = append(topics, topic)
	}
	return topics, resp.ErrorCode
}

// stable makes a group with one dynamic member and returns it.
func stable(t *testing.T, c *wireClient, group string) (member string, generation int32) {
	t.Helper()
	joined := ask[*kmsg.JoinGroupResponse](c, 3, joinRequest(group, ""))
	wantCode(t, "join", joined.ErrorCode, nil)
	synced := ask[*kmsg.SyncGroupResponse](c, 3, syncRequest(group, joined.MemberID, joined.Generation, joined.MemberID, "all"))
	wantCode(t, "sync", synced.ErrorCode, nil)
	return joined.MemberID, joined.Generation
}

func TestFindCoordinator(t *testing.T) {
	b := startBroker(t)
	c := b.dial()
	served(t, 10, func(t *testing.T, version int16) {
		for _, q := range []struct {
			kind int8
			key  string
			want *kerr.Error
		}{
			{0, "g", nil}, {0, "", nil}, {1, "txn", nil}, {2, "share", kerr.InvalidRequest}, {9, "x", kerr.InvalidRequest},
		} {
			if version == 0 && q.kind != 0 {
				continue // version 0 knows groups only
			}
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = q.kind, q.key, []string{q.key, q.key}
			resp := ask[*kmsg.FindCoordinatorResponse](c, version, r)
			found := resp.Coordinators
			if version < 4 {
				one := kmsg.NewFindCoordinatorResponseCoordinator()
				one.Key, one.ErrorCode, one.NodeID, one.Host, one.Port = q.key, resp.ErrorCode, resp.NodeID, resp.Host, resp.Port
				found = append(found, one)
			} else if len(found) != 2 {
				t.Fatalf("%d answers to 2 keys", len(found))
			}
			for _, f := range found {
				wantCode(t, q.key, f.ErrorCode, q.want)
				if f.Key != q.key || (f.NodeID == b.config.NodeID) != (q.want == nil) || (f.Host != "") != (q.want == nil) {
					t.Errorf("type %d, key %q: found %+v", q.kind, q.key, f)
				}
			}
		}
	})
}

// TestGroupsThatDoNotExist says what every group API answers for a group nobody
// has made, and for the empty group id.
func TestGroupsThatDoNotExist(t *testing.T) {
	b := startBroker(t)
	topic := b.create("t", 2)
	c := b.dial()
	t.Run("Heartbeat", func(t *testing.T) {
		served(t, 12, func(t *testing.T, v int16) {
			wantCode(t, "unknown", ask[*kmsg.HeartbeatResponse](c, v, heartbeatRequest("no", "m", 1, nil)).ErrorCode, kerr.UnknownMemberID)
			wantCode(t, "empty", ask[*kmsg.HeartbeatResponse](c, v, heartbeatRequest("", "m", 1, nil)).ErrorCode, kerr.InvalidGroupID)
		})
	})
	t.Run("SyncGroup", func(t *testing.T) {
		served(t, 14, func(t *testing.T, v int16) {
			wantCode(t, "unknown", ask[*kmsg.SyncGroupResponse](c, v, syncRequest("no", "m", 1)).ErrorCode, kerr.UnknownMemberID)
			wantCode(t, "empty", ask[*kmsg.SyncGroupResponse](c, v, syncRequest("", "m", 1)).ErrorCode, kerr.InvalidGroupID)
			if v >= 5 {
				silent := syncRequest("no", "m", 1)
				silent.Protocol = nil
				wantCode(t, "no protocol", ask[*kmsg.SyncGroupResponse](c, v, silent).ErrorCode, kerr.InconsistentGroupProtocol)
			}
		})
	})
	t.Run("JoinGroup", func(t *testing.T) {
		served(t, 11, func(t *testing.T, v int16) {
			for _, j := range []struct {
				group, member string
				sessionMillis int32
				protocols     bool
				want          *kerr.Error
			}{
				{"no", "m", 10_000, true, kerr.UnknownMemberID},
				{"", "", 10_000, true, kerr.InvalidGroupID},
				{"no", "", 1, true, kerr.InvalidSessionTimeout},
				{"no", "", 10_000, false, kerr.InconsistentGroupProtocol},
			} {
				r := joinRequest(j.group, j.member)
				r.SessionTimeoutMillis = j.sessionMillis
				if !j.protocols {
					r.Protocols = nil
				}
				resp := ask[*kmsg.JoinGroupResponse](c, v, r)
				wantCode(t, fmt.Sprintf("%+v", j), resp.ErrorCode, j.want)
				if resp.Generation != -1 || resp.MemberID != j.member || (resp.Protocol == nil) != (v >= 7) {
					t.Errorf("refused with %+v", resp)
				}
			}
		})
	})
	t.Run("LeaveGroup", func(t *testing.T) {
		served(t, 13, func(t *testing.T, v int16) {
			r := kmsg.NewPtrLeaveGroupRequest()
			r.Group, r.MemberID = "no", "m"
			r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "m"}, {InstanceID: instance("i")}}
			resp := ask[*kmsg.LeaveGroupResponse](c, v, r)
			if v < 3 {
				wantCode(t, "unknown", resp.ErrorCode, kerr.UnknownMemberID)
			} else {
				wantCode(t, "unknown", resp.ErrorCode, nil)
				if len(resp.Members) != 2 || resp.Members[1].InstanceID == nil {
					t.Fatalf("members %+v", resp.Members)
				}
				wantCode(t, "first member", resp.Members[0].ErrorCode, kerr.UnknownMemberID)
			}
			r.Group = ""
			wantCode(t, "empty", ask[*kmsg.LeaveGroupResponse](c, v, r).ErrorCode, kerr.InvalidGroupID)
		})
	})
	t.Run("DescribeGroups", func(t *testing.T) {
		served(t, 15, func(t *testing.T, v int16) {
			r := kmsg.NewPtrDescribeGroupsRequest()
			r.Groups, r.IncludeAuthorizedOperations = []string{"no"}, true
			g := ask[*kmsg.DescribeGroupsResponse](c, v, r).Groups[0]
			if g.State != "Dead" || g.Group != "no" || len(g.Members) > 0 {
				t.Errorf("described as %+v", g)
			}
			switch {
			case v >= 6:
				wantCode(t, "unknown", g.ErrorCode, kerr.GroupIDNotFound)
				if g.ErrorMessage == nil || *g.ErrorMessage != "Group no not found." || g.AuthorizedOperations != -1<<31 {
					t.Errorf("described as %+v", g)
				}
			case v >= 3 && g.AuthorizedOperations != 3400, v < 3 && g.AuthorizedOperations != -1<<31, g.ErrorCode != 0:
				t.Errorf("described as %+v", g)
			}
		})
	})
	t.Run("DeleteGroups", func(t *testing.T) {
		served(t, 42, func(t *testing.T, v int16) {
			r := kmsg.NewPtrDeleteGroupsRequest()
			r.Groups = []string{"no", ""}
			for _, g := range ask[*kmsg.DeleteGroupsResponse](c, v, r).Groups {
				wantCode(t, g.Group, g.ErrorCode, kerr.GroupIDNotFound)
			}
		})
	})
	t.Run("OffsetFetch", func(t *testing.T) {
		served(t, 9, func(t *testing.T, v int16) {
			for _, group := range []string{"no", ""} {
				topics, code := fetchedOffsets(ask[*kmsg.OffsetFetchResponse](c, v, offsetFetchRequest(group, topic, 0, 7)))
				wantCode(t, "all", code, nil)
				if len(topics) != 1 || len(topics[0].Partitions) != 2 {
					t.Fatalf("topics %+v", topics)
				}
				for _, p := range topics[0].Partitions {
					if p.Offset != -1 || p.LeaderEpoch != -1 || p.ErrorCode != 0 || p.Metadata == nil || *p.Metadata != "" {
						t.Errorf("partition %+v, want no offset and no error", p)
					}
				}
			}
		})
	})
	t.Run("OffsetDelete", func(t *testing.T) {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = "no"
		wantCode(t, "unknown", ask[*kmsg.OffsetDeleteResponse](c, 0, r).ErrorCode, kerr.GroupIDNotFound)
		r.Group = ""
		wantCode(t, "empty", ask[*kmsg.OffsetDeleteResponse](c, 0, r).ErrorCode, kerr.InvalidGroupID)
	})
	t.Run("OffsetCommit", func(t *testing.T) {
		served(t, 8, func(t *testing.T, v int16) {
			if v == 0 {
				return // has no generation
			}
			r := offsetCommitRequest("no", topic, 0)
			r.Generation, r.MemberID = 3, "m"
			want := kerr.IllegalGeneration
			if v >= 9 {
				want = kerr.GroupIDNotFound
			}
			wantCode(t, "generation 3", ask[*kmsg.OffsetCommitResponse](c, v, r).Topics[0].Partitions[0].ErrorCode, want)
		})
	})
}

func TestOffsetsAreCommittedAndFetchedInEveryVersion(t *testing.T) {
	b := startBroker(t)
	topic := b.create("t", 2)
	unknown := &catalog.Topic{Name: "unknown", ID: [16]byte{1}}
	c := b.dial()
	served(t, 8, func(t *testing.T, v int16) {
		group := fmt.Sprintf("simple-%d", v)
		r := offsetCommitRequest(group, topic, 0, 1, 7)
		r.Topics = append(r.Topics, offsetCommitRequest(group, unknown, 0).Topics...)
		r.RetentionTimeMillis = -1
		r.Topics[0].Partitions[1].Metadata = instance(strings.Repeat("x", 4097))
		resp := ask[*kmsg.OffsetCommitResponse](c, v, r)
		wantCode(t, "good", resp.Topics[0].Partitions[0].ErrorCode, nil)
		wantCode(t, "metadata", resp.Topics[0].Partitions[1].ErrorCode, kerr.OffsetMetadataTooLarge)
		wantCode(t, "partition", resp.Topics[0].Partitions[2].ErrorCode, kerr.UnknownTopicOrPartition)
		noTopic := kerr.UnknownTopicOrPartition
		if v >= 10 {
			noTopic = kerr.UnknownTopicID
		}
		wantCode(t, "topic", resp.Topics[1].Partitions[0].ErrorCode, noTopic)

		fetchVersion := v
		epoch := int32(-1)
		if v >= 6 {
			epoch = 1
		}
		topics, code := fetchedOffsets(ask[*kmsg.OffsetFetchResponse](c, fetchVersion, offsetFetchRequest(group, topic, 0, 1)))
		wantCode(t, "fetch", code, nil)
		if p := topics[0].Partitions; len(p) != 2 || p[0].Offset != 5 || *p[0].Metadata != "meta" || p[0].LeaderEpoch != epoch || p[1].Offset != -1 {
			t.Errorf("fetched %+v", topics)
		}
	})
	served(t, 9, func(t *testing.T, v int16) {
		if v < 2 {
			return // cannot ask for everything
		}
		topics, code := fetchedOffsets(ask[*kmsg.OffsetFetchResponse](c, v, offsetFetchRequest("simple-9", nil)))
		wantCode(t, "everything", code, nil)
		if len(topics) != 1 || len(topics[0].Partitions) != 1 || topics[0].Partitions[0].Offset != 5 {
			t.Fatalf("fetched %+v", topics)
		}
		if byID := v >= 10; byID != (topics[0].Topic == "") || byID && topics[0].TopicID != topic.ID {
			t.Errorf("topic %q, id %v", topics[0].Topic, topics[0].TopicID)
		}
	})
	t.Run("unknown topic id", func(t *testing.T) {
		topics, _ := fetchedOffsets(ask[*kmsg.OffsetFetchResponse](c, 10, offsetFetchRequest("simple-9", unknown, 0)))
		wantCode(t, "fetch", topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicID)
	})
	t.Run("several groups", func(t *testing.T) {
		r := offsetFetchRequest("simple-8", topic, 0)
		r.Groups = append(r.Groups, offsetFetchRequest("no", topic, 0).Groups...)
		resp := ask[*kmsg.OffsetFetchResponse](c, 8, r)
		if len(resp.Groups) != 2 || resp.Groups[0].Topics[0].Partitions[0].Offset != 5 || resp.Groups[1].Topics[0].Partitions[0].Offset != -1 {
			t.Errorf("fetched %+v", resp.Groups)
		}
	})
}

func TestADeletedTopicsOffsetsAreGone(t *testing.T) {
	b := startBroker(t)
	topic := b.create("t", 1)
	c := b.dial()
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](c, 9, offsetCommitRequest("g", topic, 0)).Topics[0].Partitions[0].ErrorCode, nil)
	if _, err := b.coordinator.DeleteTopics([]catalog.TopicRef{{Name: "t"}})(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := b.create("t", 1)
	for _, asked := range [][]int32{{0}, nil} {
		topics, _ := fetchedOffsets(ask[*kmsg.OffsetFetchResponse](c, 9, offsetFetchRequest("g", again, asked...)))
		for _, topic := range topics {
			if topic.Partitions[0].Offset != -1 {
				t.Errorf("the new topic has the old offset: %+v", topics)
			}
		}
	}
}

func TestTwoMembersRebalanceOverTheWire(t *testing.T) {
	b := startBroker(t)
	b.create("t", 2)
	served(t, 11, func(t *testing.T, v int16) {
		group := fmt.Sprintf("g-%d", v)
		first, second := b.dial(), b.dial()
		syncVersion := min(v, 5)
		join := func(c *wireClient, member string) *kmsg.JoinGroupResponse {
			resp := ask[*kmsg.JoinGroupResponse](c, v, joinRequest(group, member))
			if v >= 4 && member == "" {
				wantCode(t, "first step", resp.ErrorCode, kerr.MemberIDRequired)
				if !strings.HasPrefix(resp.MemberID, "wire-test-") {
					t.Errorf("member id %q", resp.MemberID)
				}
				return ask[*kmsg.JoinGroupResponse](c, v, joinRequest(group, resp.MemberID))
			}
			return resp
		}
		one := join(first, "")
		wantCode(t, "first join", one.ErrorCode, nil)
		if one.Generation != 1 || one.LeaderID != one.MemberID || len(one.Members) != 1 || *one.Protocol != "range" {
			t.Fatalf("joined %+v", one)
		}
		// The second one's join is answered when the first has rejoined.
		newcomer := ""
		if v >= 4 {
			newcomer = ask[*kmsg.JoinGroupResponse](second, v, joinRequest(group, "")).MemberID
		}
		parked := second.send(v, joinRequest(group, newcomer))
		describeUntil(t, b, group, "PreparingRebalance", 2)
		wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](first, 4, heartbeatRequest(group, one.MemberID, 1, nil)).ErrorCode, kerr.RebalanceInProgress)
		one = join(first, one.MemberID)
		two := kmsg.NewPtrJoinGroupResponse()
		two.Version = v
		second.read(parked, two)
		if one.Generation != 2 || two.Generation != 2 || len(one.Members) != 2 || len(two.Members) != 0 || two.LeaderID != one.MemberID {
			t.Fatalf("joined %+v and %+v", one, two)
		}
		// The follower's sync is answered by the leader's.
		parked = second.send(syncVersion, syncRequest(group, two.MemberID, 2))
		led := ask[*kmsg.SyncGroupResponse](first, syncVersion, syncRequest(group, one.MemberID, 2, one.MemberID, "mine", two.MemberID, "yours"))
		followed := kmsg.NewPtrSyncGroupResponse()
		followed.Version = syncVersion
		second.read(parked, followed)
		if string(led.MemberAssignment) != "mine" || string(followed.MemberAssignment) != "yours" {
			t.Errorf("assigned %q and %q", led.MemberAssignment, followed.MemberAssignment)
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = group, two.MemberID
		leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: two.MemberID}}
		left := ask[*kmsg.LeaveGroupResponse](second, min(v, 5), leave)
		wantCode(t, "leave", left.ErrorCode, nil)
	})
}

// describeUntil asks until the group has a state and a number of members: what
// another connection sent may still be on its way.
func describeUntil(t *testing.T, b *testBroker, group, state string, members int) kmsg.DescribeGroupsResponseGroup {
	t.Helper()
	c := b.dial()
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = []string{group}
	for {
		g := ask[*kmsg.DescribeGroupsResponse](c, 5, r).Groups[0]
		if g.State == state && len(g.Members) == members {
			return g
		}
		if t.Context().Err() != nil {
			t.Fatalf("group is %+v", g)
		}
	}
}

// untilNoFrames waits until no request's memory is held: an answer may have been
// read before its frame is given back.
func (b *testBroker) untilNoFrames() {
	b.t.Helper()
	for end := time.Now().Add(patience); b.frames.Used() > 0; {
		if time.Now().After(end) {
			b.t.Fatalf("%d bytes of requests are held", b.frames.Used())
		}
	}
}

func TestMembersThatWaitHoldNoMemoryOfTheirRequests(t *testing.T) {
	b := startBroker(t)
	leader, follower := b.dial(), b.dial()
	first := ask[*kmsg.JoinGroupResponse](leader, 3, joinRequest("g", ""))
	wantCode(t, "first join", first.ErrorCode, nil)

	parked := follower.send(3, joinRequest("g", ""))
	describeUntil(t, b, "g", "PreparingRebalance", 2)
	b.untilNoFrames()
	ask[*kmsg.JoinGroupResponse](leader, 3, joinRequest("g", first.MemberID))
	second := kmsg.NewPtrJoinGroupResponse()
	second.Version = 3
	follower.read(parked, second)
	wantCode(t, "second join", second.ErrorCode, nil)

	parked = follower.send(3, syncRequest("g", second.MemberID, 2))
	b.untilNoFrames()
	ask[*kmsg.SyncGroupResponse](leader, 3, syncRequest("g", first.MemberID, 2, second.MemberID, "yours"))
	synced := kmsg.NewPtrSyncGroupResponse()
	synced.Version = 3
	follower.read(parked, synced)
	if string(synced.MemberAssignment) != "yours" {
		t.Errorf("assigned %q, %v", synced.MemberAssignment, kerr.ErrorForCode(synced.ErrorCode))
	}
}

func TestStaticMembersOverTheWire(t *testing.T) {
	b := startBroker(t)
	c := b.dial()
	join := func(v int16) *kmsg.JoinGroupResponse {
		r := joinRequest("g", "")
		r.InstanceID = instance("one")
		resp := ask[*kmsg.JoinGroupResponse](c, v, r)
		wantCode(t, "join", resp.ErrorCode, nil)
		return resp
	}
	first := join(9)
	if !strings.HasPrefix(first.MemberID, "one-") {
		t.Errorf("member id %q", first.MemberID)
	}
	sync := syncRequest("g", first.MemberID, 1, first.MemberID, "all")
	sync.InstanceID = instance("one")
	wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](c, 5, sync).ErrorCode, nil)

	// An older client that led is told of its former self as the leader.
	second := join(8)
	if second.Generation != 1 || second.LeaderID != first.MemberID || second.MemberID == first.MemberID || second.SkipAssignment {
		t.Errorf("second start: %+v", second)
	}
	wantCode(t, "old process", ask[*kmsg.HeartbeatResponse](c, 4, heartbeatRequest("g", first.MemberID, 1, instance("one"))).ErrorCode, kerr.FencedInstanceID)
	third := join(9)
	if third.Generation != 1 || third.LeaderID != third.MemberID || !third.SkipAssignment || len(third.Members) != 1 {
		t.Errorf("third start: %+v", third)
	}

	// The broker restarts: the member, its generation and its assignment are there.
	b.restart()
	c = b.dial()
	wantCode(t, "after a restart", ask[*kmsg.HeartbeatResponse](c, 4, heartbeatRequest("g", third.MemberID, 1, instance("one"))).ErrorCode, nil)
	sync = syncRequest("g", third.MemberID, 1)
	sync.InstanceID = instance("one")
	if again := ask[*kmsg.SyncGroupResponse](c, 5, sync); string(again.MemberAssignment) != "all" {
		t.Errorf("assignment after a restart: %+v", again)
	}

	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = "g"
	leave.Members = []kmsg.LeaveGroupRequestMember{
		{MemberID: "m"}, {InstanceID: instance("nobody")}, {MemberID: "m", InstanceID: instance("one")}, {InstanceID: instance("one")},
	}
	left := ask[*kmsg.LeaveGroupResponse](c, 5, leave)
	want := []int16{kerr.UnknownMemberID.Code, kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code, 0}
	for i, m := range left.Members {
		if m.ErrorCode != want[i] {
			t.Errorf("leaving %+v: want code %d", m, want[i])
		}
	}
}
