package access

import (
	"strings"

	"github.com/perigeemq/perigee/coordinator/catalog"
)

// ResourceType, Operation, and the pattern and permission below are numbered as
// in Kafka's protocol, which is how the catalog keeps them.
type ResourceType int8

const (
	Topic           ResourceType = 2
	Group           ResourceType = 3
	Cluster         ResourceType = 4
	TransactionalID ResourceType = 5
)

// ClusterName is the name of the one Cluster resource.
const ClusterName = "kafka-cluster"

// Operation is what somebody wants to do with a resource.
type Operation int8

const (
	All             Operation = 2
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
	IdempotentWrite Operation = 12
)

// How a binding names its resource, and what it says.
const (
	PatternLiteral  int8 = 3
	PatternPrefixed int8 = 4
	PermissionDeny  int8 = 2
	PermissionAllow int8 = 3
)

// implies lists the operations whose permission includes another one: who may
// read may describe, in Kafka's authorizer.
var implies = map[Operation][]Operation{
	Describe:        {Read, Write, Delete, Alter},
	DescribeConfigs: {AlterConfigs},
}

// Question is one thing somebody wants to do.
type Question struct {
	Principal string // "User:name"
	Host      string // the client's address without port
	Operation Operation
	Resource  ResourceType
	Name      string
	// Exact leaves out Kafka's implied permissions: MoonMQ's rules mean what
	// they say.
	Exact bool
}

// Authorizer answers from one state of the bindings. It is immutable.
type Authorizer struct {
	super    map[string]bool
	open     bool // allow.everyone.if.no.acl.found
	literal  map[resource][]catalog.ACL
	prefixed map[ResourceType][]catalog.ACL
}

type resource struct {
	kind ResourceType
	name string
}

// NewAuthorizer indexes the bindings. Principals in super may do everything.
// everyone says what happens to a resource that no binding names.
func NewAuthorizer(acls []catalog.ACL, super []string, everyone bool) *Authorizer {
	a := &Authorizer{
		super: map[string]bool{}, open: everyone,
		literal: map[resource][]catalog.ACL{}, prefixed: map[ResourceType][]catalog.ACL{},
	}
	for _, p := range super {
		a.super[p] = true
	}
	for _, acl := range acls {
		kind := ResourceType(acl.ResourceType)
		switch acl.PatternType {
		case PatternLiteral:
			key := resource{kind, acl.ResourceName}
			a.literal[key] = append(a.literal[key], acl)
		case PatternPrefixed:
			a.prefixed[kind] = append(a.prefixed[kind], acl)
		}
	}
	return a
}

// Allowed answers a question. A matching denial always wins; without a matching
// permission the answer is no.
func (a *Authorizer) Allowed(q Question) bool {
	if a.super[q.Principal] {
		return true
	}
	allowed, found := false, false
	for _, acl := range a.matching(q.Resource, q.Name) {
		found = true
		if !speaksOf(acl, q) {
			continue
		}
		switch {
		case acl.Permission == PermissionDeny && covers(Operation(acl.Operation), q.Operation, true):
			return false
		case acl.Permission == PermissionAllow && covers(Operation(acl.Operation), q.Operation, q.Exact):
			allowed = true
		}
	}
	return allowed || !found && a.open
}

// matching returns the bindings whose pattern matches the resource.
func (a *Authorizer) matching(kind ResourceType, name string) []catalog.ACL {
	var all []catalog.ACL
	all = append(all, a.literal[resource{kind, name}]...)
	all = append(all, a.literal[resource{kind, "*"}]...)
	for _, acl := range a.prefixed[kind] {
		if strings.HasPrefix(name, acl.ResourceName) {
			all = append(all, acl)
		}
	}
	return all
}

func speaksOf(acl catalog.ACL, q Question) bool {
	return (acl.Principal == q.Principal || acl.Principal == "User:*") && (acl.Host == "*" || acl.Host == q.Host)
}

// covers reports whether a binding's operation includes the wanted one.
func covers(bound, wanted Operation, exact bool) bool {
	if bound == All || bound == wanted {
		return true
	}
	if exact {
		return false
	}
	for _, op := range implies[wanted] {
		if bound == op {
			return true
		}
	}
	return false
}
