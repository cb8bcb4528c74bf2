package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/freeport"
)

// told is the address a client that connects to addr is told to use.
func told(t *testing.T, addr string) string {
	t.Helper()
	resp := rawConn(t, addr).do(kmsg.NewPtrMetadataRequest()).(*kmsg.MetadataResponse)
	if len(resp.Brokers) != 1 {
		t.Fatalf("%d brokers", len(resp.Brokers))
	}
	return net.JoinHostPort(resp.Brokers[0].Host, fmt.Sprint(resp.Brokers[0].Port))
}

// ownAddress is an address of this machine that is not loopback, "" if it has
// none.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}

func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		l.Close()
	}
	return err == nil
}

// Clients are told an address they can reach: the configured one, the one that
// was bound, or, where that is every address, the one they came by.
func TestAdvertisedAddresses(t *testing.T) {
	_, port, _ := net.SplitHostPort(freeport.Addr(t))
	type client struct{ from, told string } // host the client connects to → host it is told
	for _, c := range []struct {
		name, bind string
		more       []string
		clients    []client
	}{
		{"one address", "127.0.0.1", nil, []client{{"127.0.0.1", "127.0.0.1"}, {"localhost", "127.0.0.1"}}},
		{"localhost is both", "localhost", nil, []client{{"127.0.0.1", "localhost"}, {"::1", "localhost"}, {"localhost", "localhost"}}},
		{"every address of version 4", "0.0.0.0", []string{"--set", "perigee.allow.open=true"}, []client{{"127.0.0.1", "localhost"}, {"own", "own"}}},
		{"every address", "::", []string{"--set", "perigee.allow.open=true"}, []client{{"127.0.0.1", "localhost"}, {"::1", "localhost"}, {"own", "own"}}},
		{"the loopback of version 6", "::1", nil, []client{{"::1", "::1"}}},
		{"configured", "127.0.0.1", []string{"--set", "advertised.listeners=PLAINTEXT://kafka.example:" + port}, []client{{"127.0.0.1", "kafka.example"}}},
		{"configured with version 6", "127.0.0.1", []string{"--set", "advertised.listeners=PLAINTEXT://[2001:db8::1]:" + port}, []client{{"127.0.0.1", "2001:db8::1"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.bind, "::") && !hasIPv6() {
				t.Skip("this machine has no IPv6")
			}
			b := Start(t, append([]string{"--kafka-listen", net.JoinHostPort(c.bind, port)}, c.more...)...)
			b.NeedsOwnProcess()
			for _, client := range c.clients {
				if client.from == "own" {
					if client.from = ownAddress(t); client.from == "" {
						continue
					}
					client.told = client.from
				}
				if strings.Contains(client.from, ":") && !hasIPv6() {
					continue
				}
				if got, want := told(t, net.JoinHostPort(client.from, port)), net.JoinHostPort(client.told, port); got != want {
					t.Errorf("a client of %s is told %s, want %s", client.from, got, want)
				}
			}
		})
	}
}
