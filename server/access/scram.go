package access

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
)

// Refusal is why a SCRAM exchange ended. The text is fit for the peer. Failed
// tells a failed login, which counts against the address, from a malformed or
// unsupported message.
type Refusal struct {
	Text   string
	Failed bool
}

func (r *Refusal) Error() string { return r.Text }

func malformed(text string) error { return &Refusal{Text: text} }

// ErrInvalidCredentials is every failed login: wrong password, unknown user,
// user without a password.
var ErrInvalidCredentials error = &Refusal{Text: "invalid credentials", Failed: true}

var (
	errNonceMismatch   error = &Refusal{Text: "scram nonce mismatch", Failed: true}
	errBindingMismatch error = &Refusal{Text: "scram channel-binding mismatch", Failed: true}
)

// BindingPolicy says what a listener wants of SCRAM channel binding.
type BindingPolicy int8

const (
	BindingPreferred BindingPolicy = iota // a client that could bind must say so honestly
	BindingRequired
	BindingDisabled
)

// Binding is what a connection offers for channel binding: the data by type
// ("tls-exporter", "tls-server-end-point"), none on a plaintext connection.
type Binding struct {
	Policy BindingPolicy
	Data   map[string][]byte
}

func (b Binding) possible() bool { return b.Policy != BindingDisabled && len(b.Data) > 0 }

// Exchange is the server's side of one SCRAM login (RFC 5802, without
// SASLprep). It is used once and by one goroutine.
type Exchange struct {
	credential Credential
	user       string
	known      bool

	gs2       []byte // the header the client sent, repeated in its final message
	binding   []byte // what has to follow it there
	firstBare string
	challenge string
	nonce     string
}

// ClientFirst is a parsed client-first message.
type ClientFirst struct {
	User        string
	gs2         string
	bindingType string // "" unless the client binds
	bare, nonce string
}

// ParseClientFirst reads the first message and judges its channel binding.
func ParseClientFirst(message string, b Binding) (ClientFirst, error) {
	var f ClientFirst
	if message == "" {
		return f, malformed("empty client-first message")
	}
	flag, rest, ok := strings.Cut(message, ",")
	authzid, bare, ok2 := strings.Cut(rest, ",")
	if !ok || !ok2 {
		return f, malformed("malformed gs2 header")
	}
	bindingType, binds := strings.CutPrefix(flag, "p=")
	if !binds {
		bindingType = ""
	}
	switch {
	case flag == "n" || flag == "y":
	case binds && bindingType != "":
	case strings.HasPrefix(flag, "p"):
		return f, malformed("malformed channel-binding flag")
	default:
		return f, malformed("malformed gs2 header")
	}
	if authzid != "" {
		return f, malformed("authzid is not supported")
	}
	if err := judgeBinding(flag, bindingType, b); err != nil {
		return f, err
	}
	f.gs2, f.bindingType, f.bare = message[:len(message)-len(bare)], bindingType, bare
	return f, f.readBare()
}

func judgeBinding(flag, bindingType string, b Binding) error {
	switch {
	case bindingType != "" && !b.possible():
		return malformed("channel binding is not available on this connection")
	case bindingType != "" && b.Data[bindingType] == nil:
		return malformed(fmt.Sprintf("unsupported channel-binding type \"%s\"", bindingType))
	case flag == "n" && b.Policy == BindingRequired && b.possible():
		return malformed("this listener requires SCRAM channel binding")
	case flag == "y" && b.possible():
		return malformed("channel-binding downgrade detected")
	}
	return nil
}

func (f *ClientFirst) readBare() error {
	fields := strings.Split(f.bare, ",")
	name, ok := strings.CutPrefix(fields[0], "n=")
	if !ok {
		return malformed("missing username (n=)")
	}
	if len(fields) < 2 || !strings.HasPrefix(fields[1], "r=") || len(fields[1]) == 2 {
		return malformed("missing client nonce (r=)")
	}
	f.nonce = fields[1][2:]
	user, err := unescape(name)
	f.User = user
	return err
}

