package transport

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// InUseError is a port that somebody else has.
type InUseError struct {
	Listener string // as configured
	Address  string // host:port
	Owner    string // the process, such as "nginx, pid 812"; "" when it cannot be told
}

func (e *InUseError) Error() string {
	owner := e.Owner
	if owner == "" {
		owner = "another process"
	}
	return fmt.Sprintf("listener %s: %s is in use by %s", e.Listener, e.Address, owner)
}

// Bind takes an address for a listener; clients that connect wait in the
// system's queue until somebody accepts. "localhost" is both of the machine's
// own addresses, since some clients try ::1 first and only it. The error is an
// *InUseError when the port is taken.
func Bind(listener, address string) ([]net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "localhost" {
		socket, err := bind(listener, address)
		if err != nil {
			return nil, err
		}
		return []net.Listener{socket}, nil
	}
	for tries := 0; ; tries++ {
		both, err := bindBoth(listener, port)
		inUse := new(InUseError)
		if port != "0" || tries == portTries || !errors.As(err, &inUse) {
			return both, err
		}
	}
}

// portTries is how many ports that are free on 127.0.0.1 are tried on ::1 when any
// will do.
const portTries = 20

func bindBoth(listener, port string) ([]net.Listener, error) {
	four, err := bind(listener, net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	if port == "0" {
		port = strconv.Itoa(four.Addr().(*net.TCPAddr).Port)
	}
	six, err := bind(listener, net.JoinHostPort("::1", port))
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return []net.Listener{four}, nil // a machine without IPv6
	}
	if err != nil {
		return nil, errors.Join(err, four.Close())
	}
	return []net.Listener{four, six}, nil
}

func bind(listener, address string) (net.Listener, error) {
	socket, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &InUseError{Listener: listener, Address: address, Owner: portOwner(address)}
	}
	if err != nil {
		return nil, fmt.Errorf("listener %s: bind %s: %w", listener, address, err)
	}
	return socket, nil
}
