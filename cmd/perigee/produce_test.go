package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// waiting is a run of produce that has written a record and whose input stays open.
type waiting struct {
	stderr bytes.Buffer
	input  *io.PipeWriter
	code   chan int
}

func startProduce(ctx context.Context, s *shell, args ...string) *waiting {
	reader, writer := io.Pipe()
	w, out := &waiting{input: writer, code: make(chan int, 1)}, &arrival{came: make(chan struct{})}
	go func() {
		w.code <- run(ctx, append([]string{"--brokers", s.brokers, "produce", "t", "-o", "%o"}, args...), reader, out, &w.stderr)
	}()
	io.WriteString(writer, "a\n")
	<-out.came
	return w
}

// A signal ends produce while it waits for a line that does not come.
func TestProduceIsInterruptedBetweenLines(t *testing.T) {
	s := newShell(t, "t")
	for _, tc := range []struct{ flags, words string }{
		{"--acks=all", "0 records are not acknowledged"},
		{"--txn=x", "the transaction was aborted, nothing was written"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		w := startProduce(ctx, s, tc.flags)
		interrupt()
		if code := <-w.code; code != exitFailed || !strings.Contains(w.stderr.String(), tc.words) {
			t.Errorf("%s: exit code %d: %s", tc.flags, code, w.stderr.String())
		}
		equal(t, s.run("consume", "t", "-e", "--read-committed"), "a\n")
	}
}

// So does a broker that acknowledges nothing for as long as --timeout.
func TestProduceGivesUpBetweenLines(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	w := startProduce(t.Context(), &shell{t, broker.ListenAddrs()[0]}, "--timeout=100ms")
	broker.Close()
	io.WriteString(w.input, "b\n")
	if code, words := <-w.code, "acknowledged nothing for 100ms; 1 records"; code != exitFailed || !strings.Contains(w.stderr.String(), words) {
		t.Errorf("exit code %d: %s", code, w.stderr.String())
	}
}

// broken is an output that takes nothing.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestProduceSaysThatItsReportIsLost(t *testing.T) {
	s := newShell(t, "t")
	for _, format := range []string{"json", "%o"} {
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"--brokers", s.brokers, "produce", "t", "-o", format}, strings.NewReader("a\nb\n"), broken{}, &stderr)
		if want := "perigee: write report: no space\n"; code != exitFailed || stderr.String() != want {
			t.Errorf("-o %s: exit code %d: %s", format, code, stderr.String())
		}
	}
}

// Batches are as large as their topic takes, and what no topic takes is told with the
// limit.
func TestBatchesFitTheirTopic(t *testing.T) {
	s, _ := ownBroker(t, filepath.Join(t.TempDir(), "data"))
	s.run("topic", "create", "large", "large.dlq", "-c", "max.message.bytes=3000000")
	s.run("topic", "create", "tiny", "-c", "max.message.bytes=1000")
	long := strings.Repeat("x", 2_000_000) + "\n"
	s.input(long, "produce", "large", "-z", "none")
	equal(t, s.run("consume", "large", "-e", "-f", "%V"), "2000000")
	s.input(strings.Repeat("a line\n", 2000), "produce", "tiny", "-z", "none")
	equal(t, s.run("consume", "tiny", "-e"), strings.Repeat("a line\n", 2000))
	if r := s.try(long, "produce", "tiny"); r.code != exitFailed || !strings.Contains(r.err, "max.message.bytes of the topic is 1000\n") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	s.input(long, "produce", "large.dlq", "-z", "none", "-H", "__dlq.errors.topic=large")
	s.run("dlq", "redrive", "large.dlq", "--execute")
	equal(t, s.run("consume", "large", "-e", "-f", "%V "), "2000000 2000000 ")
}

// What is no text is shown whole in JSON, and harmless in a table.
func TestPeekAtBytes(t *testing.T) {
	s := newShell(t, "t.dlq")
	s.input("\xff\x1b[31m", "produce", "t.dlq", "-f", "%v", "-H", "a=1", "-H", "a=2", "-H", "__dlq.errors.topic=t", "-H", "__dlq.errors.partition=3")
	if out := s.run("dlq", "peek", "t.dlq"); !strings.HasSuffix(out, ` \xff\x1b[31m`+"\n") {
		t.Error(out)
	}
	shown := s.run("dlq", "peek", "t.dlq", "--format", "json")
	for _, words := range []string{`"key": null`, `"value": "/xtbMzFt"`, `"value_encoding": "base64"`, `"value": "1"`, `"value": "2"`, `"source": "t"`, `"source_partition": 3`} {
		if !strings.Contains(shown, words) {
			t.Errorf("no %s in\n%s", words, shown)
		}
	}
	s.fail(exitFailed, "perigee: nowhere: UNKNOWN_TOPIC_OR_PARTITION", "dlq", "peek", "nowhere")
}

// What was rolled back is passed by, also when its marker stands behind a transaction
// that is still open.
func TestDeadLettersInFrontOfAnOpenTransaction(t *testing.T) {
	s, _ := ownBroker(t, filepath.Join(t.TempDir(), "data"))
	s.run("topic", "create", "t.dlq", "-p", "1")
	dead := func(client *kgo.Client, value string) {
		t.Helper()
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		r := &kgo.Record{Topic: "t.dlq", Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "__dlq.errors.topic", Value: []byte("t")}}}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	s.input("first", "produce", "t.dlq", "-H", "__dlq.errors.topic=t")
	aborted, open := s.client(kgo.TransactionalID("aborted")), s.client(kgo.TransactionalID("open"))
	dead(aborted, "rolled back")
	dead(open, "undecided")
	if err := aborted.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	out := s.run("dlq", "peek", "t.dlq")
	if !strings.Contains(out, "first") || strings.Contains(out, "rolled back") || strings.Contains(out, "undecided") {
		t.Error(out)
	}
	if out := s.run("dlq", "redrive", "t.dlq"); !strings.Contains(out, "1        would be redriven") {
		t.Error(out)
	}
}
