package server

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// identityFiles are PEM files: the chain a listener shows, its key, and the
// authorities that sign its clients' certificates.
type identityFiles struct{ cert, key, authorities string }

// identity is who a TLS listener is and whom it believes, as its files say. They
// may be replaced while the broker runs: a handshake looks whether they changed,
// at most once a second. Files that do not fit together, as happens between the
// copy of a certificate and that of its key, leave the identity as it was.
//
// It looks by name, not by watching: Kubernetes replaces a symbolic link above
// the files and not the files.
type identity struct {
	files    identityFiles
	verify   string // none, peer, required
	log      zerolog.Logger
	reloaded func(ok bool)

	mu      sync.Mutex
	looked  time.Time
	states  [3]fileState // of the files last read, whether they were taken over or not
	current *tls.Config
	leaf    []byte // digest of the certificate in current
}

// fileState changes when a file does.
type fileState struct {
	at, size int64
}

// lookEvery is how long changed files may go unseen.
const lookEvery = time.Second

// newIdentity reads the files. reloaded is told of every later attempt.
func newIdentity(files identityFiles, verify string, log zerolog.Logger, reloaded func(ok bool)) (*identity, error) {
	i := &identity{files: files, verify: verify, log: log, reloaded: reloaded, looked: time.Now()}
	i.states = i.stat()
	return i, i.load()
}

// config is for the listener; each handshake uses what is current then.
func (i *identity) config() *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return i.latest(time.Now()), nil
	}}
}

// digest returns SHA-256 of the current certificate; nil without an identity. A
// client whose handshake coincides with an exchange of the files may be bound to
// the other certificate: its login fails and its next one does not.
func (i *identity) digest() []byte {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.leaf
}

func (i *identity) latest(now time.Time) *tls.Config {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Sub(i.looked) < lookEvery {
		return i.current
	}
	i.looked = now
	states := i.stat()
	if states == i.states {
		return i.current
	}
	i.states = states
	err := i.load()
	i.reloaded(err == nil)
	if err != nil {
		i.log.Error().Err(err).Str("cert", i.files.cert).Msg("changed TLS files are not used, the old ones stay")
	} else {
		i.log.Info().Str("cert", i.files.cert).Time("not_after", i.current.Certificates[0].Leaf.NotAfter).Msg("TLS files taken over")
	}
	return i.current
}

// stat tells the files' states; of one that is not there, none.
func (i *identity) stat() (s [3]fileState) {
	for at, name := range []string{i.files.cert, i.files.key, i.files.authorities} {
		if info, err := os.Stat(name); err == nil {
			s[at] = fileState{info.ModTime().UnixNano(), info.Size()}
		}
	}
	return s
}

// load replaces the identity by what the files say now. The caller has the lock,
// or is alone.
func (i *identity) load() error {
	pair, err := tls.LoadX509KeyPair(i.files.cert, i.files.key)
	if err != nil {
		return fmt.Errorf("load certificate: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if i.verify != "none" {
		pem, err := os.ReadFile(i.files.authorities)
		if err != nil {
			return fmt.Errorf("read authorities: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("read authorities: no certificate in %s", i.files.authorities)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
		if i.verify == "required" {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	leaf := sha256.Sum256(pair.Certificate[0])
	i.current, i.leaf = c, leaf[:]
	return nil
}
