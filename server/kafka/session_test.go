package kafka

import (
	"net"
	"testing"

	"github.com/perigeemq/perigee/server/transport"
)

func TestAdvertisedAddressFollowsTheConnection(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9092} }
	for _, c := range []struct {
		name         string
		bind         string
		bound, local net.Addr
		host         string
		port         int32
	}{
		{"one address", "127.0.0.1:9092", tcp("127.0.0.1"), tcp("127.0.0.1"), "127.0.0.1", 9092},
		{"a name", "kafka.example:9092", tcp("10.0.0.5"), tcp("10.0.0.5"), "kafka.example", 9092},
		{"every address, by loopback", ":9092", tcp("::"), tcp("127.0.0.1"), "localhost", 9092},
		{"every address, by loopback of version 6", "[::]:9092", tcp("::"), tcp("::1"), "localhost", 9092},
		{"every address, from outside", "0.0.0.0:9092", tcp("0.0.0.0"), tcp("192.168.1.7"), "192.168.1.7", 9092},
		{"every address, mapped", "[::]:9092", tcp("::"), tcp("::ffff:192.168.1.7"), "192.168.1.7", 9092},
		{"a port the system chose", "127.0.0.1:0", &net.TCPAddr{IP: net.ParseIP("127.0.0.1"), Port: 33445}, tcp("127.0.0.1"), "127.0.0.1", 33445},
		{"in process", "memory:9092", transport.MemoryAddr("memory:9092"), transport.MemoryAddr("memory:9092"), "memory", 9092},
	} {
		host, port := derive(c.bound, c.local, c.bind)
		if host != c.host || port != c.port {
			t.Errorf("%s: %s:%d, want %s:%d", c.name, host, port, c.host, c.port)
		}
	}
}
