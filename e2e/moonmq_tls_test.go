package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// certificates are files of an authority and of what it signed.
type certificates struct {
	ca             string
	server, client pemPair
}

type pemPair struct{ cert, key string }

func makeCertificates(t *testing.T) certificates {
	t.Helper()
	dir := t.TempDir()
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authorityKey := newKey()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	sign := func(name string, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
		template.NotBefore, template.NotAfter = authority.NotBefore, authority.NotAfter
		der, err := x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, authorityKey)
		if err != nil {
			t.Fatal(name, err)
		}
		return der
	}
	pair := func(name string, template *x509.Certificate) pemPair {
		key := newKey()
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pemPair{write(name+".pem", "CERTIFICATE", sign(name, template, key)), write(name+".key", "PRIVATE KEY", der)}
	}
	return certificates{
		ca: write("ca.pem", "CERTIFICATE", sign("ca", authority, authorityKey)),
		server: pair("server", &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "broker"},
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}),
		client: pair("client", &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "ops.example"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}),
	}
}

// SCRAM is bound to the TLS connection with either kind of binding; a client that
// says it could bind and the broker could not is told that this is a downgrade.
func TestMoonMQChannelBinding(t *testing.T) {
	certs := makeCertificates(t)
	b := Start(t, "--moonmq-appsettings", appSettings(t, map[string]any{
		"Server": map[string]any{"Tls": map[string]any{"CertFile": certs.server.cert, "KeyFile": certs.server.key}},
		"Auth":   map[string]any{"MaxFailures": 100, "Users": []any{map[string]any{"Username": "admin", "PasswordHash": "@admin", "Superuser": true}}},
	}))
	b.NeedsOwnProcess()
	pool := x509.NewCertPool()
	authority, err := os.ReadFile(certs.ca)
	if err != nil || !pool.AppendCertsFromPEM(authority) {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, header string
		version      uint16
		data         func(tls.ConnectionState) []byte
		want         string // "" is a login
	}{
		{"exporter", "p=tls-exporter,,", tls.VersionTLS13, exporter, ""},
		{"end point", "p=tls-server-end-point,,", tls.VersionTLS12, endPoint, ""},
		{"wrong data", "p=tls-exporter,,", tls.VersionTLS13, endPoint, "scram channel-binding mismatch"},
		{"exporter before 1.3", "p=tls-exporter,,", tls.VersionTLS12, exporter, `unsupported channel-binding type "tls-exporter"`},
		{"downgrade", "y,,", tls.VersionTLS13, nil, "channel-binding downgrade detected"},
		{"none", "n,,", tls.VersionTLS13, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw, err := tls.Dial("tcp", b.MoonMQ, &tls.Config{RootCAs: pool, ServerName: "localhost", MaxVersion: tt.version})
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			s, reply := boundLogin(t, raw, tt.header, tt.data)
			switch reply := reply.(type) {
			case *wire.AuthOK:
				if tt.want != "" || reply.Message != s.server() {
					t.Errorf("logged in with %q, want %q", reply.Message, tt.want)
				}
			case *wire.Error:
				if reply.Message != tt.want {
					t.Errorf("refused with %q, want %q", reply.Message, tt.want)
				}
			default:
				t.Errorf("answer %+v", reply)
			}
		})
	}
	t.Run("renewed", func(t *testing.T) {
		next := makeCertificates(t)
		for from, to := range map[string]string{next.server.cert: certs.server.cert, next.server.key: certs.server.key} {
			content, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		authority, err := os.ReadFile(next.ca)
		if err != nil || !pool.AppendCertsFromPEM(authority) {
			t.Fatal(err)
		}
		renewed, err := tls.LoadX509KeyPair(next.server.cert, next.server.key)
		if err != nil {
			t.Fatal(err)
		}
		var raw *tls.Conn
		eventually(t, answerLimit, func() string { return "the new certificate is not shown" }, func() bool {
			raw, err = tls.Dial("tcp", b.MoonMQ, &tls.Config{RootCAs: pool, ServerName: "localhost", MaxVersion: tls.VersionTLS12})
			if err != nil {
				t.Fatal(err)
			}
			if !raw.ConnectionState().PeerCertificates[0].Equal(renewed.Leaf) {
				raw.Close()
				return false
			}
			return true
		})
		defer raw.Close()
		s, reply := boundLogin(t, raw, "p=tls-server-end-point,,", endPoint)
		if ok, is := reply.(*wire.AuthOK); !is || ok.Message != s.server() {
			t.Errorf("login bound to the new certificate is answered with %+v", reply)
		}
		if _, err := tls.Dial("tcp", b.MoonMQ, &tls.Config{ServerName: "localhost"}); err == nil {
			t.Error("a client that does not know the authority shook hands")
		}
		eventually(t, answerLimit, func() string { return "the handshakes are not counted" }, func() bool {
			text := httpText(t, b, "/metrics")
			return strings.Contains(text, "moonmq_tls_reloads_total 1\n") && strings.Contains(text, "moonmq_tls_handshake_failures_total 1\n")
		})
	})
}

// boundLogin begins a session and logs in with the channel binding of header; data
// is the binding, nil for none.
func boundLogin(t *testing.T, raw *tls.Conn, header string, data func(tls.ConnectionState) []byte) (*scramClient, wire.Message) {
	t.Helper()
	c := &moonConn{raw, t}
	c.must(&wire.Hello{Version: 1}, wire.OpWelcome)
	s := &scramClient{bare: "n=admin,r=clientnonce"}
	reply := c.call(&wire.AuthScram{Mechanism: "SCRAM-SHA-256", Message: header + s.bare})
	challenge, ok := reply.(*wire.AuthChallenge)
	if !ok {
		return s, reply
	}
	s.challenge = challenge.Message
	bound := []byte(header)
	if data != nil {
		bound = append(bound, data(raw.ConnectionState())...)
	}
	s.binding = base64.StdEncoding.EncodeToString(bound)
	return s, c.call(&wire.AuthScramFinal{Message: s.final()})
}
