package compat

import (
	"crypto/sha256"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The requests about users and rules, which must succeed.
func init() {
	valid[kmsg.DescribeACLs] = func(*scene, int16) kmsg.Request {
		req := kmsg.NewPtrDescribeACLsRequest()
		req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
		req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		return req
	}
	valid[kmsg.CreateACLs] = func(s *scene, _ int16) kmsg.Request {
		req := kmsg.NewPtrCreateACLsRequest()
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceTypeTopic, s.name("topic"), kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:alice", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, c)
		return req
	}
	valid[kmsg.DeleteACLs] = func(s *scene, _ int16) kmsg.Request {
		req := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(s.name("topic")), kmsg.ACLResourcePatternTypeAny
		f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		req.Filters = append(req.Filters, f)
		return req
	}
	valid[kmsg.DescribeUserSCRAMCredentials] = func(*scene, int16) kmsg.Request {
		return kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	}
	valid[kmsg.AlterUserSCRAMCredentials] = func(s *scene, _ int16) kmsg.Request {
		req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		u.Name, u.Mechanism, u.Iterations = s.name("user"), 1, 4096
		u.Salt, u.SaltedPassword = []byte("salt"), make([]byte, sha256.Size)
		req.Upsertions = append(req.Upsertions, u)
		return req
	}
}
