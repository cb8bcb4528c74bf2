package access

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// The exchange of RFC 7677, section 3.
const (
	rfcFirst     = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
	rfcChallenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	rfcFinal     = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	rfcServer    = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

	// The same password as the original broker stores it, in both forms.
	rfcPBKDF2 = "pbkdf2-sha256$4096$5b6d99689d12358eeca04b141236fa81$c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d"
	rfcScram  = "scram-sha-256$4096$5b6d99689d12358eeca04b141236fa81$586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6$c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5"
)

func credential(t *testing.T, text string) Credential {
	t.Helper()
	c, err := ParseCredential(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rfcExchange(t *testing.T, known bool) *Exchange {
	t.Helper()
	first, err := ParseClientFirst(rfcFirst, Binding{})
	if err != nil {
		t.Fatal(err)
	}
	return newExchange(first, Binding{}, credential(t, rfcPBKDF2), known, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
}

func TestExchangeOfTheRFC(t *testing.T) {
	e := rfcExchange(t, true)
	if e.User() != "user" || e.Challenge() != rfcChallenge {
		t.Errorf("user %q, challenge %q", e.User(), e.Challenge())
	}
	got, err := e.Finish(rfcFinal)
	if err != nil || got != rfcServer {
		t.Errorf("server-final %q, %v", got, err)
	}
}

func TestExchangeRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, message, want string
		known, failed       bool
	}{
		{"unknown user", rfcFinal, "invalid credentials", false, true},
		{"wrong proof", strings.Replace(rfcFinal, "p=dH", "p=eH", 1), "invalid credentials", true, true},
		{"short proof", "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA", "invalid credentials", true, true},
		{"other nonce", strings.Replace(rfcFinal, "r=rO", "r=RO", 1), "scram nonce mismatch", true, true},
		{"other binding", strings.Replace(rfcFinal, "c=biws", "c=eSws", 1), "scram channel-binding mismatch", true, true},
		{"empty", "", "empty client-final message", true, false},
		{"no binding", "r=x,p=AAAA", "missing channel binding (c=)", true, false},
		{"no nonce", "c=biws,p=AAAA", "missing nonce (r=)", true, false},
		{"no proof", "c=biws,r=x", "missing proof (p=)", true, false},
		{"loose base64", "c=biwt,r=x,p=AAAB=", "invalid base64 in proof", true, false},
	} {
		_, err := rfcExchange(t, tt.known).Finish(tt.message)
		var r *Refusal
		if !errors.As(err, &r) || r.Text != tt.want || r.Failed != tt.failed {
			t.Errorf("%s: %v, want %q (failed login: %v)", tt.name, err, tt.want, tt.failed)
		}
	}
}

func TestClientFirst(t *testing.T) {
	tls := map[string][]byte{"tls-exporter": {1}, "tls-server-end-point": {2}}
	for _, tt := range []struct {
		message string
		binding Binding
		want    string // "" is accepted
	}{
		{"n,,n=u,r=abc", Binding{}, ""},
		{"y,,n=u,r=abc", Binding{}, ""},
		{"n,,n=a=2Cb=3Dc,r=nonce", Binding{}, ""},
		{"", Binding{}, "empty client-first message"},
		{"x,,n=u,r=abc", Binding{}, "malformed gs2 header"},
		{"n,n=u", Binding{}, "malformed gs2 header"},
		{"n", Binding{}, "malformed gs2 header"},
		{"p,,n=u,r=abc", Binding{}, "malformed channel-binding flag"},
		{"p=,,n=u,r=abc", Binding{}, "malformed channel-binding flag"},
		{"n,a=bob,n=u,r=abc", Binding{}, "authzid is not supported"},
		{"n,,r=abc", Binding{}, "missing username (n=)"},
		{"n,,n=u", Binding{}, "missing client nonce (r=)"},
		{"n,,n=,r=abc", Binding{}, "empty username"},
		{"n,,n=a=b,r=abc", Binding{}, "invalid escape in username"},
		{"p=tls-exporter,,n=u,r=abc", Binding{}, "channel binding is not available on this connection"},
		{"p=tls-exporter,,n=u,r=abc", Binding{Data: tls}, ""},
		{"p=tls-exporter,,n=u,r=abc", Binding{Policy: BindingDisabled, Data: tls}, "channel binding is not available on this connection"},
		{"p=tls-unique,,n=u,r=abc", Binding{Data: tls}, `unsupported channel-binding type "tls-unique"`},
		{"y,,n=u,r=abc", Binding{Data: tls}, "channel-binding downgrade detected"},
		{"y,,n=u,r=abc", Binding{Policy: BindingDisabled, Data: tls}, ""},
		{"n,,n=u,r=abc", Binding{Data: tls}, ""},
		{"n,,n=u,r=abc", Binding{Policy: BindingRequired, Data: tls}, "this listener requires SCRAM channel binding"},
	} {
		_, err := ParseClientFirst(tt.message, tt.binding)
		if got := textOf(err); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.message, got, tt.want)
		}
	}
	f, err := ParseClientFirst("n,,n=a=2Cb=3Dc,r=nonce", Binding{})
	if err != nil || f.User != "a,b=c" {
		t.Errorf("user %q, %v", f.User, err)
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A bound exchange: the client repeats header and data, and a man in the middle
// who has other data is found out.
func TestChannelBinding(t *testing.T) {
	b := Binding{Data: map[string][]byte{"tls-exporter": []byte("exported")}}
	first, err := ParseClientFirst("p=tls-exporter,,n=user,r=abc", b)
	if err != nil {
		t.Fatal(err)
	}
	c := credential(t, rfcScram)
	for data, want := range map[string]string{"exported": "invalid credentials", "other": "scram channel-binding mismatch"} {
		e := newExchange(first, b, c, true, "xyz")
		header := base64.StdEncoding.EncodeToString([]byte("p=tls-exporter,," + data))
		if _, err := e.Finish("c=" + header + ",r=abcxyz,p=AAAA"); textOf(err) != want {
			t.Errorf("data %q: %v, want %s", data, err, want)
		}
	}
}

func TestCredentials(t *testing.T) {
	for _, text := range []string{rfcPBKDF2, rfcScram} {
		c := credential(t, text)
		if c.String() != rfcScram {
			t.Errorf("%s is kept as %s", text, c)
		}
		if !c.Verify("pencil") || c.Verify("Pencil") || c.Verify("") {
			t.Errorf("%s does not tell its password", text)
		}
	}
	fresh, err := NewCredential(ScramSHA512, "secret", 10)
	if err != nil || !fresh.Verify("secret") || len(fresh.StoredKey) != 64 || len(fresh.Salt) != SaltBytes {
		t.Errorf("fresh credential %+v, %v", fresh, err)
	}
	for _, text := range []string{"", "plain", "pbkdf2-sha256$0$00$" + strings.Repeat("0", 64),
		"pbkdf2-sha256$1000001$00$" + strings.Repeat("0", 64), "pbkdf2-sha256$1$00$00", "pbkdf2-sha256$1$zz$" + strings.Repeat("0", 64),
		"scram-sha-256$1$00$" + strings.Repeat("0", 64), "md5$1$00$00"} {
		if _, err := ParseCredential(text); !errors.Is(err, ErrCredentialText) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := NewCredential(ScramSHA256, "x", MaxIterations+1); err == nil {
		t.Error("too many iterations are accepted")
	}
}

func FuzzClientMessages(f *testing.F) {
	f.Add(rfcFirst, rfcFinal)
	f.Fuzz(func(t *testing.T, first, final string) {
		parsed, err := ParseClientFirst(first, Binding{Data: map[string][]byte{"tls-exporter": {1}}})
		if err != nil {
			return
		}
		c := Credential{Mechanism: ScramSHA256, Iterations: 1, Salt: []byte{1}, StoredKey: make([]byte, 32), ServerKey: make([]byte, 32)}
		if _, err := newExchange(parsed, Binding{}, c, true, "s").Finish(final); err == nil {
			t.Fatal("a login without a password succeeded")
		}
	})
}
