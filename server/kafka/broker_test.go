package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/metrics"
	"github.com/perigeemq/perigee/server/quota"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/vfs"
)

// testBroker is everything below the sockets for real, on a disk in memory,
// reached through connections in memory.
type testBroker struct {
	*FrontEnd
	t      testing.TB
	disk   *vfs.Memory
	set    []string
	engine *storage.Engine
	memory *transport.MemoryListener
	server *transport.Server
	frames *quota.Memory
	log    *logBuffer
}

// logBuffer takes the log, which every connection writes.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startBroker returns a broker with the given settings (key=value).
func startBroker(t testing.TB, set ...string) *testBroker {
	t.Helper()
	b := &testBroker{t: t, disk: vfs.NewMemory(), set: set, log: new(logBuffer)}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *testBroker) start() {
	b.t.Helper()
	loaded, err := config.Load(config.Sources{Set: b.set})
	if err != nil {
		b.t.Fatal(err)
	}
	b.engine, err = storage.Open(context.Background(), storage.Options{FS: b.disk})
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := coordinator.Open(context.Background(), b.engine, coordinator.Options{Static: loaded.Static, Broker: loaded.Broker})
	if err != nil {
		b.t.Fatal(err)
	}
	b.FrontEnd = New(Options{Coordinator: c, Config: loaded.Broker, Log: zerolog.New(b.log), Metrics: new(metrics.Kafka)})
	b.frames = quota.NewMemory(64 << 20)
	b.server = transport.NewServer(transport.Options{MaxFrameBytes: int32(loaded.Broker.Network.RequestMaxBytes), Memory: b.frames})
	b.memory = transport.ListenMemory("memory:9092")
	l := &transport.Listener{Name: "MEMORY", Bind: "memory:9092", Protocol: b.FrontEnd}
	if err := b.server.ListenOn(l, b.memory); err != nil {
		b.t.Fatal(err)
	}
	b.server.Serve()
}

func (b *testBroker) stop() {
	b.server.Shutdown(context.Background())
	b.coordinator.Close()
	if err := b.engine.Close(context.Background()); err != nil {
		b.t.Errorf("close engine: %v", err)
	}
}

// restart stops the broker in good order and starts it on the same disk.
func (b *testBroker) restart() {
	b.t.Helper()
	b.stop()
	b.start()
}

// create makes a topic with settings (name, value, …).
func (b *testBroker) create(topic string, partitions int32, settings ...string) *catalog.Topic {
	b.t.Helper()
	n := catalog.NewTopic{Name: topic, Partitions: partitions, ReplicationFactor: 1, Settings: map[string]string{}}
	for i := 0; i < len(settings); i += 2 {
		n.Settings[settings[i]] = settings[i+1]
	}
	created, err := b.coordinator.CreateTopics([]catalog.NewTopic{n}, false).Wait(b.t.Context())
	if err != nil || created[0].Err != nil {
		b.t.Fatalf("create %s: %v, %v", topic, err, created)
	}
	return created[0].Topic
}

// client returns a kgo client of the broker.
func (b *testBroker) client(options ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return b.memory.Dial(ctx) }
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers("memory:9092"), kgo.Dialer(dial)}, options...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

// wireClient speaks raw requests on one connection.
type wireClient struct {
	t      testing.TB
	conn   net.Conn
	format *kmsg.RequestFormatter
	next   int32
}

func (b *testBroker) dial() *wireClient {
	b.t.Helper()
	conn, err := b.memory.Dial(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return &wireClient{t: b.t, conn: conn, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire-test"))}
}

// send writes a request in the given version and returns its correlation id.
func (c *wireClient) send(version int16, req kmsg.Request) int32 {
	c.t.Helper()
	req.SetVersion(version)
	c.next++
	if _, err := c.conn.Write(c.format.AppendRequest(nil, req, c.next)); err != nil {
		c.t.Fatalf("send %s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return c.next
}

// receive reads one frame and returns correlation id and the rest.
func (c *wireClient) receive() (int32, []byte) {
	c.t.Helper()
	var prefix [4]byte
	if _, err := io.ReadFull(c.conn, prefix[:]); err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return int32(binary.BigEndian.Uint32(body)), body[4:]
}

// read decodes the next answer as resp, whose version must be set.
func (c *wireClient) read(correlation int32, resp kmsg.Response) {
	c.t.Helper()
	got, body := c.receive()
	if got != correlation {
		c.t.Fatalf("answer %d, want %d", got, correlation)
	}
	if resp.IsFlexible() && resp.Key() != keyApiVersions {
		if body[0] != 0 {
			c.t.Fatalf("response header has %d tags", body[0])
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("decode %s v%d: %v", kmsg.NameForKey(resp.Key()), resp.GetVersion(), err)
	}
}

// ask sends one request and returns its answer.
func ask[R kmsg.Response](c *wireClient, version int16, req kmsg.Request) R {
	c.t.Helper()
	id := c.send(version, req)
	resp := req.ResponseKind()
	c.read(id, resp)
	return resp.(R)
}

// expectClosed waits for the broker to close the connection.
func (c *wireClient) expectClosed() {
	c.t.Helper()
	if n, err := c.conn.Read(make([]byte, 1)); err == nil {
		c.t.Fatalf("%d bytes instead of the end of the connection", n)
	}
}
