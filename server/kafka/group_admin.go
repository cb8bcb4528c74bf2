package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
)

// Kinds of coordinators a client can look for.
const (
	coordinatesGroups       int8 = 0
	coordinatesTransactions int8 = 1
)

// findCoordinator serves FindCoordinator 0 to 6: 1 adds transactional ids, 3 is
// flexible, 4 asks for several keys at once, 6 adds share groups, which we do not
// have.
func findCoordinator(s *session, r *request) reply {
	req := r.body.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	kind := req.CoordinatorType
	if req.Version == 0 {
		kind = coordinatesGroups
	}
	if req.Version < 4 {
		c := s.coordinatorOf(kind, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
		return now(resp)
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, s.coordinatorOf(kind, key))
	}
	return now(resp)
}

// coordinatorOf says who coordinates a group or a transactional id: the leader
// of its partition of the internal topic, which is this broker. An empty key has
// a partition like any other; what it may not be used for is said by the
// requests that follow.
func (s *session) coordinatorOf(kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	if kind != coordinatesGroups && kind != coordinatesTransactions {
		c.ErrorCode, c.ErrorMessage = kerr.InvalidRequest.Code, &kerr.InvalidRequest.Description
		return c
	}
	c.NodeID = s.config.NodeID
	c.Host, c.Port = s.advertised()
	return c
}

// groupOperations are the operations that exist on a group.
const groupOperations = opRead | opDelete | opDescribe | opDescribeConfigs | opAlterConfigs

// describeGroups serves DescribeGroups 0 to 6: 3 adds the operations the caller
// may perform, 4 instance ids, 5 is flexible, 6 says GROUP_ID_NOT_FOUND of a group
// that does not exist (KIP-1043); before, it is a group in state Dead. A group
// named often is described once: members bring what they like into its answer.
func describeGroups(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeGroupsRequest)
	ids := distinct(req.Groups)
	described := make([]machine.Future[group.Description], len(ids))
	for i, id := range ids {
		described[i] = s.coordinator.DescribeGroup(id)
	}
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for i, id := range ids {
			d, err := described[i].Wait(ctx)
			if d.ProtocolType == group.MoonProtocol {
				d = s.moonGroup(d)
			}
			g := describedGroup(id, d, err, req.Version)
			if req.IncludeAuthorizedOperations && g.ErrorCode == 0 {
				g.AuthorizedOperations = groupOperations
			}
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
}

// moonGroup shows a group of MoonMQ members as one of consumers: Kafka's tools
// describe, list and reset no other kind. What its members read is computed, as
// it is for them.
func (s *session) moonGroup(d group.Description) group.Description {
	d.ProtocolType = shownType(d.ProtocolType)
	snapshot := s.coordinator.Catalog()
	assigned := group.AssignRange(d.Members, func(topic string) int32 {
		t, ok := snapshot.Topic(topic)
		if !ok {
			return 0
		}
		return t.Partitions
	})
	d.Members = slices.Clone(d.Members)
	for i := range d.Members {
		m := &d.Members[i]
		m.Assignment = group.EncodeAssignment(assigned[m.ID])
	}
	return d
}

// shownType is the protocol type Kafka's clients are told.
func shownType(protocolType string) string {
	if protocolType == group.MoonProtocol {
		return "consumer"
	}
	return protocolType
}

func describedGroup(id string, d group.Description, err error, version int16) kmsg.DescribeGroupsResponseGroup {
	g := kmsg.NewDescribeGroupsResponseGroup()
	g.Group = id
	switch {
	case errors.Is(err, group.ErrGroupNotFound):
		g.State = "Dead"
		if version >= 6 {
			message := fmt.Sprintf("Group %s not found.", id)
			g.ErrorCode, g.ErrorMessage = groupCode(err), &message
		}
		return g
	case err != nil:
		g.ErrorCode = groupCode(err)
		return g
	}
	g.State, g.ProtocolType, g.Protocol = d.State.String(), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID = m.ID, nullable(m.Instance)
		member.ClientID, member.ClientHost = m.ClientID, m.ClientHost
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		g.Members = append(g.Members, member)
	}
	return g
}

// classicType is the group type of everything this coordinator has.
const classicType = "classic"

// listGroups serves ListGroups 0 to 5: 3 is flexible, 4 filters by state
// (KIP-518), 5 by type (KIP-848). Filters do not mind the case; a name nobody
// knows matches nothing.
func listGroups(s *session, r *request) reply {
	req := r.body.(*kmsg.ListGroupsRequest)
	listed := s.coordinator.ListGroups()
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		all, err := listed(ctx)
		resp.ErrorCode = groupCode(err)
		for _, l := range all {
			if !matches(req.StatesFilter, l.State.String()) || !matches(req.TypesFilter, classicType) {
				continue
			}
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.ProtocolType, g.GroupState, g.GroupType = l.ID, shownType(l.ProtocolType), l.State.String(), classicType
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
}

// matches reports whether a filter lets a name pass; an empty filter lets all.
func matches(filter []string, name string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, name) })
}

// deleteGroups serves DeleteGroups 0 to 3: 2 is flexible, 3 has room for
// a message, which Kafka leaves empty. A group named twice is answered once.
func deleteGroups(s *session, r *request) reply {
	req := r.body.(*kmsg.DeleteGroupsRequest)
	ids := distinct(req.Groups)
	deleted := make([]machine.Future[struct{}], len(ids))
	for i, id := range ids {
		deleted[i] = s.coordinator.DeleteGroup(id)
	}
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for i, id := range ids {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group = id
			_, err := deleted[i].Wait(ctx)
			g.ErrorCode = groupCode(err)
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
}

// distinct returns each name once, in the order in which they were first named.
func distinct[T comparable](names []T) []T {
	once := make([]T, 0, len(names))
	seen := make(map[T]bool, len(names))
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			once = append(once, name)
		}
	}
	return once
}
