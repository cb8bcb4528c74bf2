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
			c := &moonConn{raw, t}
			c.must(&wire.Hello{Version: 1}, wire.OpWelcome)
			s := &scramClient{bare: "n=admin,r=clientnonce"}
			reply := c.call(&wire.AuthScram{Mechanism: "SCRAM-SHA-256", Message: tt.header + s.bare})
			if challenge, ok := reply.(*wire.AuthChallenge); ok {
				s.challenge = challenge.Message
				bound := []byte(tt.header)
				if tt.data != nil {
					bound = append(bound, tt.data(raw.ConnectionState())...)
				}
				s.binding = base64.StdEncoding.EncodeToString(bound)
				reply = c.call(&wire.AuthScramFinal{Message: s.final()})
			}
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
}
