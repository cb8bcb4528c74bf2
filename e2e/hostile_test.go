package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	serverkafka "github.com/perigeemq/perigee/server/kafka"
)

// prefixed is a frame of any body.
func prefixed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// head is a request's header: of version 2, with no tags, when flexible.
func head(key, version int16, flexible bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 1, 0, 4)
	b = append(b, "evil"...)
	if flexible {
		b = append(b, 0)
	}
	return b
}

// int32s is what Kafka's classic arrays and byte strings begin with.
func int32s(n ...int32) (b []byte) {
	for _, n := range n {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// most is the largest length a compact array, string or tag section can claim.
var most = []byte{0xff, 0xff, 0xff, 0xff, 0x0f}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// spoil sends bytes on a connection of their own and returns what comes back
// until the broker ends it.
func spoil(t *testing.T, addr string, b []byte) []byte {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatalf("the broker is gone: %v", err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	conn.Write(b) // the broker may close before it has read everything
	answer, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection stays open; so far it said %q", answer)
	}
	return answer
}

// stillServes fails unless a well-behaved client is answered.
func stillServes(t *testing.T, b *Broker) {
	t.Helper()
	resp := rawConn(t, b.Kafka).do(kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	if resp.ErrorCode != 0 || len(resp.ApiKeys) == 0 {
		t.Fatalf("ApiVersions: %+v", resp)
	}
}

// Bytes that are no request close their connection, cost no memory to speak of
// and nobody else anything.
func TestBytesThatAreNoRequest(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	stillServes(t, b)
	before := residentBytes(t, b)
	for _, c := range []struct {
		name  string
		bytes []byte
	}{
		{"negative length", int32s(-1)},
		{"smallest length", int32s(-1 << 31)},
		{"largest length", int32s(1<<31 - 1)},
		{"length above socket.request.max.bytes", int32s(100<<20 + 1)},
		{"length 0", int32s(0)},
		{"a header cut short", prefixed([]byte{0, 3, 0})},
		{"zeros", make([]byte, 64)},
		{"ones", bytes.Repeat([]byte{0xff}, 64)},
		{"SSH", []byte("SSH-2.0-OpenSSH_9.2\r\n")},
		{"unknown API", prefixed(head(9999, 0, false))},
		{"negative API", prefixed(head(-1, 0, false))},
		{"unknown version", prefixed(head(3, 99, true))},
		{"client id longer than the frame", prefixed(join([]byte{0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff}, []byte("x")))},
		{"header tags without end", prefixed(join(head(3, 9, true)[:14], most))},
		{"Metadata: 2^31-1 topics", prefixed(join(head(3, 1, false), int32s(1<<31-1)))},
		{"Metadata: compact array without end", prefixed(join(head(3, 9, true), most))},
		{"CreateTopics: 2^31-1 topics", prefixed(join(head(19, 4, false), int32s(1<<31-1)))},
		{"CreateTopics: 2^31-1 assignments", prefixed(join(head(19, 4, false), int32s(1), []byte{0, 1, 't'}, int32s(1), []byte{0, 1}, int32s(1<<31-1)))},
		{"Fetch: 2^31-1 partitions", prefixed(join(head(1, 11, false), int32s(-1, 500, 1, 1<<20), []byte{0}, int32s(0, -1, 1), []byte{0, 1, 't'}, int32s(1<<31-1)))},
		{"Produce: records longer than the frame", prefixed(join(head(0, 7, false), []byte{0xff, 0xff, 0xff, 0xff}, int32s(1000, 1), []byte{0, 1, 't'}, int32s(1, 0, 1<<31-1)))},
		{"ApiVersions: tags without end", prefixed(join(head(18, 3, true), []byte{2, 'x', 2, 'x'}, most))},
		{"JoinGroup: 2^31-1 protocols", prefixed(join(head(11, 2, false), []byte{0, 1, 'g'}, int32s(10000, 10000), []byte{0, 0, 0, 1, 'c'}, int32s(1<<31-1)))},
		{"OffsetCommit: 2^31-1 topics", prefixed(join(head(8, 2, false), []byte{0, 1, 'g'}, int32s(-1), []byte{0, 0}, make([]byte, 8), int32s(1<<31-1)))},
	} {
		t.Run(c.name, func(t *testing.T) {
			if answer := spoil(t, b.Kafka, c.bytes); len(answer) > 0 {
				t.Errorf("answered with %x", answer)
			}
			stillServes(t, b)
		})
	}
	if grown := residentBytes(t, b) - before; grown > 64<<20 {
		t.Errorf("the broker grew by %d MiB", grown>>20)
	}
	if strings.Contains(b.Output(), "BUG") {
		t.Errorf("a request crashed: %s", b.Output())
	}
}

// Every API with a body of noise, of 0xff and cut anywhere: an answer or a closed
// connection, never more.
func TestEveryAPIWithNoise(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(n int) []byte {
		body := make([]byte, n)
		for i := range body {
			body[i] = byte(r.Uint32())
		}
		return body
	}
	for _, api := range serverkafka.APIs() {
		for _, version := range []int16{api.Min, api.Max} {
			req := kmsg.RequestForKey(api.Key)
			req.SetVersion(version)
			whole := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)[4:]
			bodies := [][]byte{
				join(head(api.Key, version, req.IsFlexible()), noise(40)),
				join(head(api.Key, version, req.IsFlexible()), bytes.Repeat([]byte{0xff}, 40)),
				join(head(api.Key, version, req.IsFlexible()), bytes.Repeat([]byte{0x7f}, 40)),
				whole[:len(whole)-min(len(whole)-8, 1)],
			}
			for _, body := range bodies {
				conn, err := net.Dial("tcp", b.Kafka)
				if err != nil {
					t.Fatalf("%s v%d: the broker is gone: %v", api.Name, version, err)
				}
				conn.Write(prefixed(body))
				conn.(*net.TCPConn).CloseWrite()
				conn.SetDeadline(time.Now().Add(30 * time.Second))
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s v%d: no end with body %x", api.Name, version, body)
				}
				conn.Close()
			}
		}
	}
	stillServes(t, b)
	if strings.Contains(b.Output(), "BUG") {
		t.Errorf("a request crashed: %s", b.Output())
	}
}

// Clients that hang up in the middle of a frame leave nothing behind.
func TestHalfFrames(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	for range 50 {
		conn, err := net.Dial("tcp", b.Kafka)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(join(int32s(50<<20), make([]byte, 1000)))
		conn.Close()
	}
	stillServes(t, b)
	eventually(t, clientLimit, func() string { // 2.5 GiB are made and dropped
		return "frames of clients that went are still in memory: " + metric(t, b, "perigee_request_memory_bytes")
	},
		func() bool { return metric(t, b, "perigee_request_memory_bytes") == "0" })
}

// Who speaks something else is told so, in its own language where one message
// can, and the log names it without being filled by it.
func TestOtherProtocolsOnTheKafkaPort(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	for range 20 { // a health check that has the wrong port
		answer := string(spoil(t, b.Kafka, []byte("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")))
		if !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, "This port speaks kafka, not HTTP. Metrics and health are at http://"+b.HTTP) {
			t.Fatalf("HTTP was answered with %q", answer)
		}
	}
	_, err := tls.Dial("tcp", b.Kafka, &tls.Config{InsecureSkipVerify: true})
	if err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS: %v", err)
	}
	hello := append([]byte{0x01, 0x01}, bytes.Repeat([]byte{0}, 30)...) // an opcode where Kafka has the API key
	spoil(t, b.Kafka, prefixed(hello))
	stillServes(t, b)
	for _, want := range []string{"client speaks HTTP", "client speaks TLS", "client speaks MoonMQ"} {
		awaitText(t, b, want)
	}
	if n := strings.Count(b.Output(), "client speaks HTTP"); n > 5 {
		t.Errorf("%d lines about 20 HTTP clients", n)
	}
}

func TestKafkaOnTheMoonMQPort(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	request := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)
	spoil(t, b.MoonMQ, request)
	awaitText(t, b, "client speaks Kafka")
	moon(t, b) // a MoonMQ client is still served
}
