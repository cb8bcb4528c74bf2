package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Every way in: passwords from the option, a file and the environment, with and
// without TLS.
func TestAuthenticationAndTLS(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	certificate := server.TLS.Certificates[0]
	dir := t.TempDir()
	ca, password := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	for name, content := range map[string]string{ca: string(authority), password: "secret\r\nnot this\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}),
		kfake.Superuser("PLAIN", "admin", "secret"), kfake.Superuser("SCRAM-SHA-256", "admin", "secret"), kfake.Superuser("SCRAM-SHA-512", "admin", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	s := &shell{t, broker.ListenAddrs()[0]}
	secure := []string{"-X", "security.protocol=sasl_ssl", "-X", "sasl.username=admin", "-X", "ssl.ca.location=" + ca, "cluster", "info"}
	with := func(options ...string) []string {
		var args []string
		for _, o := range options {
			args = append(args, "-X", o)
		}
		return append(args, secure...)
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "scram-sha-512"} {
		s.run(with("sasl.password=secret", "sasl.mechanism="+mechanism)...)
	}
	s.run(with("sasl.password.file=" + password)...)
	s.run("-X", "security.protocol=sasl_ssl", "-X", "sasl.username=admin", "-X", "sasl.password=secret", "-X", "enable.ssl.certificate.verification=false", "cluster", "info")
	s.fail(exitFailed, "connect to 127.0.0.1:", with("sasl.password=wrong")...)
	s.fail(exitFailed, "certificate", with("sasl.password=secret", "ssl.server.name=elsewhere")...)
	s.fail(exitFailed, "holds no certificate", append(with("sasl.password=secret")[:6:6], "-X", "ssl.ca.location="+password, "cluster", "info")...)
	s.fail(exitUsage, "read password: ", with("sasl.password.file="+filepath.Join(dir, "absent"))...)
	t.Setenv("PERIGEE_SASL_PASSWORD", "secret")
	s.run(secure...)
}

// arrival is an output that says when something has come.
type arrival struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
	came chan struct{}
	once sync.Once
}

func (a *arrival) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.once.Do(func() { close(a.came) })
	return a.mu.Write(p)
}

// A consumer that follows its topic ends well on a signal, and has committed what
// it printed.
func TestConsumeUntilInterrupted(t *testing.T) {
	s := newShell(t, "t")
	s.input("1\n2\n", "produce", "t")
	ctx, interrupt := context.WithCancel(t.Context())
	out := &arrival{came: make(chan struct{})}
	var stderr bytes.Buffer
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"--brokers", s.brokers, "consume", "t", "-g", "g"}, strings.NewReader(""), out, &stderr)
	}()
	<-out.came
	interrupt()
	if got := <-code; got != exitDone || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", got, stderr.String())
	}
	equal(t, out.mu.String(), "1\n2\n")
	equal(t, s.run("consume", "t", "-g", "g", "-e"), "")
}
