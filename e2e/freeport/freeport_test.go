package freeport

import (
	"net"
	"testing"
)

// No address is given out twice while its test runs, and a test's addresses are
// given back when it ends.
func TestAddr(t *testing.T) {
	seen := map[string]bool{}
	t.Run("a test", func(t *testing.T) {
		for range 500 {
			addr := Addr(t)
			if seen[addr] {
				t.Fatalf("%s twice", addr)
			}
			seen[addr] = true
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
	kept := 0
	for addr := range seen {
		if held, err := net.ListenPacket("udp", addr); err == nil {
			held.Close()
		} else {
			kept++ // or somebody else's by now
		}
	}
	if kept > len(seen)/10 {
		t.Errorf("%d of %d addresses are held after their test", kept, len(seen))
	}
}