func unescape(name string) (string, error) {
	if name == "" {
		return "", malformed("empty username")
	}
	var user strings.Builder
	for name != "" {
		before, rest, found := strings.Cut(name, "=")
		user.WriteString(before)
		if !found {
			break
		}
		switch {
		case strings.HasPrefix(rest, "2C"):
			user.WriteByte(',')
		case strings.HasPrefix(rest, "3D"):
			user.WriteByte('=')
		default:
			return "", malformed("invalid escape in username")
		}
		name = rest[2:]
	}
	return user.String(), nil
}

// NewExchange answers a first message. known says whether credential is the
// user's; else it is a decoy and the login will fail at the proof.
func NewExchange(f ClientFirst, b Binding, credential Credential, known bool) *Exchange {
	random := make([]byte, 18)
	rand.Read(random)
	return newExchange(f, b, credential, known, base64.StdEncoding.EncodeToString(random))
}

func newExchange(f ClientFirst, b Binding, credential Credential, known bool, serverNonce string) *Exchange {
	e := &Exchange{
		credential: credential, user: f.User, known: known,
		gs2: []byte(f.gs2), binding: b.Data[f.bindingType], firstBare: f.bare, nonce: f.nonce + serverNonce,
	}
	salt := base64.StdEncoding.EncodeToString(credential.Salt)
	e.challenge = fmt.Sprintf("r=%s,s=%s,i=%d", e.nonce, salt, credential.Iterations)
	return e
}

// User is who wants to log in.
func (e *Exchange) User() string { return e.user }

// Challenge is the server-first message.
func (e *Exchange) Challenge() string { return e.challenge }

// Finish checks the client-final message and returns the server-final one.
func (e *Exchange) Finish(message string) (string, error) {
	if message == "" {
		return "", malformed("empty client-final message")
	}
	f, err := parseClientFinal(message)
	if err != nil {
		return "", err
	}
	if f.nonce != e.nonce {
		return "", errNonceMismatch
	}
	if !bytes.Equal(f.binding, append(bytes.Clone(e.gs2), e.binding...)) {
		return "", errBindingMismatch
	}
	return e.prove(f)
}

type clientFinal struct {
	binding, proof      []byte
	nonce, withoutProof string
}

func parseClientFinal(message string) (f clientFinal, err error) {
	fields := strings.Split(message, ",")
	field := func(i int, prefix, text string) (string, error) {
		if i < 0 || i >= len(fields) || !strings.HasPrefix(fields[i], prefix) {
			return "", malformed(text)
		}
		return fields[i][len(prefix):], nil
	}
	binding, errBinding := field(0, "c=", "missing channel binding (c=)")
	nonce, errNonce := field(1, "r=", "missing nonce (r=)")
	proof, errProof := field(max(len(fields)-1, 2), "p=", "missing proof (p=)")
	for _, err := range []error{errBinding, errNonce, errProof} {
		if err != nil {
			return f, err
		}
	}
	f.nonce = nonce
	f.withoutProof = strings.TrimSuffix(message, ",p="+proof)
	if f.binding, err = base64.StdEncoding.Strict().DecodeString(binding); err != nil {
		return f, malformed("invalid base64 in channel binding")
	}
	if f.proof, err = base64.StdEncoding.Strict().DecodeString(proof); err != nil {
		return f, malformed("invalid base64 in proof")
	}
	return f, nil
}

// prove checks the client's proof (RFC 5802, 3): ClientKey is recovered from
// the proof with StoredKey's signature, and must hash to StoredKey.
func (e *Exchange) prove(f clientFinal) (string, error) {
	m, c := e.credential.Mechanism, e.credential
	all := e.firstBare + "," + e.challenge + "," + f.withoutProof
	key := mac(m, c.StoredKey, all)
	if len(f.proof) != len(key) {
		return "", ErrInvalidCredentials
	}
	subtle.XORBytes(key, key, f.proof)
	stored := m.hash()()
	stored.Write(key)
	if subtle.ConstantTimeCompare(stored.Sum(nil), c.StoredKey) != 1 || !e.known {
		return "", ErrInvalidCredentials
	}
	return "v=" + base64.StdEncoding.EncodeToString(mac(m, c.ServerKey, all)), nil
}
