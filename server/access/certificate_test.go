package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"slices"
	"testing"
)

func TestMatchCertificate(t *testing.T) {
	leaf := func(names ...string) *x509.Certificate { return &x509.Certificate{DNSNames: names} }
	verified := func(c *x509.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}
	users := map[string][]string{"billing": {"billing.internal", "shared"}, "audit": {"audit.internal", "shared"}, "nobody": {""}}
	for _, tt := range []struct {
		name         string
		state        *tls.ConnectionState
		wanted       string
		user, refuse string
	}{
		{"its only user", verified(leaf("billing.internal")), "", "billing", ""},
		{"any of its names", verified(leaf("x", "audit.internal")), "audit", "audit", ""},
		{"one of several", verified(leaf("shared")), "billing", "billing", ""},
		{"several", verified(leaf("shared")), "", "", "the client certificate maps to several users (audit, billing); name one"},
		{"another's", verified(leaf("billing.internal")), "audit", "", `the client certificate may not log in as "audit"`},
		{"unknown user", verified(leaf("billing.internal")), "root", "", `the client certificate may not log in as "root"`},
		{"unknown name", verified(leaf("else")), "", "", "the client certificate maps to no user"},
		{"no name", verified(leaf()), "", "", "the client certificate names no identity"},
		{"not verified", &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf("billing.internal")}}, "", "", "the client certificate was not verified"},
		{"none", &tls.ConnectionState{}, "", "", "no client certificate was presented"},
		{"plain", nil, "", "", "not a TLS connection"},
	} {
		user, err := MatchCertificate(tt.state, users, tt.wanted)
		var refusal *Refusal
		switch {
		case tt.refuse == "" && (err != nil || user != tt.user):
			t.Errorf("%s: user %q, %v, want %q", tt.name, user, err, tt.user)
		case tt.refuse != "" && (!errors.As(err, &refusal) || refusal.Text != tt.refuse || !refusal.Failed):
			t.Errorf("%s: user %q, %v, want %q", tt.name, user, err, tt.refuse)
		}
	}
}

func TestCertificateNames(t *testing.T) {
	spiffe, err := url.Parse("spiffe://cluster/ns/billing")
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, DNSNames: []string{"d"}, URIs: []*url.URL{spiffe}, EmailAddresses: []string{"e@x"}}
	if got, want := CertificateNames(c), []string{"cn", "d", "spiffe://cluster/ns/billing", "e@x"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
}
