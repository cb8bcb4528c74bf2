package access

import (
	"sync/atomic"
	"testing"

	"github.com/perigeemq/perigee/coordinator/catalog"
)

func bind(resource ResourceType, pattern int8, name, principal, host string, op Operation, permission int8) catalog.ACL {
	return catalog.ACL{ResourceType: int8(resource), ResourceName: name, PatternType: pattern,
		Principal: principal, Host: host, Operation: int8(op), Permission: permission}
}

func TestAuthorizer(t *testing.T) {
	a := NewAuthorizer([]catalog.ACL{
		bind(Topic, PatternLiteral, "orders", "User:alice", "*", Read, PermissionAllow),
		bind(Topic, PatternPrefixed, "t-", "User:alice", "*", All, PermissionAllow),
		bind(Topic, PatternLiteral, "t-secret", "User:*", "*", Read, PermissionDeny),
		bind(Group, PatternLiteral, "*", "User:*", "10.0.0.1", Read, PermissionAllow),
		bind(Cluster, PatternLiteral, ClusterName, "User:bob", "*", AlterConfigs, PermissionAllow),
	}, []string{"User:root"}, false)
	for _, tt := range []struct {
		name string
		q    Question
		want bool
	}{
		{"literal", Question{"User:alice", "h", Read, Topic, "orders", false}, true},
		{"other operation", Question{"User:alice", "h", Write, Topic, "orders", false}, false},
		{"other user", Question{"User:bob", "h", Read, Topic, "orders", false}, false},
		{"implied", Question{"User:alice", "h", Describe, Topic, "orders", false}, true},
		{"implied is not exact", Question{"User:alice", "h", Describe, Topic, "orders", true}, false},
		{"prefix", Question{"User:alice", "h", Delete, Topic, "t-1", true}, true},
		{"a denial wins", Question{"User:alice", "h", Read, Topic, "t-secret", false}, false},
		{"a denial of reading is none of writing", Question{"User:alice", "h", Write, Topic, "t-secret", false}, true},
		{"a denial of reading is none of describing", Question{"User:alice", "h", Describe, Topic, "t-secret", false}, true},
		{"wildcard name and user, by host", Question{"User:x", "10.0.0.1", Read, Group, "any", false}, true},
		{"another host", Question{"User:x", "10.0.0.2", Read, Group, "any", false}, false},
		{"configs", Question{"User:bob", "h", DescribeConfigs, Cluster, ClusterName, false}, true},
		{"super user", Question{"User:root", "h", Read, Topic, "t-secret", false}, true},
	} {
		if got := a.Allowed(tt.q); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	open := NewAuthorizer([]catalog.ACL{bind(Topic, PatternLiteral, "orders", "User:alice", "*", Read, PermissionAllow)}, nil, true)
	if !open.Allowed(Question{"User:bob", "h", Read, Topic, "free", false}) {
		t.Error("allow.everyone.if.no.acl.found does not")
	}
	if open.Allowed(Question{"User:bob", "h", Read, Topic, "orders", false}) {
		t.Error("a resource with a binding is open to everyone")
	}
}

func TestDirectory(t *testing.T) {
	var snapshots atomic.Pointer[catalog.Snapshot]
	catalog.New(nil, nil, &snapshots)
	empty := NewDirectory(Static{}, snapshots.Load)
	if !empty.Open() {
		t.Error("a directory without users is closed")
	}
	alice, err := NewCredential(ScramSHA256, "secret", 7)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDirectory(Static{Users: []User{
		{Name: "alice", Credential: &alice, Super: true},
		{Name: "ops", Certificates: []string{"ops.example"}},
	}}, snapshots.Load)
	if d.Open() {
		t.Error("a directory with users is open")
	}
	for _, tt := range []struct {
		user, password string
		want           bool
	}{{"alice", "secret", true}, {"alice", "Secret", false}, {"ops", "", false}, {"ghost", "secret", false}} {
		if ok, ran := d.CheckPassword(tt.user, tt.password); ok != tt.want || !ran {
			t.Errorf("%s with %q: %v (ran %v)", tt.user, tt.password, ok, ran)
		}
	}
	decoy, known := d.Credential("ghost", ScramSHA256)
	again, _ := d.Credential("ghost", ScramSHA256)
	if known || string(decoy.Salt) != string(again.Salt) || decoy.Iterations != 7 || len(decoy.Salt) != len(alice.Salt) {
		t.Errorf("decoy %+v, then %+v", decoy, again)
	}
	if got := d.Certificates(); len(got) != 1 || got["ops"][0] != "ops.example" {
		t.Errorf("certificates %v", got)
	}
	if !d.Authorizer().Allowed(Question{"User:alice", "h", Delete, Topic, "x", true}) {
		t.Error("a super user of the file may not do everything")
	}
	for range MaxDerivations {
		d.slots <- struct{}{}
	}
	if _, ran := d.CheckPassword("alice", "secret"); ran {
		t.Error("a derivation ran although all slots are taken")
	}
}
