package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
)

// Mechanism is a SCRAM mechanism, numbered as on the wire.
type Mechanism int8

// The mechanisms.
const (
	ScramSHA256 Mechanism = 1
	ScramSHA512 Mechanism = 2
)

// Credential is what a broker keeps of a password (RFC 5802). It must not be
// changed after it was handed over.
type Credential struct {
	User       string
	Mechanism  Mechanism
	Iterations int32
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
}

type credentialKey struct {
	user      string
	mechanism Mechanism
}

// ACL is a binding: it allows or denies an operation. Numbers are Kafka's
// (resource types, pattern types, operations, permissions).
type ACL struct {
	ResourceType int8
	ResourceName string
	PatternType  int8
	Principal    string // "User:name"
	Host         string // "*" is any
	Operation    int8
	Permission   int8
}

// QuotaPart is one dimension of a quota's entity, such as user=alice. Default
// stands for everyone who has no entry of their own.
type QuotaPart struct {
	Type    string // user, client-id, ip, topic
	Name    string
	Default bool
}

func quotaPart(kind string, name *string) QuotaPart {
	if name == nil {
		return QuotaPart{Type: kind, Default: true}
	}
	return QuotaPart{Type: kind, Name: *name}
}

func (p QuotaPart) nullable() *string {
	if p.Default {
		return nil
	}
	return &p.Name
}

// QuotaEntity is whom a quota is for: parts by type, sorted.
type QuotaEntity []QuotaPart

// NewQuotaEntity sorts the parts, which makes equal entities equal.
func NewQuotaEntity(parts ...QuotaPart) QuotaEntity {
	e := slices.Clone(parts)
	slices.SortFunc(e, func(a, b QuotaPart) int { return cmp.Compare(a.Type, b.Type) })
	return e
}

// id is a key for maps: the fact's key.
func (e QuotaEntity) id() string {
	key, _ := quotaFact{Entity: e}.encode()
	return string(key)
}

// Quota is an entity with its limits.
type Quota struct {
	Entity QuotaEntity
	Limits map[string]float64
}

// PutCredentials stores credentials and forgets others, all or none.
type PutCredentials struct {
	Put    []Credential
	Delete []Credential // User and Mechanism only; unknown ones are RESOURCE_NOT_FOUND
	To     *machine.Promise[struct{}]
}

func (c PutCredentials) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	var facts []Fact
	for _, cr := range c.Put {
		if err := checkTexts("user", cr.User); err != nil {
			return refuse(c.To, err)
		}
		if cr.User == "" || cr.Mechanism != ScramSHA256 && cr.Mechanism != ScramSHA512 {
			return refuse(c.To, &Error{ErrUnacceptableCredential, "a credential needs a user and a known mechanism"})
		}
		facts = append(facts, credentialFact{Credential: cr})
	}
	for _, cr := range c.Delete {
		if _, ok := m.snapshot.Credential(cr.User, cr.Mechanism); !ok {
			return refuse(c.To, &Error{ErrResourceNotFound, "Attempt to delete a user credential that does not exist"})
		}
		facts = append(facts, credentialFact{Credential{User: cr.User, Mechanism: cr.Mechanism}, true})
	}
	return done(c.To, facts)
}

// PutACLs stores bindings and removes others. Storing one that exists and
// removing one that does not change nothing.
type PutACLs struct {
	Put, Delete []ACL
	To          *machine.Promise[struct{}]
}

func (c PutACLs) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	var facts []Fact
	for _, a := range c.Put {
		if err := checkTexts("ACL", a.ResourceName, a.Principal, a.Host); err != nil {
			return refuse(c.To, err)
		}
		if _, exists := m.snapshot.acls[a]; !exists {
			facts = append(facts, aclFact{ACL: a})
		}
	}
	for _, a := range c.Delete {
		if _, exists := m.snapshot.acls[a]; exists {
			facts = append(facts, aclFact{a, true})
		}
	}
	return done(c.To, facts)
}

// PutQuotas sets the limits of entities; an entity without limits is removed.
type PutQuotas struct {
	Put []Quota
	To  *machine.Promise[struct{}]
}

func (c PutQuotas) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	var facts []Fact
	for _, q := range c.Put {
		for _, part := range q.Entity {
			if err := checkTexts("quota entity", part.Type, part.Name); err != nil {
				return refuse(c.To, err)
			}
		}
		facts = append(facts, quotaFact{q.Entity, maps.Clone(q.Limits)})
	}
	return done(c.To, facts)
}

// maxText is what a fact can hold of one string.
const maxText = 1<<15 - 1

func checkTexts(what string, texts ...string) error {
	for _, text := range texts {
		if len(text) > maxText {
			return &Error{ErrInvalidRequest, fmt.Sprintf("%s: text of %d bytes is longer than %d", what, len(text), maxText)}
		}
	}
	return nil
}

func (f credentialFact) apply(m *Machine) {
	all := maps.Clone(m.snapshot.credentials)
	key := credentialKey{f.Credential.User, f.Credential.Mechanism}
	if f.Gone {
		delete(all, key)
	} else {
		all[key] = f.Credential
	}
	m.edit(func(s *Snapshot) { s.credentials = all })
}

func (f aclFact) apply(m *Machine) {
	all := maps.Clone(m.snapshot.acls)
	if f.Gone {
		delete(all, f.ACL)
	} else {
		all[f.ACL] = struct{}{}
	}
	m.edit(func(s *Snapshot) { s.acls, s.aclRevision = all, s.aclRevision+1 })
}

func (f quotaFact) apply(m *Machine) {
	all := maps.Clone(m.snapshot.quotas)
	if id := f.Entity.id(); len(f.Values) == 0 {
		delete(all, id)
	} else {
		all[id] = Quota{f.Entity, f.Values}
	}
	m.edit(func(s *Snapshot) { s.quotas = all })
}
