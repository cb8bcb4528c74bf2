package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/freeport"
)

// keyStore puts a key and its certificate into one PEM file, as Kafka wants
// them.
func keyStore(t *testing.T, p pemPair) string {
	t.Helper()
	var both []byte
	for _, name := range []string{p.key, p.cert} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, text...)
	}
	path := filepath.Join(t.TempDir(), "keystore.pem")
	if err := os.WriteFile(path, both, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startTLS starts a broker from a server.properties with a plain listener and
// one that speaks TLS, and returns the address of the second.
func startTLS(t *testing.T, certs certificates, more string) (b *Broker, secure string) {
	t.Helper()
	plain, secure := freeport.Addr(t), freeport.Addr(t)
	file := filepath.Join(t.TempDir(), "server.properties")
	text := fmt.Sprintf("ssl.keystore.type=PEM\nssl.keystore.location=%s\nssl.truststore.type=PEM\nssl.truststore.location=%s\n%s",
		keyStore(t, certs.server), certs.ca, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b = Start(t, "--kafka-properties", file, "--set", fmt.Sprintf("listeners=PLAINTEXT://%s,SSL://%s", plain, secure))
	b.NeedsOwnProcess()
	b.Kafka = plain
	return b, secure
}

func trusting(t *testing.T, certs certificates) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(certs.ca)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	if !c.RootCAs.AppendCertsFromPEM(text) {
		t.Fatal("no authority")
	}
	return c
}

func TestKafkaOverTLS(t *testing.T) {
	certs := makeCertificates(t)
	b, secure := startTLS(t, certs, "")
	cl := kgoClient(t, secure, kgo.DialTLSConfig(trusting(t, certs)), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchMaxBytes(1<<20), kgo.ConsumeTopics("orders"))
	value := bytes.Repeat([]byte("secret "), 100_000) // more than one write of the socket
	if err := cl.ProduceSync(limited(t), &kgo.Record{Topic: "orders", Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := cl.PollFetches(limited(t)).Records(); len(got) != 1 || !bytes.Equal(got[0].Value, value) {
		t.Fatalf("%d records came back", len(got))
	}
	if out := b.CLI("", "consume", "orders", "-e", "-f", "%S", "--brokers", secure, "-X", "security.protocol=SSL", "-X", "ssl.ca.location="+certs.ca); out != "700000" {
		t.Errorf("the command line reads %q", out)
	}
	wantText(t, b.Output(), `"tls":true`, "the certificate ends soon") // in an hour

	// A client without TLS is not left to guess.
	conn, err := net.Dial("tcp", secure)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1))
	if !ended(conn, clientLimit) {
		t.Error("a plain client of the TLS port is kept")
	}
	awaitText(t, b, "first record does not look like a TLS handshake")
}

func TestKafkaClientCertificates(t *testing.T) {
	certs := makeCertificates(t)
	_, secure := startTLS(t, certs, "ssl.client.auth=required\n")
	stranger := kgoClient(t, secure, kgo.DialTLSConfig(trusting(t, certs)), kgo.RequestRetries(0))
	if err := stranger.Ping(limited(t)); err == nil {
		t.Error("a client without a certificate is let in")
	}
	own := trusting(t, certs)
	pair, err := tls.LoadX509KeyPair(certs.client.cert, certs.client.key)
	if err != nil {
		t.Fatal(err)
	}
	own.Certificates = []tls.Certificate{pair}
	if err := kgoClient(t, secure, kgo.DialTLSConfig(own)).Ping(limited(t)); err != nil {
		t.Error(err)
	}
}
