package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkajs has no API to read one partition from an offset, so it is tried as a
// producer, a group member and a transactional producer.

type jsHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type jsRecord struct {
	Partition int32       `json:"partition"`
	Offset    json.Number `json:"offset,omitempty"`
	Time      json.Number `json:"time"`
	Key       *[]byte     `json:"key"`
	Value     *[]byte     `json:"value"`
	Headers   []jsHeader  `json:"headers,omitempty"`
}

func nodeDir() string { return filepath.Join(repoRoot(), "e2e", "node") }

var installKafkajs = sync.OnceValue(func() error {
	if _, err := os.Stat(filepath.Join(nodeDir(), "node_modules", "kafkajs", "package.json")); err == nil {
		return nil
	}
	cmd := exec.Command("npm", "install", "--no-package-lock", "--silent")
	cmd.Dir = nodeDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w\n%s", err, out)
	}
	return nil
})

func kafkajs(t *testing.T, op string, args map[string]any) []byte {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	if err := installKafkajs(); err != nil {
		t.Skipf("kafkajs cannot be installed: %v", err)
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(limited(t), "node", "client.js", op)
	cmd.Dir = nodeDir()
	cmd.Env = append(os.Environ(), "KAFKAJS_NO_PARTITIONER_WARNING=1")
	cmd.Stdin = bytes.NewReader(encoded)
	cmd.Stderr = testWriter{t}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kafkajs %s: %v", op, err)
	}
	return out
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

func optional(b []byte) *[]byte {
	if b == nil {
		return nil
	}
	return &b
}

func TestKafkajs(t *testing.T) {
	b := Start(t)
	topic := topicName("js")
	kafkajs(t, "createTopic", map[string]any{"addr": b.Kafka, "topic": topic, "partitions": 3})
	var want []Record
	for i, codec := range []string{"none", "gzip"} { // what it can do without native modules
		records := sample(uint64(i), int64(20*i))
		var out []jsRecord
		for _, r := range records {
			js := jsRecord{Partition: r.Partition, Time: json.Number(strconv.FormatInt(r.Time.UnixMilli(), 10)), Key: optional(r.Key), Value: optional(r.Value)}
			for _, h := range r.Headers {
				js.Headers = append(js.Headers, jsHeader(h))
			}
			out = append(out, js)
		}
		kafkajs(t, "produce", map[string]any{"addr": b.Kafka, "topic": topic, "codec": codec, "records": out})
		want = append(want, records...)
	}
	for _, c := range foreignClients() {
		readBack(t, c, b.Kafka, topic, want)
	}
	var got []Record
	var raw []jsRecord
	if err := json.Unmarshal(kafkajs(t, "group", map[string]any{"addr": b.Kafka, "topic": topic, "group": topicName("gjs"), "n": len(want)}), &raw); err != nil {
		t.Fatal(err)
	}
	for _, js := range raw {
		offset, _ := js.Offset.Int64()
		r := Record{Partition: js.Partition, Offset: offset}
		if js.Key != nil {
			r.Key = *js.Key
		}
		if js.Value != nil {
			r.Value = *js.Value
		}
		for _, h := range js.Headers {
			r.Headers = append(r.Headers, Header(h))
		}
		got = append(got, r)
	}
	sameRecords(t, got, want)
}

func TestKafkajsTransactions(t *testing.T) {
	b := Start(t)
	topic := topicName("jstxn")
	franz{}.CreateTopic(t, b.Kafka, topic, 1)
	kafkajs(t, "transaction", map[string]any{"addr": b.Kafka, "topic": topic, "id": topicName("jsid"),
		"steps": [][]any{{"kept 1", true}, {"dropped", false}, {"kept 2", true}}})
	cl := kgoClient(t, b.Kafka, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	rs := franzPoll(t, cl, 2)
	if string(rs[0].Value) != "kept 1" || string(rs[1].Value) != "kept 2" {
		t.Fatalf("read_committed shows %v", rs)
	}
}
