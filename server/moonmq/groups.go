package moonmq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perigeemq/perigee/coordinator/group"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
)

// membership is the one group a connection is a member of. It is replaced, never
// changed.
type membership struct {
	group, member string
	topics        []string
}

// memberSession is how long a member may be silent. FETCH and the connection's
// heartbeats do not count, only JOIN_GROUP and GROUP_HEARTBEAT.
const memberSession = 30 * time.Second

// joinGroup makes the connection a member at once; nobody is told, the others see
// it when they poll.
func (s *session) joinGroup(r request) (answer, error) {
	m := r.body.(*wire.JoinGroup)
	if err := s.authorize(access.Read, access.Group, m.Group); err != nil {
		return answer{}, err
	}
	for _, t := range m.Topics {
		if err := s.authorize(access.Read, access.Topic, t); err != nil {
			return answer{}, err
		}
	}
	if err := s.charge("", cost{Requests, 1}); err != nil {
		return answer{}, err
	}
	joined := s.group.Load()
	if joined != nil && joined.group != m.Group {
		return answer{}, fail(wire.GroupConflict, "connection already in group "+joined.group)
	}
	for _, t := range m.Topics {
		if _, err := s.existing(t); err != nil {
			return answer{}, fail(wire.TopicMissing, fmt.Sprintf("failed to get topic %s: topic %s does not exist", t, t))
		}
	}
	ctx := s.conn.Context()
	if err := s.checkGroupLimit(ctx, m.Group); err != nil {
		return answer{}, err
	}
	member := m.Member
	if member == "" {
		member = newMemberID()
		if joined != nil {
			member = joined.member
		}
	}
	next := &membership{m.Group, member, slices.Compact(slices.Sorted(slices.Values(m.Topics)))}
	if err := s.attach(ctx, next); err != nil {
		return answer{}, err
	}
	s.group.Store(next)
	assignment, err := s.assignment(ctx)
	if err != nil {
		return answer{}, err
	}
	return now(wireAssignment(member, assignment.topics)), nil
}

func newMemberID() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (s *session) attach(ctx context.Context, m *membership) error {
	_, err := s.front.coordinator.AttachMember(group.Attach{
		Group: m.group, Member: m.member, ClientID: s.client.Name, Host: "/" + s.host,
		Topics: m.topics, Session: memberSession,
	}).Wait(ctx)
	return err
}

// checkGroupLimit bounds how many groups this protocol's clients may make.
func (s *session) checkGroupLimit(ctx context.Context, id string) error {
	_, err := s.front.coordinator.DescribeGroup(id).Wait(ctx)
	if !errors.Is(err, group.ErrGroupNotFound) {
		return err
	}
	all, err := s.front.coordinator.ListGroups()(ctx)
	if err == nil && len(all) >= s.front.limits.MaxGroups {
		return fail(wire.RateLimited, fmt.Sprintf("group limit reached (%d)", s.front.limits.MaxGroups))
	}
	return err
}

// assigned are the partitions a connection reads.
type assigned struct {
	all    bool
	topics map[string][]int32 // a topic without partitions may be there
}

func (a assigned) has(topic string, partition int32) bool {
	return a.all || slices.Contains(a.topics[topic], partition)
}

// assignment is what the connection reads: everything unless it is a member, and
// nothing once it was evicted.
func (s *session) assignment(ctx context.Context) (assigned, error) {
	m := s.group.Load()
	if m == nil {
		return assigned{all: true}, nil
	}
	d, err := s.front.coordinator.DescribeGroup(m.group).Wait(ctx)
	switch {
	case errors.Is(err, group.ErrGroupNotFound):
		return assigned{}, nil
	case err != nil:
		return assigned{}, err
	}
	return assigned{topics: group.AssignRange(d.Members, s.front.partitionCount)[m.member]}, nil
}

// partitionCount is 0 for a topic that is gone.
func (f *FrontEnd) partitionCount(topic string) int32 {
	if t, ok := f.coordinator.Catalog().Topic(topic); ok {
		return t.Partitions
	}
	return 0
}

// lapse says how a membership ended, "" while it lasts.
func (s *session) lapse(ctx context.Context, m *membership) (string, error) {
	d, err := s.front.coordinator.DescribeGroup(m.group).Wait(ctx)
	switch {
	case errors.Is(err, group.ErrGroupNotFound), err == nil && len(d.Members) == 0:
		return "unknown group", nil
	case err != nil:
		return "", err
	}
	if slices.ContainsFunc(d.Members, func(other group.Member) bool { return other.ID == m.member }) {
		return "", nil
	}
	return fmt.Sprintf("member %s does not exist", m.member), nil
}

// evicted reports whether the connection joined a group and lost its place.
func (s *session) evicted(ctx context.Context) (bool, error) {
	m := s.group.Load()
	if m == nil {
		return false, nil
	}
	text, err := s.lapse(ctx, m)
	return text != "", err
}

// own returns the connection's membership of a group; the member id in the frame
// is not looked at.
func (s *session) own(groupID string) (*membership, error) {
	if m := s.group.Load(); m != nil && m.group == groupID {
		return m, nil
	}
	return nil, fail(wire.GroupMemberUnknown, "not a member of this group")
}

func (s *session) groupHeartbeat(r request) (answer, error) {
	m, err := s.own(r.body.(*wire.GroupHeartbeat).Group)
	if err != nil {
		return answer{}, err
	}
	ctx := s.conn.Context()
	text, err := s.lapse(ctx, m)
	switch {
	case err != nil:
		return answer{}, err
	case text != "":
		return answer{}, fail(wire.GroupMemberUnknown, text)
	}
	if err := s.attach(ctx, m); err != nil {
		return answer{}, err
	}
	return now(&wire.OK{}), nil
}

