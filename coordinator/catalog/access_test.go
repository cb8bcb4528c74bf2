package catalog

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/coordinator/machine"
)

func TestAccess(t *testing.T) {
	w := newWorld(t)
	credential := Credential{User: "alice", Mechanism: ScramSHA256, Iterations: 4096, Salt: []byte("s"), StoredKey: []byte("k"), ServerKey: []byte("v")}
	acl := ACL{ResourceType: 2, ResourceName: "t", PatternType: 3, Principal: "User:alice", Host: "*", Operation: 3, Permission: 3}
	entity := NewQuotaEntity(QuotaPart{Type: "user", Default: true}, QuotaPart{Type: "client-id", Name: "c"})
	put := func(build func(*machine.Promise[struct{}]) Command) error { _, err := try(w, build); return err }
	for i, err := range []error{
		put(func(p *machine.Promise[struct{}]) Command {
			return PutCredentials{Put: []Credential{credential}, To: p}
		}),
		put(func(p *machine.Promise[struct{}]) Command { return PutACLs{Put: []ACL{acl, acl}, To: p} }),
		put(func(p *machine.Promise[struct{}]) Command {
			return PutQuotas{Put: []Quota{{entity, map[string]float64{"producer_byte_rate": 1e6}}}, To: p}
		}),
	} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	w.restart()
	s := w.snapshot.Load()
	if diff := cmp.Diff([]Credential{credential}, s.Credentials()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]ACL{acl}, s.ACLs()); diff != "" {
		t.Error(diff)
	}
	if s.Quota(NewQuotaEntity(entity[1], entity[0]))["producer_byte_rate"] != 1e6 {
		t.Errorf("quotas are %v", s.Quotas())
	}
	for i, err := range []error{
		put(func(p *machine.Promise[struct{}]) Command {
			return PutCredentials{Delete: []Credential{credential}, To: p}
		}),
		put(func(p *machine.Promise[struct{}]) Command { return PutACLs{Delete: []ACL{acl}, To: p} }),
		put(func(p *machine.Promise[struct{}]) Command { return PutQuotas{Put: []Quota{{Entity: entity}}, To: p} }),
	} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	w.facts.Compact()
	w.restart()
	if s := w.snapshot.Load(); len(s.Credentials())+len(s.ACLs())+len(s.Quotas()) != 0 {
		t.Error("something is left after everything was deleted")
	}
	if err := put(func(p *machine.Promise[struct{}]) Command {
		return PutCredentials{Delete: []Credential{credential}, To: p}
	}); !errors.Is(err, ErrResourceNotFound) {
		t.Errorf("deleting an unknown credential: %v", err)
	}
}
