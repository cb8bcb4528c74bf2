package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka's command line tools, as an operator would run them.
func TestJavaTools(t *testing.T) {
	kafkaJars(t)
	b := Start(t)
	topic, group := topicName("tools"), topicName("gtools")
	const tools = "org.apache.kafka.tools."
	at := []string{"--bootstrap-server", b.Kafka}
	run := func(stdin, class string, args ...string) string {
		t.Helper()
		return javaTool(t, stdin, class, append(at, args...)...)
	}
	says := func(out string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("missing %q in:\n%s", want, out)
			}
		}
	}
	says(run("", tools+"TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=7200000"), "Created topic "+topic)
	says(run("", tools+"TopicCommand", "--describe", "--topic", topic), "PartitionCount: 2", "ReplicationFactor: 1", "retention.ms=7200000", "Leader:")
	says(run("", tools+"ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic, "--all"), "retention.ms=7200000", "DYNAMIC_TOPIC_CONFIG", "segment.bytes=1073741824", "DEFAULT_CONFIG")
	run("", tools+"ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "max.message.bytes=2000000")
	says(run("", tools+"ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic), "max.message.bytes=2000000")
	says(javaTool(t, "", tools+"ProducerPerformance", "--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1", "--bootstrap-server", b.Kafka, "--command-property", "acks=all"), "20000 records sent")
	says(run("", tools+"GetOffsetShell", "--topic", topic), topic+":0:", topic+":1:")
	says(run("", tools+"ConsumerPerformance", "--topic", topic, "--num-records", "20000", "--group", group, "--timeout", "60000"), "MB.sec")
	says(run("", tools+"consumer.group.ConsumerGroupCommand", "--describe", "--group", group), topic)
	says(run("", tools+"consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"), topic, " 0")
	says(run("", tools+"LogDirsCommand", "--describe", "--topic-list", topic), `"size"`, topic)
	says(run("", tools+"FeatureCommand", "describe"), "transaction.version", "FinalizedVersionLevel: 2")
	says(run("", tools+"TransactionsCommand", "list"), "TransactionalId")
	says(run("", tools+"TopicCommand", "--list"), topic)
	run("", tools+"TopicCommand", "--delete", "--topic", topic)
	if out := run("", tools+"TopicCommand", "--list"); strings.Contains(out, topic) {
		t.Errorf("the deleted topic is still listed:\n%s", out)
	}
}

// numbers produces 0…n-1 as text, spread over the partitions, acknowledged.
func numbers(t *testing.T, addr, topic string, partitions, n int) {
	t.Helper()
	cl := kgoClient(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: []byte(strconv.Itoa(i))})
	}
	if err := cl.ProduceSync(limited(t), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Kafka's own transactional test program copies a topic in transactions, some
// of which it aborts on purpose: the copy is exact.
func TestTransactionalMessageCopier(t *testing.T) {
	kafkaJars(t)
	b := Start(t)
	in, out := topicName("copyin"), topicName("copyout")
	franz{}.CreateTopic(t, b.Kafka, in, 1)
	franz{}.CreateTopic(t, b.Kafka, out, 1)
	const n = 2000
	numbers(t, b.Kafka, in, 1, n)
	javaTool(t, "", "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", b.Kafka, "--input-topic", in, "--input-partition", "0", "--output-topic", out,
		"--max-messages", strconv.Itoa(n), "--consumer-group", topicName("copier"), "--transaction-size", "50", "--transactional-id", topicName("copy-id"), "--enable-random-aborts", "--group-mode")
	cl := kgoClient(t, b.Kafka, kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	for i, r := range franzPoll(t, cl, n) {
		if string(r.Value) != strconv.Itoa(i) {
			t.Fatalf("record %d of the copy is %q", i, r.Value)
		}
	}
}

// A Kafka Streams application with exactly_once_v2, a repartition topic and a
// state store counts records while the broker is killed. Every count from 1 to
// the last comes out exactly once, in order.
func TestStreamsCountsExactlyOnceUnderKills(t *testing.T) {
	jars := kafkaJars(t)
	b := Start(t)
	b.NeedsOwnProcess()
	in, out := topicName("sin"), topicName("sout")
	franz{}.CreateTopic(t, b.Kafka, in, 2)
	franz{}.CreateTopic(t, b.Kafka, out, 1)

	ctx, cancel := context.WithCancel(context.Background())
	app := exec.CommandContext(ctx, "java", "-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars,
		filepath.Join(repoRoot(), "e2e", "java", "StreamsCounter.java"), b.Kafka, topicName("counter"), in, out, t.TempDir())
	app.WaitDelay = 5 * time.Second
	stdout, err := app.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); app.Wait() })
	running := make(chan bool, 1)
	go func() { // ends when the application closes its output
		for s := bufio.NewScanner(stdout); s.Scan(); {
			if strings.Contains(s.Text(), "state RUNNING") {
				select {
				case running <- true:
				default:
				}
			}
		}
	}()
	select {
	case <-running:
	case <-time.After(jvmLimit):
		t.Fatal("the application did not start")
	}
	const rounds, perRound = 6, 500
	for range rounds {
		numbers(t, b.Kafka, in, 2, perRound)
		b.Kill()
		b.Restart()
	}
	cl := kgoClient(t, b.Kafka, kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	deadline, stop := context.WithTimeout(context.Background(), jvmLimit)
	defer stop()
	last := map[string]int{}
	for n := 0; n < rounds*perRound; {
		fs := cl.PollFetches(deadline)
		if deadline.Err() != nil {
			t.Fatalf("%d of %d counts after %s", n, rounds*perRound, jvmLimit)
		}
		fs.EachRecord(func(r *kgo.Record) {
			count, err := strconv.Atoi(string(r.Value))
			if err != nil || count != last[string(r.Key)]+1 {
				t.Fatalf("digit %s: count %s follows %d", r.Key, r.Value, last[string(r.Key)])
			}
			last[string(r.Key)] = count
			n++
		})
	}
	for d, n := range last {
		if n != rounds*perRound/10 {
			t.Errorf("digit %s was counted %d times, want %d", d, n, rounds*perRound/10)
		}
	}
}

// VerifiableProducer and VerifiableConsumer are Kafka's system-test clients.
func TestVerifiableClients(t *testing.T) {
	kafkaJars(t)
	b := Start(t)
	topic := topicName("verifiable")
	franz{}.CreateTopic(t, b.Kafka, topic, 3)
	sent := javaTool(t, "", "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", b.Kafka, "--topic", topic, "--max-messages", "1000", "--acks", "-1")
	if n := strings.Count(sent, `"name":"producer_send_success"`); n != 1000 {
		t.Fatalf("%d of 1000 records were acknowledged:\n%s", n, tail(sent, 2000))
	}
	got := javaTool(t, "", "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", b.Kafka, "--topic", topic, "--group-id", topicName("gv"), "--max-messages", "1000", "--reset-policy", "earliest")
	total := 0
	for line := range strings.Lines(got) {
		var e struct {
			Name  string
			Count int
		}
		if json.Unmarshal([]byte(line), &e) == nil && e.Name == "records_consumed" {
			total += e.Count
		}
	}
	if total < 1000 {
		t.Fatalf("the consumer saw %d of 1000 records:\n%s", total, tail(got, 2000))
	}
}