func (s *session) leaveGroupOp(r request) (answer, error) {
	if _, err := s.own(r.body.(*wire.LeaveGroup).Group); err != nil {
		return answer{}, err
	}
	s.leaveGroup()
	return now(&wire.OK{}), nil
}

// leaveGroup ends the membership, also with the connection. Membership is not
// durable, so there is nothing to wait for; a member that was evicted is gone
// already.
func (s *session) leaveGroup() {
	if m := s.group.Swap(nil); m != nil {
		s.front.coordinator.LeaveGroup(group.LeaveGroup{Group: m.group, Members: []group.Leaving{{Member: m.member}}})
	}
}

// wireAssignment lists topics bytewise.
func wireAssignment(member string, topics map[string][]int32) *wire.GroupAssignment {
	m := &wire.GroupAssignment{Member: member}
	for _, t := range slices.Sorted(maps.Keys(topics)) {
		a := wire.TopicAssignment{Topic: t, Partitions: []uint32{}}
		for _, p := range topics[t] {
			a.Partitions = append(a.Partitions, wirePartition(p))
		}
		m.Topics = append(m.Topics, a)
	}
	return m
}

// groupState is what this protocol's clients see of a group.
func groupState(members int) wire.GroupState {
	if members > 0 {
		return wire.GroupStable
	}
	return wire.GroupEmpty
}

func (s *session) listGroups(request) (answer, error) {
	all, err := s.front.coordinator.ListGroups()(s.conn.Context())
	if err != nil {
		return answer{}, err
	}
	slices.SortFunc(all, func(a, b group.Listing) int { return strings.Compare(a.ID, b.ID) })
	m := &wire.GroupList{}
	for _, g := range all {
		if len(m.Groups) == wire.MaxListedGroups {
			break // more would make the client's whole call fail
		}
		if len(g.ID) <= wire.MaxName && s.allowed(access.Describe, access.Group, g.ID) {
			m.Groups = append(m.Groups, wire.ListedGroup{Group: g.ID, State: groupState(g.Members), Members: uint32(g.Members)})
		}
	}
	return now(m), nil
}

func noGroup(id string) error {
	return fail(wire.GroupMissing, fmt.Sprintf("group '%s' does not exist", id))
}

func (s *session) describeGroup(r request) (answer, error) {
	id := r.body.(*wire.DescribeGroup).Group
	if err := s.authorize(access.Describe, access.Group, id); err != nil {
		return answer{}, err
	}
	if err := s.charge("", cost{Requests, 1}); err != nil {
		return answer{}, err
	}
	ctx := s.conn.Context()
	d, err := s.front.coordinator.DescribeGroup(id).Wait(ctx)
	if errors.Is(err, group.ErrGroupNotFound) {
		return answer{}, noGroup(id)
	}
	if err != nil {
		return answer{}, err
	}
	offsets, err := s.front.coordinator.FetchOffsets(group.FetchOffsets{Group: id}).Wait(ctx)
	if err != nil {
		return answer{}, err
	}
	m := &wire.GroupDescription{Group: id, State: groupState(len(d.Members))}
	m.Members = s.front.wireMembers(d)
	m.Offsets = wireOffsets(offsets)
	if len(d.Members) == 0 && len(m.Offsets) == 0 {
		return answer{}, noGroup(id)
	}
	return now(m), nil
}

// wireMembers lists members by id, as many as the client can take. What a member
// of a Kafka group reads is its leader's affair; it is shown without topics.
func (f *FrontEnd) wireMembers(d group.Description) []wire.GroupAssignment {
	assignments := map[string]map[string][]int32{}
	if d.ProtocolType == group.MoonProtocol {
		assignments = group.AssignRange(d.Members, f.partitionCount)
	}
	members := slices.SortedFunc(slices.Values(d.Members), func(a, b group.Member) int { return strings.Compare(a.ID, b.ID) })
	out := []wire.GroupAssignment{}
	for _, m := range members[:min(len(members), wire.MaxListedMembers)] {
		if len(m.ID) <= wire.MaxName {
			out = append(out, *wireAssignment(m.ID, assignments[m.ID]))
		}
	}
	return out
}

// wireOffsets lists committed offsets by topic and partition, as many as the
// client can take.
func wireOffsets(offsets []group.Committed) []wire.CommittedOffset {
	out := []wire.CommittedOffset{}
	for _, o := range offsets {
		if o.Offset >= 0 && len(o.Topic) <= wire.MaxTopicName {
			out = append(out, wire.CommittedOffset{Topic: o.Topic, Partition: wirePartition(o.Partition), Offset: uint64(o.Offset)})
		}
	}
	slices.SortFunc(out, func(a, b wire.CommittedOffset) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return out[:min(len(out), wire.MaxListedOffsets)]
}

func (s *session) deleteGroup(r request) (answer, error) {
	id := r.body.(*wire.DeleteGroup).Group
	if err := s.authorize(access.Delete, access.Group, id); err != nil {
		return answer{}, err
	}
	ctx := s.conn.Context()
	d, err := s.front.coordinator.DescribeGroup(id).Wait(ctx)
	if err == nil && len(d.Members) > 0 {
		return answer{}, fail(wire.GroupNotEmpty, fmt.Sprintf("group '%s' still has %d member(s)", id, len(d.Members)))
	}
	if err == nil {
		_, err = s.front.coordinator.DeleteGroup(id).Wait(ctx)
	}
	if errors.Is(err, group.ErrGroupNotFound) {
		return answer{}, noGroup(id)
	}
	if err != nil {
		return answer{}, err
	}
	return now(&wire.OK{}), nil
}
