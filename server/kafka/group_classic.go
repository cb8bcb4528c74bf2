package kafka

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/group"
)

// text is a nullable string's value; null and empty mean the same to us.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// millis is a duration as requests give it.
func millis[N int32 | int64](n N) time.Duration { return time.Duration(n) * time.Millisecond }

// joinGroup serves JoinGroup 0 to 9: 1 has a rebalance timeout of its own (before,
// the session's), 4 knows MEMBER_ID_REQUIRED (KIP-394), 5 static members
// (KIP-345), 6 is flexible, 7 returns the protocol type, 8 brings a reason
// (KIP-800), which we have no use for, 9 lets a static leader skip its assignment
// (KIP-814). The answer comes with the group's next generation; until then the
// request's memory is not held, or members that wait could use up the budget that
// those they wait for need.
func joinGroup(s *session, r *request) reply {
	req := r.body.(*kmsg.JoinGroupRequest)
	rebalance := millis(req.RebalanceTimeoutMillis)
	if req.Version == 0 {
		rebalance = millis(req.SessionTimeoutMillis)
	}
	name := r.clientID
	if req.InstanceID != nil {
		name = *req.InstanceID
	}
	protocols := make([]group.Protocol, 0, len(req.Protocols))
	for _, p := range req.Protocols {
		protocols = append(protocols, group.Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)})
	}
	joined := s.coordinator.JoinGroup(group.JoinGroup{
		Group: req.Group, Member: req.MemberID, NewMember: coordinator.NewMemberID(name), Instance: text(req.InstanceID),
		ClientID: r.clientID, ClientHost: s.clientHost(),
		ProtocolType: req.ProtocolType, Protocols: protocols,
		SessionTimeout: millis(req.SessionTimeoutMillis), RebalanceTimeout: rebalance,
		RequireKnownMember: req.Version >= 4, CanSkipAssignment: req.Version >= 9,
	})
	req.Protocols, req.UnknownTags = nil, kmsg.Tags{} // they alias the frame
	r.frame.Unload()
	return func(ctx context.Context) kmsg.Response {
		result, err := joined.Wait(ctx)
		return joinGroupResponse(req, result, err)
	}
}

func joinGroupResponse(req *kmsg.JoinGroupRequest, result group.JoinResult, err error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	if err != nil {
		resp.ErrorCode, resp.Generation, resp.MemberID = groupCode(err), -1, req.MemberID
		if again, ok := errors.AsType[*group.MemberIDRequired](err); ok {
			resp.ErrorCode, resp.MemberID = kerr.MemberIDRequired.Code, again.ID
		}
		return resp
	}
	resp.Generation, resp.MemberID, resp.LeaderID = result.Generation, result.Member, result.Leader
	resp.ProtocolType, resp.Protocol = &result.ProtocolType, &result.Protocol
	resp.SkipAssignment = result.SkipAssignment
	for _, m := range result.Members {
		member := kmsg.NewJoinGroupResponseMember()
		member.MemberID, member.ProtocolMetadata = m.ID, m.Metadata
		member.InstanceID = nullable(m.Instance)
		resp.Members = append(resp.Members, member)
	}
	return resp
}

// nullable is a string that is null when empty.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// syncGroup serves SyncGroup 0 to 5: 3 knows static members, 4 is flexible, 5
// has to say the protocol and returns it. Followers are answered when the leader has
// brought the assignment.
func syncGroup(s *session, r *request) reply {
	req := r.body.(*kmsg.SyncGroupRequest)
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode = kerr.InconsistentGroupProtocol.Code
		return now(resp)
	}
	assignments := make(map[string][]byte, len(req.GroupAssignment))
	for _, a := range req.GroupAssignment {
		assignments[a.MemberID] = bytes.Clone(a.MemberAssignment)
	}
	synced := s.coordinator.SyncGroup(group.SyncGroup{
		Group: req.Group, Caller: group.Caller{Member: req.MemberID, Instance: text(req.InstanceID), Generation: req.Generation},
		ProtocolType: text(req.ProtocolType), Protocol: text(req.Protocol), Assignments: assignments,
	})
	req.GroupAssignment, req.UnknownTags = nil, kmsg.Tags{} // they alias the frame
	r.frame.Unload()
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		result, err := synced.Wait(ctx)
		if err != nil {
			resp.ErrorCode = groupCode(err)
			return resp
		}
		resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &result.ProtocolType, &result.Protocol, result.Assignment
		return resp
	}
}

// heartbeat serves Heartbeat 0 to 4: 3 knows static members, 4 is flexible.
func heartbeat(s *session, r *request) reply {
	req := r.body.(*kmsg.HeartbeatRequest)
	seen := s.coordinator.Heartbeat(group.Heartbeat{
		Group: req.Group, Caller: group.Caller{Member: req.MemberID, Instance: text(req.InstanceID), Generation: req.Generation},
	})
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		_, err := seen.Wait(ctx)
		resp.ErrorCode = groupCode(err)
		return resp
	}
}

// leaveGroup serves LeaveGroup 0 to 5: 3 removes several members, static ones by
// instance alone, and answers for each; 4 is flexible, 5 brings a reason.
func leaveGroup(s *session, r *request) reply {
	req := r.body.(*kmsg.LeaveGroupRequest)
	var leaving []group.Leaving
	if req.Version < 3 {
		leaving = append(leaving, group.Leaving{Member: req.MemberID})
	}
	for _, m := range req.Members {
		leaving = append(leaving, group.Leaving{Member: m.MemberID, Instance: text(m.InstanceID)})
	}
	left := s.coordinator.LeaveGroup(group.LeaveGroup{Group: req.Group, Members: leaving})
	return func(ctx context.Context) kmsg.Response {
		results, err := left.Wait(ctx)
		return leaveGroupResponse(req, leaving, results, err)
	}
}

func leaveGroupResponse(req *kmsg.LeaveGroupRequest, leaving []group.Leaving, results []error, err error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	if errors.Is(err, group.ErrUnknownMember) {
		// Of a group that does not exist, everybody is an unknown member.
		results, err = make([]error, len(leaving)), nil
		for i := range results {
			results[i] = group.ErrUnknownMember
		}
	}
	resp.ErrorCode = groupCode(err)
	if err != nil {
		return resp
	}
	for i, m := range leaving {
		code := groupCode(results[i])
		if req.Version < 3 {
			resp.ErrorCode = code
			return resp
		}
		member := kmsg.NewLeaveGroupResponseMember()
		member.MemberID, member.InstanceID, member.ErrorCode = m.Member, nullable(m.Instance), code
		resp.Members = append(resp.Members, member)
	}
	return resp
}
