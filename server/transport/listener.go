package transport

import "net"

// Listener is one bound address and the protocol spoken there.
type Listener struct {
	Name       string // as configured, such as PLAINTEXT; labels metrics and log lines
	Bind       string // host:port as configured; host "" or a wildcard binds every address
	Advertised string // host:port clients are told to use; "" derives it for each connection
	Protocol   Protocol

	socket net.Listener
}

// Addr returns the bound address, with the port the system chose for port 0.
func (l *Listener) Addr() net.Addr { return l.socket.Addr() }
