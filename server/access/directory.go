package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"sync/atomic"

	"github.com/perigeemq/perigee/coordinator/catalog"
)

// MaxDerivations is how many passwords are checked at the same time: each takes
// a core for its time.
const MaxDerivations = 4

// User is somebody named in a configuration file.
type User struct {
	Name         string
	Credential   *Credential // nil: no password login
	Certificates []string    // names a client certificate may carry to be this user
	Super        bool
}

// Static is what a configuration file says about access. It stands beside the
// catalog and wins where both name a user.
type Static struct {
	Users []User
	ACLs  []catalog.ACL
	Super []string // principals, "User:name"
	// Everyone allows what no binding speaks of: allow.everyone.if.no.acl.found.
	Everyone bool
}

// Directory knows all users and rights: the file's and the catalog's. It is safe
// for concurrent use.
type Directory struct {
	static   Static
	users    map[string]User
	super    []string
	snapshot func() *catalog.Snapshot
	secret   [32]byte // makes decoy salts that nobody can predict
	slots    chan struct{}
	built    atomic.Pointer[builtAuthorizer]
}

// builtAuthorizer is an authorizer with the state of the bindings it was built from.
type builtAuthorizer struct {
	revision int64
	*Authorizer
}

// NewDirectory reads from snapshot whenever it is asked something.
func NewDirectory(s Static, snapshot func() *catalog.Snapshot) *Directory {
	d := &Directory{static: s, users: map[string]User{}, super: s.Super, snapshot: snapshot, slots: make(chan struct{}, MaxDerivations)}
	for _, u := range s.Users {
		d.users[u.Name] = u
		if u.Super {
			d.super = append(d.super, "User:"+u.Name)
		}
	}
	rand.Read(d.secret[:])
	return d
}

// Open reports whether nobody can log in because nobody is known: then everybody
// may do everything.
func (d *Directory) Open() bool {
	return len(d.users) == 0 && len(d.snapshot().Credentials()) == 0
}

// Credential finds a user's. For an unknown one it returns a decoy that stays
// the same for the name and costs what the dearest real one costs.
func (d *Directory) Credential(user string, m Mechanism) (c Credential, known bool) {
	if u, ok := d.users[user]; ok {
		if u.Credential != nil && u.Credential.Mechanism == m {
			return *u.Credential, true
		}
	} else if kept, ok := d.snapshot().Credential(user, catalog.Mechanism(m)); ok {
		return Credential{m, int(kept.Iterations), kept.Salt, kept.StoredKey, kept.ServerKey}, true
	}
	return d.decoy(user, m), false
}

func (d *Directory) decoy(user string, m Mechanism) Credential {
	salt := hmac.New(sha256.New, d.secret[:])
	salt.Write([]byte(user))
	size := m.hash()().Size()
	return Credential{
		Mechanism: m, Iterations: d.dearest(m), Salt: salt.Sum(nil)[:SaltBytes],
		StoredKey: make([]byte, size), ServerKey: make([]byte, size),
	}
}

// dearest is the largest iteration count of a mechanism's credentials.
func (d *Directory) dearest(m Mechanism) int {
	most := 1
	for _, u := range d.static.Users {
		if u.Credential != nil && u.Credential.Mechanism == m {
			most = max(most, u.Credential.Iterations)
		}
	}
	for _, c := range d.snapshot().Credentials() {
		if Mechanism(c.Mechanism) == m {
			most = max(most, int(c.Iterations))
		}
	}
	return most
}

// CheckPassword derives and compares; ran is false when too many are doing so
// already. An unknown user takes as long as a known one.
func (d *Directory) CheckPassword(user, password string) (ok, ran bool) {
	select {
	case d.slots <- struct{}{}:
	default:
		return false, false
	}
	defer func() { <-d.slots }()
	c, known := d.Credential(user, ScramSHA256)
	if !known {
		if other, ok := d.Credential(user, ScramSHA512); ok {
			c, known = other, true
		}
	}
	return c.Verify(password) && known, true
}

// Certificates are the certificate names of each user that has any.
func (d *Directory) Certificates() map[string][]string {
	all := map[string][]string{}
	for _, u := range d.static.Users {
		if len(u.Certificates) > 0 {
			all[u.Name] = u.Certificates
		}
	}
	return all
}

// Authorizer returns one that knows the bindings of this moment.
func (d *Directory) Authorizer() *Authorizer {
	s := d.snapshot()
	if b := d.built.Load(); b != nil && b.revision == s.ACLRevision() {
		return b.Authorizer
	}
	acls := append(s.ACLs(), d.static.ACLs...)
	b := &builtAuthorizer{s.ACLRevision(), NewAuthorizer(acls, d.super, d.static.Everyone)}
	d.built.Store(b)
	return b.Authorizer
}
