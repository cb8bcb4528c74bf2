package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// residentBytes is the memory of the broker's process.
func residentBytes(t *testing.T, b *Broker) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.Pid()))
	if err != nil {
		t.Skip("needs /proc")
	}
	for line := range strings.Lines(string(raw)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
			return n << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// A thousand idle connections, a hundred subscribers that each get everything,
// and readers that do not read: all are served, and memory stays within figures.
// An idle connection takes about 25 KiB. A busy subscriber holds one delivery as it
// was read and once more as frames, 128 KiB each, and as much again until garbage
// is collected: 300 KiB on a quiet machine, 700 on one that is busy elsewhere.
func TestMoonMQManyConnections(t *testing.T) {
	const (
		idle, subscribers, slow = 1000, 100, 10
		perIdle, perSubscriber  = 80 << 10, 1 << 20
		perSlow                 = 4 << 20 // one delivery of 256 records and its frames
	)
	b := Start(t, "--set", "moonmq.max.connections=2000", "--set", "moonmq.max.connections.per.ip=2000", "--set", "moonmq.idle.deadline.ms=600000")
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "t", 4)
	before := residentBytes(t, b)

	conns := make([]*moonConn, idle)
	for i := range conns {
		conns[i] = moon(t, b)
	}
	if grown := residentBytes(t, b) - before; grown > idle*perIdle {
		t.Errorf("%d idle connections take %d KiB each, more than %d", idle, grown/idle>>10, perIdle>>10)
	}

	before = residentBytes(t, b)
	readers := make([]*moonConn, subscribers)
	for i := range readers {
		readers[i] = moon(t, b)
		readers[i].must(&wire.Subscribe{Topic: "t", Group: fmt.Sprint("g", i), Trailers: 1}, wire.OpOK)
	}
	for i := range slow { // never read
		moon(t, b).must(&wire.Subscribe{Topic: "t", Group: fmt.Sprint("slow", i), Trailers: 1}, wire.OpOK)
	}
	const records = 2000
	value := strings.Repeat("v", 4096)
	var all sync.WaitGroup
	for i, c := range readers {
		all.Go(func() {
			for n := range records {
				raw, err := c.tryReceive(2 * answerLimit)
				if err != nil {
					t.Errorf("subscriber %d, record %d: %v", i, n, err)
					return
				}
				if wire.Op(raw[4]) != wire.OpRecord {
					t.Errorf("subscriber %d is sent %s", i, wire.Op(raw[4]))
					return
				}
			}
		})
	}
	batch := &wire.ProduceBatch{Topic: "t"}
	for i := range 100 {
		batch.Records = append(batch.Records, wire.KeyValue{Key: fmt.Append(nil, i), Value: []byte(value)})
	}
	for range records / 100 {
		side.must(batch, wire.OpProduceBatchAck)
	}
	all.Wait()
	limit := int64(subscribers*perSubscriber + slow*perSlow)
	if grown := residentBytes(t, b) - before; grown > limit {
		t.Errorf("%d subscribers and %d slow readers take %d KiB, more than %d", subscribers, slow, grown>>10, limit>>10)
	}
	for i, c := range conns[:50] { // the idle ones are still there
		c.SetDeadline(time.Now().Add(answerLimit))
		if reply := c.call(&wire.HeartbeatReq{}); reply.Op() != wire.OpHeartbeatResp {
			t.Errorf("idle connection %d answers %s", i, reply.Op())
		}
	}
}
