package kafka

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/server/access"
)

// describeACLs serves DescribeAcls 1 to 3: 2 is flexible, 3 adds user resources,
// which we have none of.
func describeACLs(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeACLsRequest)
	f := aclFilter{req.ResourceType, req.ResourceName, req.ResourcePatternType, req.Principal, req.Host, req.Operation, req.PermissionType}
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
		if err := f.check(); err != nil {
			text := err.Error()
			resp.ErrorCode, resp.ErrorMessage = codeOf(err), &text
			return resp
		}
		snapshot, err := s.coordinator.ReadCatalog().Wait(ctx)
		if err != nil {
			resp.ErrorCode = codeOf(err)
			return resp
		}
		for _, a := range snapshot.ACLs() { // by resource
			if f.matches(a) {
				addBinding(resp, a)
			}
		}
		return resp
	}
}

func addBinding(resp *kmsg.DescribeACLsResponse, a catalog.ACL) {
	last := len(resp.Resources) - 1
	if last < 0 || resp.Resources[last].ResourceName != a.ResourceName || int8(resp.Resources[last].ResourceType) != a.ResourceType ||
		int8(resp.Resources[last].ResourcePatternType) != a.PatternType {
		res := kmsg.NewDescribeACLsResponseResource()
		res.ResourceType, res.ResourceName, res.ResourcePatternType = kmsg.ACLResourceType(a.ResourceType), a.ResourceName, kmsg.ACLResourcePatternType(a.PatternType)
		resp.Resources = append(resp.Resources, res)
		last++
	}
	b := kmsg.NewDescribeACLsResponseResourceACL()
	b.Principal, b.Host, b.Operation, b.PermissionType = a.Principal, a.Host, kmsg.ACLOperation(a.Operation), kmsg.ACLPermissionType(a.Permission)
	resp.Resources[last].ACLs = append(resp.Resources[last].ACLs, b)
}

// createACLs serves CreateAcls 1 to 3. Bindings are answered one by one; one that
// exists already is a success.
func createACLs(s *session, r *request) reply {
	req := r.body.(*kmsg.CreateACLsRequest)
	refusals := make([]error, len(req.Creations))
	var put []catalog.ACL
	for i, c := range req.Creations {
		a := catalog.ACL{ResourceType: int8(c.ResourceType), ResourceName: c.ResourceName, PatternType: int8(c.ResourcePatternType),
			Principal: c.Principal, Host: c.Host, Operation: int8(c.Operation), Permission: int8(c.PermissionType)}
		if refusals[i] = checkBinding(a); refusals[i] == nil {
			put = append(put, a)
		}
	}
	stored := s.coordinator.PutACLs(put, nil)
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
		_, err := stored.Wait(ctx)
		for _, refusal := range refusals {
			result := kmsg.NewCreateACLsResponseResult()
			if refusal == nil {
				refusal = err
			}
			if refusal != nil {
				text := refusal.Error()
				result.ErrorCode, result.ErrorMessage = codeOf(refusal), &text
			}
			resp.Results = append(resp.Results, result)
		}
		return resp
	}
}

// checkBinding refuses what could never match anything.
func checkBinding(a catalog.ACL) error {
	invalid := func(format string, args ...any) error {
		return &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: fmt.Sprintf(format, args...)}
	}
	kind, name, ok := strings.Cut(a.Principal, ":")
	switch {
	case access.ResourceType(a.ResourceType) < access.Topic || access.ResourceType(a.ResourceType) > access.TransactionalID:
		return invalid("Invalid resource type %d", a.ResourceType)
	case a.PatternType != access.PatternLiteral && a.PatternType != access.PatternPrefixed:
		return invalid("Invalid pattern type %d", a.PatternType)
	case a.ResourceName == "":
		return invalid("Resource name should not be empty")
	case access.ResourceType(a.ResourceType) == access.Cluster && a.ResourceName != access.ClusterName:
		return invalid("The only valid name for the CLUSTER resource is %s", access.ClusterName)
	case !ok || kind == "" || name == "":
		return invalid("Could not parse principal from `%s`", a.Principal)
	case a.Host == "":
		return invalid("Host should not be empty")
	case access.Operation(a.Operation) < access.All || access.Operation(a.Operation) > access.IdempotentWrite:
		return invalid("Invalid operation %d", a.Operation)
	case a.Permission != access.PermissionDeny && a.Permission != access.PermissionAllow:
		return invalid("Invalid permission type %d", a.Permission)
	}
	return nil
}

