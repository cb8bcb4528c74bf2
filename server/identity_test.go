package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// certificate returns a self-signed one, PEM encoded, and its key.
func certificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// Files are exchanged one after the other: the identity changes when they fit
// together again, and is looked for once a second only.
func TestIdentityFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	files := identityFiles{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key")}
	written := time.Now().Add(-time.Hour)
	write := func(name string, content []byte) {
		t.Helper()
		written = written.Add(time.Minute) // whatever the file system's clock is worth
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, written, written); err != nil {
			t.Fatal(err)
		}
	}
	cert1, key1 := certificate(t, 1)
	cert2, key2 := certificate(t, 2)
	write(files.cert, cert1)
	write(files.key, key1)
	var attempts []bool
	i, err := newIdentity(files, "none", zerolog.Nop(), func(ok bool) { attempts = append(attempts, ok) })
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for at, step := range []struct {
		change   func()
		wait     time.Duration
		serial   int64
		attempts int
	}{
		{func() {}, 2 * time.Second, 1, 0},
		{func() { write(files.cert, cert2) }, time.Millisecond, 1, 0}, // not looked yet
		{func() {}, time.Second, 1, 1},                                // does not fit the key
		{func() {}, time.Second, 1, 1},                                // nor is it tried again
		{func() { os.Remove(files.key) }, time.Second, 1, 2},
		{func() { write(files.key, key2) }, time.Second, 2, 3},
		{func() {}, time.Second, 2, 3},
	} {
		step.change()
		now = now.Add(step.wait)
		leaf := i.latest(now).Certificates[0].Leaf
		if leaf.SerialNumber.Int64() != step.serial || len(attempts) != step.attempts {
			t.Errorf("step %d: certificate %d after %d attempts, want %d after %d", at, leaf.SerialNumber, len(attempts), step.serial, step.attempts)
		}
		if digest := sha256.Sum256(leaf.Raw); string(digest[:]) != string(i.digest()) {
			t.Errorf("step %d: the digest is not the certificate's", at)
		}
	}
	if want := []bool{false, false, true}; len(attempts) != 3 || attempts[0] != want[0] || attempts[1] != want[1] || attempts[2] != want[2] {
		t.Errorf("attempts %v, want %v", attempts, want)
	}
}

// What cannot be read at the start is an error that names its step.
func TestIdentityNeedsItsFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, 1)
	files := identityFiles{filepath.Join(dir, "c"), filepath.Join(dir, "k"), filepath.Join(dir, "ca")}
	for name, content := range map[string][]byte{files.cert: cert, files.key: key, files.authorities: []byte("nothing")} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		files identityFiles
		want  string
	}{
		{identityFiles{files.cert, filepath.Join(dir, "none"), ""}, "load certificate: open " + filepath.Join(dir, "none") + ": no such file or directory"},
		{identityFiles{files.cert, files.key, filepath.Join(dir, "none")}, "read authorities: open " + filepath.Join(dir, "none") + ": no such file or directory"},
		{files, "read authorities: no certificate in " + files.authorities},
	} {
		if _, err := newIdentity(tt.files, "required", zerolog.Nop(), nil); err == nil || err.Error() != tt.want {
			t.Errorf("error %v, want %s", err, tt.want)
		}
	}
}
