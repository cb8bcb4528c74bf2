package config

import (
	"errors"
	"fmt"
	"slices"
)

// TLS is what TLS listeners of the Kafka port present and demand: PEM files.
type TLS struct {
	KeyStore   string // private key and certificate chain
	TrustStore string // authorities that sign clients' certificates; "" is none
	ClientAuth string // none, requested, required
}

var tlsKeys = []Key{
	{Name: "ssl.keystore.type", Type: String, Default: "JKS",
		Doc: "The form of the broker's key and certificates. A TLS listener needs PEM."},
	{Name: "ssl.keystore.location", Type: String, Null: true,
		Doc: "PEM file with the broker's private key and certificate chain. It may be replaced while the broker runs; one that cannot be used changes nothing."},
	{Name: "ssl.keystore.key", Type: Password, Null: true, Sensitive: true, Effect: Refused,
		Doc: "The key as PEM text. Only files are read here."},
	{Name: "ssl.keystore.certificate.chain", Type: Password, Null: true, Sensitive: true, Effect: Refused,
		Doc: "The certificates as PEM text. Only files are read here."},
	{Name: "ssl.key.password", Type: Password, Null: true, Sensitive: true, Effect: Refused,
		Doc: "The password of the key. Only keys without one are read here."},
	{Name: "ssl.truststore.type", Type: String, Default: "JKS",
		Doc: "The form of the authorities. A TLS listener needs PEM."},
	{Name: "ssl.truststore.location", Type: String, Null: true,
		Doc: "PEM file with the authorities that sign clients' certificates."},
	{Name: "ssl.truststore.certificates", Type: Password, Null: true, Sensitive: true, Effect: Refused,
		Doc: "The authorities as PEM text. Only files are read here."},
	{Name: "ssl.client.auth", Type: String, Default: "none", rule: oneOf("required", "requested", "none"),
		Doc: "Client certificates: not asked for, checked when there is one, or demanded."},
	{Name: "ssl.enabled.protocols", Type: List, Default: "TLSv1.2,TLSv1.3", Effect: Refused,
		Doc: "TLS versions that are spoken."},
}

// tlsSettings reads them; without a TLS listener there is nothing to check.
func tlsSettings(r reader, listeners []Listener) (TLS, error) {
	if !slices.ContainsFunc(listeners, func(l Listener) bool { return l.TLS }) {
		return TLS{}, nil
	}
	t := TLS{KeyStore: r.text("ssl.keystore.location"), TrustStore: r.text("ssl.truststore.location"), ClientAuth: r.text("ssl.client.auth")}
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	kind, trustKind := r.text("ssl.keystore.type"), r.text("ssl.truststore.type")
	refuse(t.KeyStore == "", "listeners: a TLS listener needs ssl.keystore.location")
	refuse(kind != "PEM", "ssl.keystore.type: %s is not read, set it to PEM", kind)
	refuse(t.TrustStore != "" && trustKind != "PEM", "ssl.truststore.type: %s is not read, set it to PEM", trustKind)
	refuse(t.ClientAuth != "none" && t.TrustStore == "", "ssl.client.auth: %s needs ssl.truststore.location", t.ClientAuth)
	return t, errors.Join(problems...)
}
