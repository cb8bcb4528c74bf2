package moonmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
)

func (s *session) hello(r request) (answer, error) {
	if v := r.body.(*wire.Hello).Version; v != wire.Version {
		return answer{}, failFatally(wire.BadProtocol, fmt.Sprintf("expected v%d got v%d", wire.Version, v))
	}
	s.state = stateGreeted
	return now(&wire.Welcome{Version: wire.Version}), nil
}

// identify names us as the original: clients look at nothing else.
func (s *session) identify(r request) (answer, error) {
	s.client = *r.body.(*wire.IdentifyClient)
	return now(&wire.IdentifyAck{Name: "MoonMQ", Version: "v0.01"}), nil
}

func (s *session) heartbeat(request) (answer, error) { return now(&wire.HeartbeatResp{}), nil }

func (s *session) heartbeatEcho(request) (answer, error) { return answer{}, nil }

func (s *session) goodbye(request) (answer, error) { return answer{}, errGoodbye }

// mechanism labels of the login metrics.
const (
	mechanismPlain    = "plain"
	mechanismScram    = "scram-sha-256"
	mechanismExternal = "external"
)

// auth serves AUTH. Deriving takes its time on the connection's own goroutine,
// while the handshake's clock stands still.
func (s *session) auth(r request) (answer, error) {
	m := r.body.(*wire.Auth)
	if s.front.access.Open() {
		return now(&wire.AuthOK{}), s.loggedIn("", mechanismPlain)
	}
	if err := s.checkBan(); err != nil {
		return answer{}, err
	}
	ok, ran := s.front.access.CheckPassword(m.Username, m.Password)
	switch {
	case !ran:
		return answer{}, failFatally(wire.AuthFailed, "auth busy, retry")
	case !ok:
		return answer{}, s.loginFailed(access.ErrInvalidCredentials, mechanismPlain)
	}
	return now(&wire.AuthOK{}), s.loggedIn(m.Username, mechanismPlain)
}

// checkBan refuses a connection that was open before its address was banned.
func (s *session) checkBan() error {
	if left := s.front.lockout.Banned(s.host, s.front.now()); left > 0 {
		return failFatally(wire.AuthFailed, fmt.Sprintf("ip banned for %d more seconds", seconds(left)))
	}
	return nil
}

func (s *session) loggedIn(user, mechanism string) error {
	s.front.lockout.Succeed(s.host)
	s.front.metrics.login(mechanism, true)
	s.user, s.state, s.scram = user, stateAuthenticated, nil
	s.admit()
	return nil
}

// loginFailed turns a refusal of package access into a closing error and counts
// it if it was a login that failed.
func (s *session) loginFailed(err error, mechanism string) error {
	var refusal *access.Refusal
	if !errors.As(err, &refusal) || !refusal.Failed {
		return failFatally(wire.BadProtocol, err.Error())
	}
	s.front.lockout.Fail(s.host, s.front.now())
	s.front.metrics.login(mechanism, false)
	return failFatally(wire.AuthFailed, refusal.Text)
}

// authScram serves AUTH_SCRAM; another one starts the exchange again.
func (s *session) authScram(r request) (answer, error) {
	m := r.body.(*wire.AuthScram)
	switch {
	case strings.EqualFold(m.Mechanism, "EXTERNAL"):
		return s.authExternal(m.Message)
	case !strings.EqualFold(m.Mechanism, "SCRAM-SHA-256"):
		return answer{}, failFatally(wire.BadProtocol,
			fmt.Sprintf("unsupported mechanism \"%s\" (this broker speaks SCRAM-SHA-256)", m.Mechanism))
	case s.front.access.Open():
		return answer{}, failFatally(wire.AuthFailed, "broker has no credentials configured; connect without AUTH")
	}
	if err := s.checkBan(); err != nil {
		return answer{}, err
	}
	b := s.binding()
	first, err := access.ParseClientFirst(m.Message, b)
	if err != nil {
		return answer{}, s.loginFailed(err, mechanismScram)
	}
	credential, known := s.front.access.Credential(first.User, access.ScramSHA256)
	s.scram = access.NewExchange(first, b, credential, known)
	return now(&wire.AuthChallenge{Message: s.scram.Challenge()}), nil
}

func (s *session) authScramFinal(r request) (answer, error) {
	exchange := s.scram
	if exchange == nil {
		return answer{}, failFatally(wire.BadProtocol, "AUTH_SCRAM_FINAL without a preceding AUTH_SCRAM")
	}
	s.scram = nil
	if s.front.lockout.Banned(s.host, s.front.now()) > 0 {
		return answer{}, failFatally(wire.AuthFailed, "too many failed attempts; try again later")
	}
	final, err := exchange.Finish(r.body.(*wire.AuthScramFinal).Message)
	if err != nil {
		return answer{}, s.loginFailed(err, mechanismScram)
	}
	return now(&wire.AuthOK{Message: final}), s.loggedIn(exchange.User(), mechanismScram)
}

// authExternal logs in whom the client's certificate names.
func (s *session) authExternal(wanted string) (answer, error) {
	if err := s.checkBan(); err != nil {
		return answer{}, err
	}
	if !s.front.verifies {
		return answer{}, s.loginFailed(&access.Refusal{
			Text: "EXTERNAL needs a TLS listener that verifies client certificates", Failed: true}, mechanismExternal)
	}
	user, err := access.MatchCertificate(s.tls(), s.front.access.Certificates(), wanted)
	if err != nil {
		return answer{}, s.loginFailed(err, mechanismExternal)
	}
	return now(&wire.AuthOK{}), s.loggedIn(user, mechanismExternal)
}

func (s *session) tls() *tls.ConnectionState {
	if state, ok := s.conn.TLS(); ok {
		return &state
	}
	return nil
}

// binding is what this connection offers for channel binding.
func (s *session) binding() access.Binding {
	policy := map[string]access.BindingPolicy{
		"required": access.BindingRequired, "disabled": access.BindingDisabled,
	}[s.front.limits.ChannelBinding]
	return access.Binding{Policy: policy, Data: access.ChannelBindings(s.tls(), s.certificate)}
}

// authorize asks whether the session's user may do something. Where nobody is
// known, everybody may do everything.
func (s *session) authorize(op access.Operation, resource access.ResourceType, name string) error {
	if s.allowed(op, resource, name) {
		return nil
	}
	s.front.metrics.denied(resource, op)
	return fail(wire.NotAuthorized, fmt.Sprintf("not authorized: %s on %s \"%s\"", operationName(op), resourceName(resource), name))
}

func (s *session) allowed(op access.Operation, resource access.ResourceType, name string) bool {
	if s.user == "" {
		return true // only open mode admits somebody without a name
	}
	return s.front.access.Authorizer().Allowed(access.Question{
		Principal: "User:" + s.user, Host: s.host, Operation: op, Resource: resource, Name: name, Exact: true,
	})
}

func operationName(op access.Operation) string {
	return map[access.Operation]string{
		access.Read: "read", access.Write: "write", access.Create: "create",
		access.Delete: "delete", access.Alter: "alter", access.Describe: "describe",
	}[op]
}

func resourceName(r access.ResourceType) string {
	return map[access.ResourceType]string{access.Topic: "topic", access.Group: "group", access.Cluster: "cluster"}[r]
}
