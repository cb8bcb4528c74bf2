package freeport

import (
	"net"
	"testing"
)

// No address is given out twice while its test runs, and a test's addresses are
// given back when it ends.
func TestAddr(t *testing.T) {
	seen := map[string]bool{}
	var given string
	t.Run("a test", func(t *testing.T) {
		for range 500 {
			addr := Addr(t)
			if seen[addr] {
				t.Fatalf("%s twice", addr)
			}
			seen[addr], given = true, addr
			if l, err := net.Listen("tcp", addr); err != nil {
				t.Error(err)
			} else {
				l.Close()
			}
			if held, err := net.ListenPacket("udp", addr); err == nil {
				held.Close()
				t.Errorf("%s is not held", addr)
			}
		}
	})
	held, err := net.ListenPacket("udp", given)
	if err != nil {
		t.Fatalf("%s is held after its test: %v", given, err)
	}
	held.Close()
}