// deleteACLs serves DeleteAcls 1 to 3: every binding a filter matches is removed
// and named in the answer.
func deleteACLs(s *session, r *request) reply {
	req := r.body.(*kmsg.DeleteACLsRequest)
	type result struct {
		err     error
		matched []catalog.ACL
	}
	results := make([]result, len(req.Filters))
	var remove []catalog.ACL
	all := s.coordinator.Catalog().ACLs()
	for i, one := range req.Filters {
		f := aclFilter{one.ResourceType, one.ResourceName, one.ResourcePatternType, one.Principal, one.Host, one.Operation, one.PermissionType}
		if results[i].err = f.check(); results[i].err != nil {
			continue
		}
		for _, a := range all {
			if f.matches(a) {
				results[i].matched = append(results[i].matched, a)
			}
		}
		remove = append(remove, results[i].matched...)
	}
	stored := s.coordinator.PutACLs(nil, remove)
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
		_, err := stored.Wait(ctx)
		for _, res := range results {
			out := kmsg.NewDeleteACLsResponseResult()
			if res.err == nil {
				res.err = err
			}
			if res.err != nil {
				text := res.err.Error()
				out.ErrorCode, out.ErrorMessage = codeOf(res.err), &text
				res.matched = nil
			}
			for _, a := range res.matched {
				m := kmsg.NewDeleteACLsResponseResultMatchingACL()
				m.ResourceType, m.ResourceName, m.ResourcePatternType = kmsg.ACLResourceType(a.ResourceType), a.ResourceName, kmsg.ACLResourcePatternType(a.PatternType)
				m.Principal, m.Host, m.Operation, m.PermissionType = a.Principal, a.Host, kmsg.ACLOperation(a.Operation), kmsg.ACLPermissionType(a.Permission)
				out.MatchingACLs = append(out.MatchingACLs, m)
			}
			resp.Results = append(resp.Results, out)
		}
		return resp
	}
}

// aclFilter chooses bindings; nil and ANY choose everything.
type aclFilter struct {
	resource        kmsg.ACLResourceType
	name            *string
	pattern         kmsg.ACLResourcePatternType
	principal, host *string
	operation       kmsg.ACLOperation
	permission      kmsg.ACLPermissionType
}

func (f aclFilter) check() error {
	if f.resource == 0 || f.pattern == 0 || f.operation == 0 || f.permission == 0 {
		return &catalog.Error{Kind: catalog.ErrInvalidRequest, Text: "The filter has unknown elements."}
	}
	return nil
}

func (f aclFilter) matches(a catalog.ACL) bool {
	text := func(want *string, got string) bool { return want == nil || *want == got }
	return (f.resource == kmsg.ACLResourceTypeAny || int8(f.resource) == a.ResourceType) && f.matchesName(a) &&
		text(f.principal, a.Principal) && text(f.host, a.Host) &&
		(f.operation == kmsg.ACLOperationAny || int8(f.operation) == a.Operation) &&
		(f.permission == kmsg.ACLPermissionTypeAny || int8(f.permission) == a.Permission)
}

// matchesName compares the resource: literally, or with MATCH every pattern that
// speaks of it.
func (f aclFilter) matchesName(a catalog.ACL) bool {
	switch f.pattern {
	case kmsg.ACLResourcePatternTypeAny:
		return f.name == nil || *f.name == a.ResourceName
	case kmsg.ACLResourcePatternTypeMatch:
		return f.name == nil || *f.name == a.ResourceName || a.PatternType == access.PatternLiteral && a.ResourceName == "*" ||
			a.PatternType == access.PatternPrefixed && strings.HasPrefix(*f.name, a.ResourceName)
	}
	return int8(f.pattern) == a.PatternType && (f.name == nil || *f.name == a.ResourceName)
}
