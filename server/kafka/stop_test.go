package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A join that waits for the rest of its group, and a fetch that waits for data,
// do not hold up a stop: the one finds its connection closed, the other is
// answered.
func TestAStopDoesNotWaitForOtherClients(t *testing.T) {
	b := startBroker(t, "group.initial.rebalance.delay.ms=3600000")
	topic := b.create("orders", 1)
	member, consumer := b.dial(), b.dial()

	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "readers", "consumer", 30_000, 3_600_000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = "range"
	join.Protocols = append(join.Protocols, protocol)
	member.send(2, join)

	fetch := fetchRequest(topic, map[int32]int64{0: 0})
	fetch.MaxWaitMillis = 3_600_000
	waiting := consumer.send(13, fetch)

	// Both requests were read once a later one on the same connection was queued;
	// the pipes in memory have no buffers.
	member.send(3, versionsRequest())
	consumer.send(3, versionsRequest())

	began := time.Now()
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.server.Shutdown(t.Context()) }()
	resp := fetch.ResponseKind().(*kmsg.FetchResponse)
	consumer.read(waiting, resp)
	if len(fetched(resp)) != 1 {
		t.Errorf("the fetch was answered with %+v", resp)
	}
	member.expectClosed()
	consumer.conn.Close() // it has an answer to come that nobody reads
	<-stopped
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the stop took %v", took)
	}
}
