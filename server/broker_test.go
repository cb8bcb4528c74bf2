package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage/vfs"
)

// logBuffer collects log lines from several goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// messages returns the log's messages, in order.
func (l *logBuffer) messages(t *testing.T) (messages []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.b.Bytes()) {
		var event struct{ Message string }
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		messages = append(messages, event.Message)
	}
	return messages
}

func load(t *testing.T, set ...string) *config.Loaded {
	t.Helper()
	set = append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "moonmq.listen=off", "perigee.http.listen=127.0.0.1:0"}, set...)
	loaded, err := config.Load(config.Sources{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// run starts a broker on fs and stops it at the end of the test.
func run(t *testing.T, fs vfs.FS, set ...string) (*Broker, *logBuffer) {
	t.Helper()
	log := new(logBuffer)
	b := New(Options{Config: load(t, set...), FS: fs, Log: zerolog.New(log)})
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, log
}

func get(t *testing.T, b *Broker, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + b.HTTPAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestStartSaysWhatItDoesInTwelveLinesAndEndsWithReady(t *testing.T) {
	_, log := run(t, vfs.NewMemory(), "perigee.durability=os")
	messages := log.messages(t)
	if n := len(messages); n == 0 || n > 12 || messages[n-1] != "ready" {
		t.Errorf("start lines %q", messages)
	}
	if !strings.Contains(strings.Join(messages, "\n"), "survive a kill but not a power loss") {
		t.Errorf("no warning about durability in %q", messages)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	b, _ := run(t, vfs.NewMemory())
	client, err := kgo.NewClient(kgo.SeedBrokers(b.KafkaAddr("PLAINTEXT").String()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/livez", "/readyz", "/healthz"} {
		if code, body := get(t, b, path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	code, metrics := get(t, b, "/metrics")
	for _, series := range []string{
		`perigee_kafka_requests_total{api="ApiVersions"}`, `perigee_connections_open{protocol="kafka"} 1`, "perigee_topics ",
		"perigee_partitions ", "perigee_checkpoints_total", "perigee_build_info{", "go_goroutines", "process_resident_memory_bytes",
		`perigee_partition_high_watermark{partition="0",topic="__perigee_catalog"}`,
	} {
		if !strings.Contains(metrics, series) {
			t.Errorf("/metrics (%d) lacks %s", code, series)
		}
	}
	if code, _ := get(t, b, "/debug/pprof/goroutine?debug=1"); code != http.StatusOK {
		t.Errorf("profiler on loopback: %d", code)
	}
}

func TestNotReadyUntilStarted(t *testing.T) {
	b := New(Options{Config: load(t), FS: vfs.NewMemory()})
	if b.Ready() == nil {
		t.Error("ready before the start")
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(); err != nil {
		t.Errorf("after the start: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.Ready() == nil {
		t.Error("ready after the close")
	}
	if err := b.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestPortInUseIsNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ key, listener string }{{"listeners", "PLAINTEXT"}, {"perigee.http.listen", "HTTP"}} {
		b := New(Options{Config: load(t, c.key+"="+taken.Addr().String()), FS: vfs.NewMemory()})
		err := b.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.listener+": "+taken.Addr().String()+" is in use") {
			t.Errorf("%s: %v", c.key, err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Errorf("close after a failed start: %v", err)
		}
	}
}

func TestASecondBrokerOnTheSameDataIsRefused(t *testing.T) {
	fs := vfs.NewMemory()
	run(t, fs)
	second := New(Options{Config: load(t), FS: fs})
	err := second.Start(t.Context())
	if locked := new(vfs.LockedError); !errors.As(err, &locked) {
		t.Errorf("start: %v", err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Errorf("close after a failed start: %v", err)
	}
}

func TestACleanStopIsSeenAtTheNextStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for run := range 3 {
		b := New(Options{Config: load(t, "log.dirs="+dir)})
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id := b.engine.Identity(); !id.CleanStart || int(id.Incarnation) != run {
			t.Errorf("start %d: %+v", run, id)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// A program that embeds the broker dials it without any socket.
func TestEmbeddedBroker(t *testing.T) {
	memory := transport.ListenMemory("memory:9092")
	b := New(Options{Config: load(t, "perigee.http.listen=off"), FS: vfs.NewMemory(), Kafka: memory})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background())
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return memory.Dial(ctx) }
	client, err := kgo.NewClient(kgo.SeedBrokers("memory:9092"), kgo.Dialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), client)
	if err != nil || resp.ErrorCode != 0 {
		t.Errorf("ApiVersions: %v, %+v", err, resp)
	}
	if b.HTTPAddr() != nil {
		t.Error("HTTP is off and bound")
	}
}

func TestAFailedSyncEndsTheBroker(t *testing.T) {
	broken := errors.New("the disk says no")
	fs := vfs.NewFault(vfs.NewMemory())
	log := new(logBuffer)
	b := New(Options{Config: load(t), FS: fs, Log: zerolog.New(log)})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.Background()) // its error is the poison
	fs.Add(vfs.Rule{Op: vfs.OpSync, Err: broken})
	b.coordinator.AutoCreate([]string{"orders"})
	select {
	case err := <-b.Failed():
		if !errors.Is(err, broken) {
			t.Errorf("failed with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the broker goes on after a failed sync")
	}
	if b.Ready() == nil {
		t.Error("ready after a failed sync")
	}
}
