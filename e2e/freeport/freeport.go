// Package freeport hands out addresses for brokers that tests start, kill and
// start again.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports are taken from below the ones the system gives to outgoing connections
// (32768 and up on Linux, 49152 elsewhere): a client that dials a broker that is
// down could otherwise be given the very port it dials, and would keep it.
const first, last = 15_000, 32_000

// Addr returns a loopback address whose TCP port nobody listens on. Until the test
// ends no other caller gets it, in this process or another: the UDP port of the
// same number, which is a port of its own, is held meanwhile.
func Addr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first))
		hold, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			hold.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { hold.Close() })
		return addr
	}
	t.Fatalf("no free port between %d and %d", first, last)
	return ""
}
