package transport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
)

// hasIPv6 reports whether this machine has a ::1 to bind.
func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func TestPortInUseNamesListenerPortAndOwner(t *testing.T) {
	first := &Listener{Protocol: &script{}}
	s := startTCP(t, Options{}, first)
	address := first.Addr().String()
	err := s.Listen(&Listener{Name: "PLAINTEXT", Bind: address})
	inUse, ok := errors.AsType[*InUseError](err)
	if !ok || inUse.Address != address || !strings.HasPrefix(err.Error(), "listener PLAINTEXT: "+address+" is in use by ") {
		t.Fatalf("%v", err)
	}
	if us := fmt.Sprintf("pid %d", os.Getpid()); runtime.GOOS == "linux" && !strings.Contains(inUse.Owner, us) {
		t.Errorf("owner %q, want ourselves, %s", inUse.Owner, us)
	}
	if text := (&InUseError{"HTTP", "127.0.0.1:80", ""}).Error(); text != "listener HTTP: 127.0.0.1:80 is in use by another process" {
		t.Error(text)
	}
}

func TestAnAddressThatIsNotOursIsNamed(t *testing.T) {
	_, err := Bind("PLAINTEXT", "192.0.2.1:9092") // documentation's network: nobody has it
	if err == nil || !strings.Contains(err.Error(), "listener PLAINTEXT: bind 192.0.2.1:9092") {
		t.Errorf("%v", err)
	}
}

// A client that resolves localhost to ::1, or to 127.0.0.1, finds us.
func TestLocalhostIsBothAddresses(t *testing.T) {
	l := &Listener{Name: "PLAINTEXT", Bind: "localhost:0", Protocol: &script{serve: echo}}
	startTCP(t, Options{}, l)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	hosts := []string{"127.0.0.1"}
	if hasIPv6() {
		hosts = append(hosts, "::1")
	}
	for _, host := range hosts {
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, framed("hello"))
		if got := receive(t, c); got != "hello" {
			t.Errorf("%s: %q", host, got)
		}
		c.Close()
	}
}

// sixOnly listens on a port of ::1 that is free on 127.0.0.1.
func sixOnly(t *testing.T) (six net.Listener, port string) {
	t.Helper()
	for {
		six, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(six.Addr().String())
		four, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			four.Close()
			return six, port
		}
		six.Close()
	}
}

// Any port will do: one that somebody has on ::1 is passed over. A machine without
// IPv6 has one address, and any port of that.
func TestLocalhostFindsAPortThatIsFreeOnBothAddresses(t *testing.T) {
	addresses := 1
	if hasIPv6() {
		addresses = 2
		for range 300 { // on ::1, so that some of the ports below are taken there
			six, _ := sixOnly(t)
			defer six.Close()
		}
	}
	for range 300 {
		both, err := Bind("PLAINTEXT", "localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		if len(both) != addresses {
			t.Errorf("%d addresses are bound, want %d", len(both), addresses)
		}
		for _, l := range both {
			l.Close()
		}
	}
}

func TestLocalhostInUseOnOneAddressLeavesTheOther(t *testing.T) {
	if !hasIPv6() {
		t.Skip("this machine has no IPv6")
	}
	six, port := sixOnly(t)
	defer six.Close()
	if _, err := Bind("PLAINTEXT", "localhost:"+port); err == nil || !strings.Contains(err.Error(), "[::1]:"+port+" is in use") {
		t.Fatalf("%v", err)
	}
	four, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatalf("the other address is still held: %v", err)
	}
	four.Close()
}
