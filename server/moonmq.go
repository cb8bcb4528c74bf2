package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

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
	leaf     []byte // digest of the listener's certificate
}

// bindMoonMQ takes the port.
func (b *Broker) bindMoonMQ() error {
	if b.config.MoonMQ == nil {
		return nil
	}
	limits := b.config.MoonMQLimits
	m := &moonSide{metrics: moonmq.NewMetrics(), listener: &transport.Listener{Name: "MOONMQ", Bind: b.config.MoonMQ.Address()}}
	var err error
	if m.listener.TLS, m.leaf, err = b.moonTLS(); err != nil {
		return fmt.Errorf("listener MOONMQ: %w", err)
	}
	o := b.transportOptions()
	o.MaxConnections, o.MaxConnectionsPerIP = limits.MaxConnections, limits.MaxConnectionsPerIP
	o.MaxFrameBytes = int32(limits.MaxFrameBytes)
	o.IdleTimeout = -1 // the protocol has deadlines of its own
	o.WriteTimeout = limits.SendDeadline
	m.sockets = transport.NewServer(o)
	if err := m.sockets.Listen(m.listener); err != nil {
		return err
	}
	b.moonmq = m
	return nil
}

// moonTLS reads the listener's certificate and the authorities that sign its
// clients'.
func (b *Broker) moonTLS() (*tls.Config, []byte, error) {
	l := b.config.MoonMQLimits
	if l.TLSCertFile == "" {
		return nil, nil, nil
	}
	pair, err := tls.LoadX509KeyPair(l.TLSCertFile, l.TLSKeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("load certificate: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if l.TLSVerify != "none" {
		pem, err := os.ReadFile(l.TLSCAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read authorities: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("read authorities: no certificate in %s", l.TLSCAFile)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
		if l.TLSVerify == "required" {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	leaf := sha256.Sum256(pair.Certificate[0])
	return c, leaf[:], nil
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
		CertificateSHA256: m.leaf,
		VerifiesClients:   m.listener.TLS != nil && m.listener.TLS.ClientAuth >= tls.VerifyClientCertIfGiven,
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
