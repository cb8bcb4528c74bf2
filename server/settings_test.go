package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/vfs"
)

// runWithLogs starts a broker whose log follows the settings, from a YAML file
// that reload reads.
func runWithLogs(t *testing.T, text string) (b *Broker, file string, log *logBuffer) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "perigee.yaml")
	write(t, file, text)
	read := func() (*config.Loaded, error) {
		return config.Load(config.Sources{File: file, Set: []string{"listeners=PLAINTEXT://127.0.0.1:0", "moonmq.listen=off", "perigee.http.listen=off"}})
	}
	loaded, err := read()
	if err != nil {
		t.Fatal(err)
	}
	log = new(logBuffer)
	logs, err := OpenLogs(loaded.Broker.Log, log)
	if err != nil {
		t.Fatal(err)
	}
	b = New(Options{Config: loaded, FS: vfs.NewMemory(), Logs: logs, Reload: read})
	t.Cleanup(func() { b.Close(context.Background()) })
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, file, log
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (l *logBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func adminOf(t *testing.T, b *Broker) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.KafkaAddr("PLAINTEXT").String()), kgo.ClientID("the-admin"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// set changes a broker setting over the wire.
func set(t *testing.T, a *kadm.Client, name, value string) {
	t.Helper()
	results, err := a.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Name: name, Value: &value}}, 1)
	if err != nil || results[0].Err != nil {
		t.Fatalf("set %s=%s: %v, %+v", name, value, err, results)
	}
}

// refused reports whether a new connection is closed instead of answered.
func refused(t *testing.T, b *Broker) bool {
	t.Helper()
	c, err := net.Dial("tcp", b.KafkaAddr("PLAINTEXT").String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)) // fails, perhaps, when refused
	_, err = c.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is neither answered nor closed")
	}
	return err != nil
}

func TestConnectionLimitsFollowSettings(t *testing.T) {
	b, _, _ := runWithLogs(t, "")
	a := adminOf(t, b)
	set(t, a, "max.connections.per.ip", "1")
	if !refused(t, b) {
		t.Error("a second connection from this address was let in")
	}
	set(t, a, "max.connections.per.ip", "100")
	if refused(t, b) {
		t.Error("a connection was refused after the limit was raised")
	}
}

func TestLogLevelAndRequestLogFollowSettings(t *testing.T) {
	b, _, log := runWithLogs(t, "perigee.log.level: warn\n")
	if got := log.text(); strings.Contains(got, "ready") {
		t.Errorf("info lines at warn: %s", got)
	}
	a := adminOf(t, b)
	set(t, a, "perigee.log.level", "info")
	set(t, a, "perigee.log.requests", "somebody-else")
	if _, err := a.ListTopics(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := log.text(); strings.Contains(got, `"message":"request"`) {
		t.Errorf("requests of another client were logged: %s", got)
	}
	set(t, a, "perigee.log.requests", "the-admin")
	set(t, a, "perigee.log.requests.sample", "1")
	if got := log.text(); !strings.Contains(got, `"client_id":"the-admin"`) || !strings.Contains(got, `"api":"IncrementalAlterConfigs"`) {
		t.Errorf("no request in the log: %s", got)
	}
}

func TestReloadTakesWhatCanChange(t *testing.T) {
	b, file, log := runWithLogs(t, "num.partitions: 2\nperigee.log.level: warn\n")
	write(t, file, "num.partitions: 5\nperigee.log.level: info\nnode.id: 9\n")
	b.reload(t.Context())
	if n := b.coordinator.Catalog().Broker().Topics.Partitions; n != 5 {
		t.Errorf("num.partitions is %d", n)
	}
	got := log.text()
	for _, want := range []string{`"setting":"node.id"`, "counts from the next start", `"changed":["num.partitions","perigee.log.level"]`} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %s: %s", want, got)
		}
	}
	// What is gone from the file is default again; what a client set is stronger.
	set(t, adminOf(t, b), "message.max.bytes", "77777")
	write(t, file, "message.max.bytes: 88888\n")
	b.reload(t.Context())
	c := b.coordinator.Catalog()
	k, _ := config.BrokerTable.Key("message.max.bytes")
	if v, _ := c.Values().Effective(k); v != "77777" || c.Broker().Topics.Partitions != 1 {
		t.Errorf("message.max.bytes %s, num.partitions %d", v, c.Broker().Topics.Partitions)
	}
}

func TestAWrongFileChangesNothingAtReload(t *testing.T) {
	b, file, log := runWithLogs(t, "num.partitions: 2\n")
	write(t, file, "num.partitons: 5\nlog.retention.ms: soon\n")
	b.reload(t.Context())
	if n := b.coordinator.Catalog().Broker().Topics.Partitions; n != 2 {
		t.Errorf("num.partitions is %d", n)
	}
	for _, want := range []string{"perigee.yaml:1: unknown setting", "perigee.yaml:2: ", "all settings stay"} {
		if !strings.Contains(log.text(), want) {
			t.Errorf("the log lacks %q: %s", want, log.text())
		}
	}
}

func TestATopicWithMoreReplicasThanBrokersIsWarnedAboutOnce(t *testing.T) {
	b, _, log := runWithLogs(t, "")
	a := adminOf(t, b)
	if r, err := a.CreateTopic(t.Context(), 1, 3, nil, "orders"); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	a.ListTopics(t.Context())
	if n := strings.Count(log.text(), "replication factor stored as 1"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.text())
	}
}
