package kafka

import (
	"sync/atomic"
	"time"

	wire "github.com/perigeemq/perigee/protocol/kafka"
)

// requestLog chooses requests for the log.
type requestLog struct {
	client string // client.id; * is every client
	every  int64  // one in so many
	seen   atomic.Int64
}

// LogRequests logs one in every requests of a client.id from now on; * is all
// clients, "" none. Call it at any time.
func (f *FrontEnd) LogRequests(client string, every int) {
	if client == "" {
		f.requests.Store(nil)
		return
	}
	f.requests.Store(&requestLog{client: client, every: int64(max(every, 1))})
}

// wants reports whether the request of this client is one to log. Its turn
// counts.
func (l *requestLog) wants(client string) bool {
	return (l.client == "*" || l.client == client) && l.seen.Add(1)%l.every == 0
}

// logRequest writes a line about an answered request if that is wished. It shows
// what was asked and how long it took, never a record.
func (s *session) logRequest(h wire.Header, arrived time.Time) {
	l := s.requests.Load()
	if l == nil || !l.wants(h.ClientID) {
		return
	}
	s.log.Info().Uint64("conn", s.conn.ID()).Str("listener", s.listener()).Stringer("remote", s.conn.RemoteAddr()).
		Str("client_id", h.ClientID).Str("principal", s.principal).Str("api", APIName(h.Key)).Int16("version", h.Version).
		Int32("correlation", h.Correlation).Dur("ms", time.Since(arrived)).Msg("request")
}
