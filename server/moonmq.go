package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/admin"
	"github.com/perigeemq/perigee/server/moonmq"
	"github.com/perigeemq/perigee/server/transport"
)

// MoonMQ is what the second listener is given beside its settings: what an
// appsettings.json says that is not a setting.
type MoonMQ struct {
	Access access.Static
	Quotas moonmq.QuotaOptions
}

// moonSide is the second listener with its sockets, which have limits of their
// own.
type moonSide struct {
	sockets  *transport.Server
	listener *transport.Listener
	front    *moonmq.FrontEnd
	metrics  *moonmq.Metrics
	identity *identity // nil without TLS
}

// bindMoonMQ takes the port.
func (b *Broker) bindMoonMQ() error {
	if b.config.MoonMQ == nil {
		return nil
	}
	limits := b.config.MoonMQLimits
	m := &moonSide{metrics: moonmq.NewMetrics(), listener: &transport.Listener{Name: "MOONMQ", Bind: b.config.MoonMQ.Address()}}
	var err error
	if limits.TLSCertFile != "" {
		files := identityFiles{limits.TLSCertFile, limits.TLSKeyFile, limits.TLSCAFile}
		if m.identity, err = newIdentity(files, limits.TLSVerify, b.log, m.metrics.Reloaded); err != nil {
			return fmt.Errorf("listener MOONMQ: %w", err)
		}
		m.listener.TLS = m.identity.config()
	}
	o := b.transportOptions()
	o.MaxConnections, o.MaxConnectionsPerIP = limits.MaxConnections, limits.MaxConnectionsPerIP
	o.MaxFrameBytes = int32(limits.MaxFrameBytes)
	o.IdleTimeout = -1 // the protocol has deadlines of its own
	o.WriteTimeout, o.HandshakeTimeout = limits.SendDeadline, limits.TLSHandshake
	o.Events = b.moonEvents(m.metrics)
	m.sockets = transport.NewServer(o)
	if err := m.sockets.Listen(m.listener); err != nil {
		return err
	}
	b.moonmq = m
	return nil
}

// moonEvents adds what MoonMQ has series for.
func (b *Broker) moonEvents(m *moonmq.Metrics) transport.Events {
	e := b.socketEvents()
	closed, accept := e.Closed, e.Accept
	e.Closed = func(c *transport.Conn, reason error) {
		if errors.Is(reason, transport.ErrHandshake) {
			m.Handshake(false)
		}
		closed(c, reason)
	}
	e.Accept = func(l *transport.Listener, err error, retryIn time.Duration) {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			m.NoDescriptors()
		}
		accept(l, err, retryIn)
	}
	return e
}

// openMoonMQ makes the front end.
func (b *Broker) openMoonMQ() {
	m := b.moonmq
	if m == nil {
		return
	}
	given := b.options.MoonMQ
	given.Access.Super = append(given.Access.Super, b.config.SuperUsers...)
	given.Access.Everyone = b.config.AllowEveryoneIfNoACL
	m.front = moonmq.New(moonmq.Options{
		Coordinator: b.coordinator,
		Access:      access.NewDirectory(given.Access, b.coordinator.Catalog),
		Limits:      b.config.MoonMQLimits, DeadLetters: b.config.DeadLetters,
		Metrics: m.metrics, Log: b.log,
		Quotas:            given.Quotas,
		CertificateSHA256: m.identity.digest,
		VerifiesClients:   m.identity != nil && b.config.MoonMQLimits.TLSVerify != "none",
	})
	m.listener.Protocol, m.listener.Gate, m.listener.Farewell = m.front, m.front.Gate, m.front.Farewell
	m.sockets.Serve()
}

// closeMoonMQ says goodbye to the clients, finishes what they were promised and
// releases the port.
func (b *Broker) closeMoonMQ(ctx context.Context) {
	m := b.moonmq
	if m == nil {
		return
	}
	if m.front != nil {
		m.front.Drain()
	}
	if err := m.sockets.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		b.log.Warn().Msg("MoonMQ connections were cut that still waited for an answer")
	}
	if m.front != nil {
		m.front.Close()
	}
}

// MoonMQAddr returns the bound address of the MoonMQ listener, or nil.
func (b *Broker) MoonMQAddr() net.Addr {
	if b.moonmq == nil {
		return nil
	}
	return b.moonmq.listener.Addr()
}

// deadLetterRoutes adds the HTTP side of NACK and of dead-letter topics, and
// MoonMQ's own names of health and statistics.
func (b *Broker) deadLetterRoutes(s *admin.Server) {
	routes := &admin.DeadLetters{Coordinator: func() *coordinator.Coordinator {
		if b.Ready() != nil {
			return nil
		}
		return b.coordinator
	}}
	if b.moonmq != nil {
		routes.Nacked, routes.Redriven = b.moonmq.metrics.Nacked, b.moonmq.metrics.Redriven
		s.Handle("GET /stats", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(b.moonmq.metrics.Stats())
		}))
	}
	routes.Register(s)
}
