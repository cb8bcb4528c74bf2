package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeemq/perigee/e2e/freeport"
)

// logLines are a log: several goroutines write it.
type logLines struct {
	mu struct {
		sync.Mutex
		bytes.Buffer
	}
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Buffer.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.Buffer.String()
}

// ownBroker runs `perigee serve` on a directory until stop.
func ownBroker(t *testing.T, dir string) (s *shell, stop func()) {
	t.Helper()
	address := freeport.Addr(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	var log logLines
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"serve", "--data-dir", dir, "--kafka-listen", address, "--moonmq-listen", "off", "--http-listen", "off"}, strings.NewReader(""), &out, &log)
	}()
	stopped := false
	stop = func() {
		t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		if got := <-code; got != exitDone || out.Len() > 0 {
			t.Errorf("serve ended with %d\nstdout: %s\nstderr: %s", got, out.String(), log.String())
		}
	}
	t.Cleanup(stop)
	s = &shell{t, address}
	s.run("cluster", "health", "-w", "-e")
	return s, stop
}

// Our own broker under our own command line, and its files when it has stopped.
func TestOwnBrokerAndItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, stop := ownBroker(t, dir)
	s.run("topic", "create", "orders", "-p", "2", "-c", "retention.ms=86400000")
	s.input("0 a\n0 b\n1 c\n", "produce", "orders", "-f", `%p %v\n`, "-z", "zstd")
	s.input("d\n", "produce", "orders", "-p", "1", "--txn", "x")
	if r := s.try(`{"value":"e"}`+"\n{", "produce", "orders", "-p", "1", "-f", "json", "--txn", "x"); r.code != exitFailed {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	if got := s.run("consume", "orders", "-e", "-g", "g", "--read-committed"); strings.Count(got, "\n") != 4 {
		t.Errorf("read committed: %q", got)
	}
	if out := s.run("group", "describe", "g"); !strings.Contains(out, "TOTAL-LAG    0\n") {
		t.Error(out)
	}
	equal(t, s.run("group", "reset-offsets", "g", "-t", "orders:0", "--to-earliest", "--execute"), lines(
		"TOPIC   PARTITION  FROM  TO  STATUS", "orders  0          2     0   reset"))
	equal(t, s.run("consume", "orders", "-e", "-g", "g"), "a\nb\n")
	if out := s.run("txn", "describe", "x"); !strings.Contains(out, " CompleteAbort ") {
		t.Error(out)
	}
	equal(t, s.run("topic", "trim", "orders", "-p", "0", "--before", "1", "--yes"), lines(
		"TOPIC   PARTITION  OLD-START  NEW-START  STATUS", "orders  0          0          1          trimmed"))
	offline := &shell{t, ""}
	offline.fail(exitFailed, "", "check", "--data-dir", dir) // the broker has it
	stop()

	checkFiles(t, offline, dir)
	breakFiles(t, offline, dir)
}

func checkFiles(t *testing.T, s *shell, dir string) {
	t.Helper()
	var report checkReport
	if err := json.Unmarshal([]byte(s.run("check", "--data-dir", dir, "--format", "json")), &report); err != nil {
		t.Fatal(err)
	}
	if !report.Healthy || report.Partitions < 4 || report.Records < 8 {
		t.Errorf("%+v", report)
	}
	for _, tc := range []struct{ line, want string }{
		{"segments orders", `\norders +1 +0 +\d+ +\d+ +\d+ +\d+ +\d+ +\w+ +topics/`},
		{"batches orders:1", `\norders +1 +0 +0 +1 +\d+ +none +0 +\d+ +\d+ +0 +0 +data +0\n`},
		{"batches orders:1", ` transactional +\d+\n`},
		{"batches orders:1", ` commit +\d+\n`},
		{"batches orders:0 -n 1 --format json", `^\[\n  {\n    "topic": "orders",\n    "partition": 0,\n`},
		{"facts __perigee_catalog", `catalog.topicFact .*"Name":"orders","Overrides":{"retention.ms":"86400000"},"Partitions":2}`},
		{"facts __consumer_offsets", `group.offsetSet +{"group":"g","partition":{"topic":"orders"},"value":{.*"offset":2,`},
		{"facts __transaction_state", `txn.Fact +{"ID":"x","Record":{.*"State":1,`},
		{"facts", `__transaction_state`},
		{"journal", ` inline +orders +0 +0 `},
		{"journal", ` orders +0 +1 +0 .*\n`},
	} {
		args := append(append([]string{"inspect"}, strings.Fields(tc.line)...), "--data-dir", dir)
		if out := s.run(args...); !regexp.MustCompile(tc.want).MatchString(out) {
			t.Errorf("inspect %s: no %s in\n%s", tc.line, tc.want, out)
		}
	}
	s.fail(exitUsage, "orders holds no facts", "inspect", "facts", "orders", "--data-dir", dir)
	s.fail(exitFailed, "absent: no such data on the disk", "inspect", "batches", "absent", "--data-dir", dir)
	for _, verb := range []string{"check", "inspect segments"} {
		args := append(strings.Fields(verb), "--data-dir")
		s.fail(exitFailed, "no such file or directory", append(args, filepath.Join(dir, "absent"))...)
		s.fail(exitFailed, "is not a data directory", append(args, t.TempDir())...)
	}
}

// breakFiles flips a bit of a record: check names the file, inspect shows what is before it.
func breakFiles(t *testing.T, s *shell, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "topics", "*", "1", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, name := range logs {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte("\x02d\x00")) { // the record d of orders
			content[len(content)-3] ^= 1
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			r := s.fail(exitFailed, filepath.Base(name), "check", "--data-dir", dir)
			if !strings.Contains(r.out, "HEALTHY          false\n") {
				t.Error(r.out)
			}
			r = s.fail(exitFailed, "checksum", "inspect", "batches", "orders:1", "--data-dir", dir)
			if !strings.Contains(r.out, " transactional ") {
				t.Error(r.out)
			}
			return
		}
	}
	t.Fatalf("no record d in %v", logs)
}

// A transaction that its coordinator does not know hangs: it is found and ended.
// The broker cannot be made to forget one, so the marker is written for one it
// still knows, which is what abort --topic does.
func TestAbortByOffsetOnOwnBroker(t *testing.T) {
	s, _ := ownBroker(t, filepath.Join(t.TempDir(), "data"))
	s.run("topic", "create", "t", "-p", "1")
	c := s.client(kgo.TransactionalID("x"))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if out := s.run("txn", "producers", "t", "--format", "json"); !strings.Contains(out, `"transaction_start_offset": 0`) {
		t.Fatal(out)
	}
	if stable, err := kadm.NewClient(s.client()).ListCommittedOffsets(t.Context(), "t"); err != nil || stable["t"][0].Offset != 0 {
		t.Fatal(stable, err)
	}
	out := s.run("txn", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0", "--yes")
	if !strings.Contains(out, "\nt/0 ") {
		t.Fatal(out)
	}
	equal(t, s.run("topic", "offsets", "t"), lines("TOPIC  PARTITION  START  STABLE  END", "t      0          0      2       2"))
}
