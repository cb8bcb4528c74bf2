package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// CertificateNames are the names a verified client certificate speaks for: its
// subject's common name and its DNS, URI and e-mail alternative names.
func CertificateNames(c *x509.Certificate) []string {
	var names []string
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	names = append(names, c.DNSNames...)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	return append(names, c.EmailAddresses...)
}

// MatchCertificate finds the user a connection's certificate logs in as. wanted
// is the user the client asks for, or "" for the only one. certificates are the
// names each user may present.
func MatchCertificate(state *tls.ConnectionState, certificates map[string][]string, wanted string) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", &Refusal{Text: fmt.Sprintf(format, args...), Failed: true}
	}
	switch {
	case state == nil:
		return refuse("not a TLS connection")
	case len(state.PeerCertificates) == 0:
		return refuse("no client certificate was presented")
	case len(state.VerifiedChains) == 0:
		return refuse("the client certificate was not verified")
	}
	names := CertificateNames(state.PeerCertificates[0])
	if len(names) == 0 {
		return refuse("the client certificate names no identity")
	}
	var users []string
	for user, theirs := range certificates {
		if slices.ContainsFunc(theirs, func(n string) bool { return slices.Contains(names, n) }) {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	switch {
	case len(users) == 0:
		return refuse("the client certificate maps to no user")
	case wanted != "" && !slices.Contains(users, wanted):
		return refuse("the client certificate may not log in as \"%s\"", wanted)
	case wanted != "":
		return wanted, nil
	case len(users) > 1:
		return refuse("the client certificate maps to several users (%s); name one", strings.Join(users, ", "))
	}
	return users[0], nil
}

// ChannelBindings are the data a TLS connection can be bound with. leafSHA256 is the
// digest of the listener's certificate in DER, whatever its signature algorithm.
func ChannelBindings(state *tls.ConnectionState, leafSHA256 []byte) map[string][]byte {
	if state == nil {
		return nil
	}
	data := map[string][]byte{}
	if len(leafSHA256) > 0 {
		data["tls-server-end-point"] = leafSHA256
	}
	if state.Version >= tls.VersionTLS13 { // RFC 9266: only where the exporter is unique
		if exported, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32); err == nil {
			data["tls-exporter"] = exported
		}
	}
	return data
}
