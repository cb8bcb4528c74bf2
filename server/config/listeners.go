package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Listener is a socket and what clients are told about it.
type Listener struct {
	Name string // "PLAINTEXT" unless configured otherwise; "" for MoonMQ and HTTP
	Host string // as configured; "" is every address
	Port int    // 0 is any free port
	TLS  bool   // of Kafka's listeners: SSL in listener.security.protocol.map

	// What clients are told; an empty host means that nothing was configured.
	AdvertisedHost string
	AdvertisedPort int
}

// Address is what to give to net.Listen.
func (l Listener) Address() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// Wildcard reports whether the listener is bound to every address.
func (l Listener) Wildcard() bool {
	if l.Host == "" {
		return true
	}
	ip, err := netip.ParseAddr(l.Host)
	return err == nil && ip.IsUnspecified()
}

// Loopback reports whether only this machine can connect.
func (l Listener) Loopback() bool {
	ip, err := netip.ParseAddr(l.Host)
	return l.Host == "localhost" || err == nil && ip.IsLoopback()
}

// Advertised is the configured address for clients as HOST:PORT, or "" when it
// follows from the bound address and the connection.
func (l Listener) Advertised() string {
	if l.AdvertisedHost == "" {
		return ""
	}
	return net.JoinHostPort(l.AdvertisedHost, strconv.Itoa(l.AdvertisedPort))
}

// parseHostPort reads HOST:PORT for listeners that have no name.
func parseHostPort(text string) (Listener, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return Listener{}, fmt.Errorf("%q is not HOST:PORT", text)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return Listener{}, fmt.Errorf("%q has no port between 0 and 65535", text)
	}
	return Listener{Host: host, Port: int(port)}, nil
}

// parseNamed reads NAME://HOST:PORT; text without a name is PLAINTEXT.
func parseNamed(text string) (Listener, error) {
	name, rest, ok := strings.Cut(text, "://")
	if !ok {
		name, rest = "PLAINTEXT", text
	}
	l, err := parseHostPort(rest)
	l.Name = strings.ToUpper(name)
	return l, err
}

// kafkaListeners puts together listeners, advertised.listeners and
// listener.security.protocol.map.
func kafkaListeners(r reader) ([]Listener, error) {
	var problems []error
	skip := map[string]bool{}
	if _, text, ok := r("controller.listener.names"); ok {
		for _, name := range SplitList(text) {
			skip[strings.ToUpper(name)] = true
		}
	}
	protocols := map[string]string{}
	for _, item := range r.list("listener.security.protocol.map") {
		name, protocol, _ := strings.Cut(item, ":")
		protocols[strings.ToUpper(name)] = strings.ToUpper(protocol)
	}
	var listeners []Listener
	for _, text := range r.list("listeners") {
		l, err := parseNamed(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("listeners: %w", err))
			continue
		}
		if skip[l.Name] {
			continue
		}
		switch protocol, known := protocols[l.Name]; {
		case protocol == "SSL":
			l.TLS = true
		case !known:
			problems = append(problems, fmt.Errorf("listeners: %s has no entry in listener.security.protocol.map", l.Name))
		case protocol != "PLAINTEXT":
			problems = append(problems, fmt.Errorf("listeners: %s needs %s, which this release does not have; PLAINTEXT and SSL are supported", l.Name, protocol))
		}
		if slices.ContainsFunc(listeners, func(other Listener) bool { return other.Name == l.Name }) {
			problems = append(problems, fmt.Errorf("listeners: %s stands twice; every listener needs its own name", l.Name))
		}
		listeners = append(listeners, l)
	}
	if len(listeners) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("listeners: no listener is left for clients"))
	}
	if _, text, ok := r("advertised.listeners"); ok {
		problems = append(problems, advertise(listeners, SplitList(text), skip)...)
	}
	return listeners, errors.Join(problems...)
}

// advertise fills in the configured addresses by listener name.
func advertise(listeners []Listener, texts []string, skip map[string]bool) (problems []error) {
	for _, text := range texts {
		a, err := parseNamed(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("advertised.listeners: %w", err))
			continue
		}
		if skip[a.Name] {
			continue
		}
		at := slices.IndexFunc(listeners, func(l Listener) bool { return l.Name == a.Name })
		switch {
		case at < 0:
			problems = append(problems, fmt.Errorf("advertised.listeners: %s is not one of the listeners", a.Name))
		case a.Wildcard():
			problems = append(problems, fmt.Errorf("advertised.listeners: %s: clients cannot connect to %q; name a host", a.Name, a.Host))
		case a.Port == 0:
			problems = append(problems, fmt.Errorf("advertised.listeners: %s needs a port", a.Name))
		default:
			listeners[at].AdvertisedHost, listeners[at].AdvertisedPort = a.Host, a.Port
		}
	}
	return problems
}

// optionalListener reads HOST:PORT or "off".
func optionalListener(r reader, name string) (*Listener, error) {
	text := r.text(name)
	if text == "off" {
		return nil, nil
	}
	l, err := parseHostPort(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &l, nil
}
