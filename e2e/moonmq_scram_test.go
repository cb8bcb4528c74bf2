package e2e

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"strings"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// scramClient is the client's side of the recorded SCRAM logins, written apart
// from the broker's. The password is the user's name.
type scramClient struct {
	bare, challenge string
	binding         string // base64 of the gs2 header and what follows it
}

func newScramClient(frame []byte) *scramClient {
	m, err := wire.DecodeRequest(wire.OpAuthScram, frame[wire.LengthSize+wire.HeaderSize:])
	if err != nil {
		return &scramClient{}
	}
	return &scramClient{bare: strings.TrimPrefix(m.(*wire.AuthScram).Message, "n,,"), binding: "biws"}
}

func (c *scramClient) salted() []byte {
	var nonce, salt string
	var iterations int
	fmt.Sscanf(strings.ReplaceAll(c.challenge, ",", " "), "r=%s s=%s i=%d", &nonce, &salt, &iterations)
	raw, _ := base64.StdEncoding.DecodeString(salt)
	user := strings.TrimPrefix(strings.Split(c.bare, ",")[0], "n=")
	key, _ := pbkdf2.Key(sha256.New, user, raw, iterations, 32)
	return key
}

func sign(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func (c *scramClient) withoutProof() string {
	nonce, _, _ := strings.Cut(c.challenge, ",")
	return "c=" + c.binding + "," + nonce
}

func (c *scramClient) all() string { return c.bare + "," + c.challenge + "," + c.withoutProof() }

func (c *scramClient) final() string {
	key := sign(c.salted(), "Client Key")
	stored := sha256.Sum256(key)
	proof := sign(stored[:], c.all())
	subtle.XORBytes(proof, proof, key)
	return c.withoutProof() + ",p=" + base64.StdEncoding.EncodeToString(proof)
}

func (c *scramClient) server() string {
	return "v=" + base64.StdEncoding.EncodeToString(sign(sign(c.salted(), "Server Key"), c.all()))
}

func exporter(s tls.ConnectionState) []byte {
	data, err := s.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	if err != nil {
		return nil
	}
	return data
}

func endPoint(s tls.ConnectionState) []byte {
	sum := sha256.Sum256(s.PeerCertificates[0].Raw)
	return sum[:]
}
