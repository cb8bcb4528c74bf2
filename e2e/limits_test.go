package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metric returns one series as /metrics shows it, "" if it is not there.
func metric(t *testing.T, b *Broker, series string) string {
	t.Helper()
	resp, err := http.Get("http://" + b.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ended reports whether the broker closes the connection within limit.
func ended(conn net.Conn, limit time.Duration) bool {
	conn.SetReadDeadline(time.Now().Add(limit))
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// dialMany opens connections that last as long as the test.
func dialMany(t *testing.T, addr string, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { conn.Close() })
		conns[i] = conn
	}
	return conns
}

// Clients that ask for gigabytes and never read them cost the broker next to
// nothing: records go from the file to the socket when there is room in it, and
// requests are not read while too many wait for their answer.
func TestClientsThatNeverRead(t *testing.T) {
	const (
		clients, requests = 20, 200
		records, value    = 32, 1 << 20
		mostGrowth        = 96 << 20 // asked for: 20 × 200 × 32 MiB = 125 GiB
	)
	b := Start(t)
	b.NeedsOwnProcess()
	topic := topicName("never-read")
	franz{}.CreateTopic(t, b.Kafka, topic, 1)
	producer := kgoClient(t, b.Kafka, kgo.ProducerBatchMaxBytes(2<<20))
	for i := range records {
		r := &kgo.Record{Topic: topic, Value: bytes.Repeat([]byte{byte(i)}, value-1024)}
		if err := producer.ProduceSync(limited(t), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	wide := kmsg.NewPtrMetadataRequest() // an answer that is in memory
	for i := range 50 {
		franz{}.CreateTopic(t, b.Kafka, topicName("wide", fmt.Sprint(i)), 20)
	}
	before := residentBytes(t, b)

	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 11
	fetch.MaxBytes, fetch.MaxWaitMillis, fetch.SessionEpoch = 1<<30, 500, -1
	ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	ft.Topic, fp.PartitionMaxBytes = topic, 1<<30
	ft.Partitions = append(ft.Partitions, fp)
	fetch.Topics = append(fetch.Topics, ft)
	wide.Version = 7
	format := kmsg.NewRequestFormatter()
	for i, conn := range dialMany(t, b.Kafka, clients) {
		req := kmsg.Request(fetch)
		if i%4 == 3 {
			req = wide
		}
		for n := range int32(requests) {
			conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := conn.Write(format.AppendRequest(nil, req, n)); err != nil {
				break // the broker has stopped to read: that is the point
			}
		}
	}
	// Whoever reads is served as if nobody else were there.
	got := franz{}.From(t, b.Kafka, topic, 0, 0, records)
	if len(got) != records {
		t.Errorf("%d records", len(got))
	}
	if grown := residentBytes(t, b) - before; grown > mostGrowth {
		t.Errorf("the broker grew by %d MiB for clients that do not read", grown>>20)
	} else {
		t.Logf("the broker grew by %d MiB", grown>>20)
	}
}

// Requests that are announced and not sent hold the memory they announce, and no
// more than the broker has for requests.
func TestMemoryForRequestsIsBounded(t *testing.T) {
	const budget = 32 << 20
	b := Start(t, "--set", "socket.request.max.bytes=8388608", "--set", fmt.Sprint("queued.max.request.bytes=", budget))
	b.NeedsOwnProcess()
	stillServes(t, b)
	before := residentBytes(t, b)
	conns := dialMany(t, b.Kafka, 200)
	for _, conn := range conns {
		conn.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		conn.Write(join(int32s(8<<20), head(0, 7, false), make([]byte, 32<<10)))
	}
	held := func() (bytes float64) {
		value := metric(t, b, "perigee_request_memory_bytes")
		if _, err := fmt.Sscan(value, &bytes); err != nil || bytes > budget+(1<<20) {
			t.Fatalf("requests hold %s bytes of %d", value, budget)
		}
		return bytes
	}
	eventually(t, 10*time.Second, func() string { return "the announced requests hold no memory" }, func() bool { return held() > 0 })
	eventually(t, 10*time.Second, func() string { return "connections were not let in" },
		func() bool { held(); return metric(t, b, `perigee_connections_open{protocol="kafka"}`) == "201" }) // stillServes' too
	if grown := residentBytes(t, b) - before; grown > 2*budget {
		t.Errorf("200 requests of 8 MiB grew the broker by %d MiB", grown>>20)
	}
	for _, conn := range conns {
		conn.Close()
	}
	stillServes(t, b)
}

// A few thousand connections that do nothing.
func TestThousandsOfConnections(t *testing.T) {
	const n, mostEach = 3000, 48 << 10
	b := Start(t)
	b.NeedsOwnProcess()
	stillServes(t, b)
	before := residentBytes(t, b)
	conns := dialMany(t, b.Kafka, n)
	request := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)
	for _, conn := range conns {
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
	each := (residentBytes(t, b) - before) / n
	t.Logf("%d bytes for each of %d connections", each, n)
	if each > mostEach {
		t.Errorf("a connection takes %d bytes, more than %d", each, mostEach)
	}
	stillServes(t, b)
}

func TestConnectionLimits(t *testing.T) {
	for setting, limit := range map[string]int{"max.connections": 10, "max.connections.per.ip": 10} {
		t.Run(setting, func(t *testing.T) {
			b := Start(t, "--set", fmt.Sprint(setting, "=", limit))
			b.NeedsOwnProcess()
			let := dialMany(t, b.Kafka, limit)
			eventually(t, 10*time.Second, func() string { return "connections were not let in" },
				func() bool { return metric(t, b, `perigee_connections_open{protocol="kafka"}`) == fmt.Sprint(limit) })
			for _, conn := range dialMany(t, b.Kafka, 30) {
				if !ended(conn, 10*time.Second) {
					t.Fatal("a connection above the limit was let in")
				}
			}
			lines := func() int { return strings.Count(b.Output(), `"limit":"`+setting+`"`) }
			eventually(t, 10*time.Second, func() string { return "no log line about refused connections: " + b.Output() }, func() bool { return lines() > 0 })
			if n := lines(); n > 5 {
				t.Errorf("%d log lines about 30 refused connections: %s", n, b.Output())
			}
			let[0].Close()
			eventually(t, 10*time.Second, func() string { return "no connection is let in after one was closed" }, func() bool {
				conn, err := net.Dial("tcp", b.Kafka)
				if err != nil {
					return false
				}
				defer conn.Close()
				return !ended(conn, 100*time.Millisecond)
			})
		})
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	b := Start(t, "--set", "connections.max.idle.ms=300")
	b.NeedsOwnProcess()
	silent := dialMany(t, b.Kafka, 1)[0]
	spoke := rawConn(t, b.Kafka)
	spoke.do(kmsg.NewPtrApiVersionsRequest())
	for name, conn := range map[string]net.Conn{"one that never spoke": silent, "one that did": spoke.conn} {
		if !ended(conn, 20*time.Second) {
			t.Errorf("%s stays", name)
		}
	}
}
