package server

import (
	"time"

	"github.com/perigeemq/perigee/server/transport"
)

// useTLS gives a Kafka listener its identity.
func (b *Broker) useTLS(l *transport.Listener) error {
	s := b.config.TLS
	verify := s.ClientAuth
	if verify == "requested" { // Kafka's word for what identity calls peer
		verify = "peer"
	}
	files := identityFiles{cert: s.KeyStore, key: s.KeyStore, authorities: s.TrustStore}
	i, err := newIdentity(files, verify, b.log, func(bool) {})
	if err != nil {
		return err
	}
	if b.identities == nil {
		b.identities = make(map[string]*identity)
	}
	b.identities[l.Name], l.TLS = i, i.config()
	return nil
}

// expires is when the current certificate ends.
func (i *identity) expires() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current.Certificates[0].Leaf.NotAfter
}

// expirySoon is how long before its end a certificate is worth a warning, at
// every start and once a day.
const expirySoon = 30 * 24 * time.Hour

func (b *Broker) warnOfExpiry() {
	for name, i := range b.identities {
		if end := i.expires(); time.Until(end) < expirySoon {
			b.log.Warn().Str("listener", name).Time("expires", end.UTC()).Int("days", int(time.Until(end).Hours()/24)).Msg("the certificate ends soon")
		}
	}
}
