package access

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// Mechanism is a SCRAM hash.
type Mechanism int8

const (
	ScramSHA256 Mechanism = 1 // numbered as in Kafka's protocol
	ScramSHA512 Mechanism = 2
)

// String is the SASL name.
func (m Mechanism) String() string {
	if m == ScramSHA512 {
		return "SCRAM-SHA-512"
	}
	return "SCRAM-SHA-256"
}

func (m Mechanism) hash() func() hash.Hash {
	if m == ScramSHA512 {
		return sha512.New
	}
	return sha256.New
}

const (
	// MaxIterations bounds what a stored credential may cost: beyond it a login
	// would be an attack on the broker.
	MaxIterations = 1_000_000
	// SaltBytes is the length of the salts made here.
	SaltBytes = 16
)

// Credential is what is stored of a password: SCRAM's keys (RFC 5802, 3).
type Credential struct {
	Mechanism  Mechanism
	Iterations int
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
}

// NewCredential derives a credential with a fresh salt.
func NewCredential(m Mechanism, password string, iterations int) (Credential, error) {
	salt := make([]byte, SaltBytes)
	rand.Read(salt)
	return DeriveCredential(m, password, salt, iterations)
}

// DeriveCredential derives a credential with a given salt.
func DeriveCredential(m Mechanism, password string, salt []byte, iterations int) (Credential, error) {
	if iterations < 1 || iterations > MaxIterations {
		return Credential{}, fmt.Errorf("%d iterations are not in 1..%d", iterations, MaxIterations)
	}
	salted, err := pbkdf2.Key(m.hash(), password, salt, iterations, m.hash()().Size())
	if err != nil {
		return Credential{}, fmt.Errorf("derive key: %w", err)
	}
	return FromSalted(m, salted, salt, iterations), nil
}

// fromSalted makes the keys from SaltedPassword, which is PBKDF2's output.
func FromSalted(m Mechanism, salted, salt []byte, iterations int) Credential {
	stored := m.hash()()
	stored.Write(mac(m, salted, "Client Key"))
	return Credential{Mechanism: m, Iterations: iterations, Salt: salt, StoredKey: stored.Sum(nil), ServerKey: mac(m, salted, "Server Key")}
}

func mac(m Mechanism, key []byte, text string) []byte {
	h := hmac.New(m.hash(), key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Verify derives the password's keys and compares. It costs Iterations rounds
// of a hash: see Verifier for the number that may run at once.
func (c Credential) Verify(password string) bool {
	derived, err := DeriveCredential(c.Mechanism, password, c.Salt, c.Iterations)
	return err == nil && subtle.ConstantTimeCompare(derived.StoredKey, c.StoredKey) == 1
}

// The texts MoonMQ stores credentials in.
const (
	pbkdf2Prefix = "pbkdf2-sha256"
	scramPrefix  = "scram-sha-256"
)

// ErrCredentialText is a stored credential that follows neither form.
var ErrCredentialText = errors.New("credential is neither pbkdf2-sha256$iterations$salt$key nor scram-sha-256$iterations$salt$stored key$server key, numbers in hex")

// ParseCredential reads a stored credential, the hex parts in any case:
//
//	pbkdf2-sha256$<iterations>$<salt>$<PBKDF2 output>
//	scram-sha-256$<iterations>$<salt>$<StoredKey>$<ServerKey>
//
// The first form's output is SCRAM's SaltedPassword: it is turned into the
// second, which an attacker can do less with.
func ParseCredential(text string) (Credential, error) {
	fields := strings.Split(text, "$")
	keys := map[string]int{pbkdf2Prefix: 1, scramPrefix: 2}[fields[0]]
	if keys == 0 || len(fields) != 3+keys {
		return Credential{}, ErrCredentialText
	}
	iterations, err := strconv.Atoi(fields[1])
	if err != nil || iterations < 1 || iterations > MaxIterations {
		return Credential{}, fmt.Errorf("%w: iterations are in 1..%d", ErrCredentialText, MaxIterations)
	}
	raw := make([][]byte, 0, 3)
	for i, f := range fields[2:] {
		b, err := hex.DecodeString(f)
		if err != nil || len(b) == 0 || i > 0 && len(b) != sha256.Size {
			return Credential{}, ErrCredentialText
		}
		raw = append(raw, b)
	}
	if fields[0] == pbkdf2Prefix {
		return FromSalted(ScramSHA256, raw[1], raw[0], iterations), nil
	}
	return Credential{Mechanism: ScramSHA256, Iterations: iterations, Salt: raw[0], StoredKey: raw[1], ServerKey: raw[2]}, nil
}

// String is the text ParseCredential reads, for SCRAM-SHA-256.
func (c Credential) String() string {
	return fmt.Sprintf("%s$%d$%x$%x$%x", scramPrefix, c.Iterations, c.Salt, c.StoredKey, c.ServerKey)
}
