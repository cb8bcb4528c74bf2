package kafka

import (
	"net"
	"net/netip"
	"strconv"

	"github.com/perigeemq/perigee/server/transport"
)

// anonymous is the principal of a connection that did not authenticate.
const anonymous = "User:ANONYMOUS"

// session is the state of one connection. The read goroutine owns it; what a
// reply needs of it is either immutable or said to be shared at the field.
type session struct {
	*FrontEnd // the broker's side: coordinator, configuration, log, metrics

	conn      *transport.Conn
	principal string // "User:ANONYMOUS" until authentication says more

	// From ApiVersions v3+ (KIP-511); empty when the client did not say.
	software, softwareVersion string
}

// listener returns the name of the listener the client came through.
func (s *session) listener() string { return s.conn.Listener().Name }

// clientHost returns the client's address without port, as Kafka prints it in
// group descriptions: "/127.0.0.1".
func (s *session) clientHost() string {
	host, _, err := net.SplitHostPort(s.conn.RemoteAddr().String())
	if err != nil {
		return "/" + s.conn.RemoteAddr().String() // in-process connections have no port
	}
	return "/" + host
}

// advertised returns where this client should connect to, for every answer that
// names a broker: Metadata, FindCoordinator, DescribeCluster and node
// endpoints.
//
// A configured advertised address wins. Else a wildcard bind answers with the
// address the client itself used, which is reachable by construction
// ("localhost" when it came by loopback, since a name survives a client's
// preference for IPv4 or IPv6), and a specific bind with that address.
func (s *session) advertised() (host string, port int32) {
	l := s.conn.Listener()
	if l.Advertised != "" {
		return splitHostPort(l.Advertised)
	}
	return derive(l.Addr(), s.conn.LocalAddr(), l.Bind)
}

// derive chooses the address for a client that reached us at local, on a
// listener configured as bind and bound to bound.
func derive(bound, local net.Addr, bind string) (string, int32) {
	_, port := splitHostPort(bound.String())
	host, _ := splitHostPort(bind)
	if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
		return host, port // a name, or one address
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || at.Addr().IsLoopback() {
		return "localhost", port
	}
	return at.Addr().Unmap().WithZone("").String(), port
}

// splitHostPort splits an address we made or checked ourselves; without a port
// (in-process listeners) it is 0.
func splitHostPort(address string) (string, int32) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return address, 0
	}
	port, _ := strconv.ParseUint(digits, 10, 16)
	return host, int32(port)
}
