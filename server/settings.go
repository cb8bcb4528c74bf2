package server

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/transport"
)

// apply puts in force what can change while a broker runs and is not read from
// the catalog where it is needed: at the start, after a client changed settings,
// and after a reload.
func (b *Broker) apply(c *config.Broker) {
	if b.options.Logs != nil {
		b.options.Logs.SetLevel(c.Log.Level)
	}
	b.sockets.SetLimits(connectionLimits(c.Network))
	b.kafka.LogRequests(c.Log.Requests, c.Log.RequestSample)
}

func connectionLimits(n config.Network) transport.Limits {
	return transport.Limits{
		MaxConnections:      n.MaxConnections,
		MaxConnectionsPerIP: cmp.Or(n.MaxConnectionsPerIP, -1), // Kafka's 0 admits only the overrides
		PerIPOverrides:      perIPOverrides(n.PerIPOverrides),
		MaxConnectionRate:   n.MaxConnectionRate,
	}
}

// lookupTime bounds how long the names of hosts in a setting are looked up.
const lookupTime = 2 * time.Second

// perIPOverrides turns the hosts of max.connections.per.ip.overrides into
// addresses. Names are looked up once, as Kafka does; those that do not resolve
// are left out.
func perIPOverrides(configured map[string]int) map[netip.Addr]int {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	limits := make(map[netip.Addr]int, len(configured))
	for host, limit := range configured {
		if ip, err := netip.ParseAddr(host); err == nil {
			limits[ip.Unmap()] = limit
			continue
		}
		ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		for _, ip := range ips {
			limits[ip.Unmap()] = limit
		}
	}
	return limits
}

// reload reads the settings anew and takes over what can change without a new
// start. Settings that are wrong change nothing.
func (b *Broker) reload(ctx context.Context) {
	if b.options.Logs != nil {
		if err := b.options.Logs.Reopen(); err != nil {
			b.log.Error().Err(err).Msg("lines still go to the old log file")
		}
	}
	if b.options.Reload == nil || b.Ready() != nil {
		return
	}
	b.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
	defer b.notify(daemon.SdNotifyReady)
	if err := b.reloadSettings(ctx); err != nil {
		for line := range strings.Lines(err.Error()) {
			b.log.Error().Str("problem", strings.TrimSpace(line)).Msg("reload: all settings stay as they were")
		}
	}
}

func (b *Broker) reloadSettings(ctx context.Context) error {
	loaded, err := b.options.Reload()
	if err != nil {
		return err
	}
	merged, changed, needStart := b.static.Reload(loaded.Static)
	if _, err := b.coordinator.Reload(merged).Wait(ctx); err != nil {
		return err
	}
	b.static = merged
	for _, name := range needStart {
		b.log.Warn().Str("setting", name).Msg("reload: the new value counts from the next start on")
	}
	b.log.Info().Strs("changed", changed).Msg("settings reloaded")
	return nil
}
