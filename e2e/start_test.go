package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusedStart runs serve on a directory, expects it to exit with 1 and returns
// what it said.
func refusedStart(t *testing.T, dir string, args ...string) string {
	t.Helper()
	binary, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"serve", "--data-dir", dir, "--kafka-listen", "127.0.0.1:0", "--moonmq-listen", "off", "--http-listen", "off"}, args...)
	cmd := exec.Command(binary, args...)
	var said lockedBuffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(stopLimit, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if exit := new(exec.ExitError); !errors.As(cmd.Wait(), &exit) || exit.ExitCode() != 1 {
		t.Fatalf("serve %s ended with %v, want exit 1; it said:\n%s", strings.Join(args, " "), exit, said.String())
	}
	return said.String()
}

func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("missing %q in:\n%s", w, got)
		}
	}
}

// awaitText waits until the broker has said something: its output comes through
// a pipe, behind its answers.
func awaitText(t *testing.T, b *Broker, want string) {
	t.Helper()
	eventually(t, 10*time.Second, func() string { return fmt.Sprintf("missing %q in:\n%s", want, b.Output()) },
		func() bool { return strings.Contains(b.Output(), want) })
}

// A port in use is named with its listener and who has it, before anything
// happens to the data.
func TestPortInUse(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	for _, c := range []struct{ flag, listener, address string }{
		{"--kafka-listen", "PLAINTEXT", b.Kafka}, {"--moonmq-listen", "MOONMQ", b.MoonMQ}, {"--http-listen", "HTTP", b.HTTP},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		said := refusedStart(t, dir, c.flag, c.address)
		wantText(t, said, fmt.Sprintf("listener %s: %s is in use by perigee, pid %d", c.listener, c.address, b.Pid()))
		if strings.Contains(said, "goroutine") {
			t.Errorf("a stack: %s", said)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the data directory was made all the same: %v", err)
		}
	}
}

func TestDataDirectoryInUse(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	wantText(t, refusedStart(t, b.Dir), fmt.Sprintf("data directory %s is in use by the process with pid %d", b.Dir, b.Pid()))
	stillServes(t, b)
}

// A directory that is not ours, or of a later version, is refused and left as
// it is.
func TestForeignDataDirectories(t *testing.T) {
	t.Run("somebody else's", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		wantText(t, refusedStart(t, dir), dir, "thesis.tex", "not a data directory of this broker")
	})
	t.Run("a later version's", func(t *testing.T) {
		b := Start(t)
		b.NeedsOwnProcess()
		b.Stop()
		identity := filepath.Join(b.Dir, "identity.json")
		text, err := os.ReadFile(identity)
		if err != nil {
			t.Fatal(err)
		}
		later := bytes.Replace(text, []byte(`"format": 1`), []byte(`"format": 99`), 1)
		if bytes.Equal(later, text) {
			t.Fatalf("no format version in %s", text)
		}
		if err := os.WriteFile(identity, later, 0o644); err != nil {
			t.Fatal(err)
		}
		wantText(t, refusedStart(t, b.Dir), b.Dir, "99")
		if now, err := os.ReadFile(identity); err != nil || !bytes.Equal(now, later) {
			t.Errorf("the refused directory was changed: %s, %v", now, err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		wantText(t, refusedStart(t, file), "open data directory "+file, "not a directory")
	})
}

// The log tells a start after a stop from one after a crash.
func TestCleanAndUncleanStarts(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	topic := topicName("clean")
	franz{}.CreateTopic(t, b.Kafka, topic, 1)
	b.Stop()
	b.Restart()
	stillServes(t, b)
	wantText(t, b.Output(), `"clean":true`, `"message":"ready"`)
	if strings.Contains(b.Output(), "unclean") {
		t.Errorf("after a stop: %s", b.Output())
	}
	franz{}.CreateTopic(t, b.Kafka, topic+"-more", 1)
	b.Kill()
	b.Restart()
	stillServes(t, b)
	wantText(t, b.Output(), `"clean":false`, "recovered after an unclean stop")
}

// lastJournal is the newest journal file with entries, and its text.
func lastJournal(t *testing.T, b *Broker) (path string, text []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.Dir, "journal", "*.journal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no journal: %v", err)
	}
	for i := len(files) - 1; i >= 0; i-- {
		if text, err = os.ReadFile(files[i]); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("entry-")) {
			return files[i], text
		}
	}
	t.Fatal("no journal file holds the records")
	return "", nil
}

// written is a broker that was killed after it acknowledged ten records, entry-0
// to entry-9, one by one.
func written(t *testing.T) (b *Broker, topic string) {
	t.Helper()
	b = Start(t)
	b.NeedsOwnProcess()
	topic = topicName("journal")
	franz{}.CreateTopic(t, b.Kafka, topic, 1)
	cl := kgoClient(t, b.Kafka)
	for i := range 10 {
		if err := cl.ProduceSync(limited(t), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "entry-%d", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b.Kill()
	return b, topic
}

// spoilAt turns the bits of one byte of a file.
func spoilAt(t *testing.T, path string, text []byte, at int) {
	t.Helper()
	if at < 0 {
		t.Fatal("the bytes to spoil are not in the journal")
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{text[at] ^ 0xff}, int64(at)); err != nil {
		t.Fatal(err)
	}
}

// What a crash tore at the journal's end was never acknowledged: it is cut off,
// and the log says where.
func TestATornTailIsAWarning(t *testing.T) {
	b, topic := written(t)
	path, text := lastJournal(t, b)
	spoilAt(t, path, text, bytes.LastIndex(text, []byte("entry-9")))
	b.Restart()
	if got := (franz{}).From(t, b.Kafka, topic, 0, 0, 9); string(got[8].Value) != "entry-8" {
		t.Errorf("the last record is %s", got[8].Value)
	}
	awaitText(t, b, "torn tail cut off")
	wantText(t, b.Output(), `"level":"warn"`, filepath.Base(path), "byte ")
}

// Damage in front of what was acknowledged later is not a crash's: the broker
// refuses to start, says where and how to go on, and goes on when told to.
func TestACorruptJournalIsRefused(t *testing.T) {
	b, topic := written(t)
	path, text := lastJournal(t, b)
	spoilAt(t, path, text, bytes.LastIndex(text, []byte("entry-4")))
	said := refusedStart(t, b.Dir)
	wantText(t, said, filepath.Base(path), "--repair", b.Dir)

	b.args = append(b.args, "--repair")
	b.Restart()
	got := franz{}.From(t, b.Kafka, topic, 0, 0, 4)
	if string(got[3].Value) != "entry-3" {
		t.Errorf("record 3 is %s", got[3].Value)
	}
	awaitText(t, b, "journal repaired")
	wantText(t, b.Output(), filepath.Base(path))
}

// A stop under load loses nothing that was acknowledged and exits with 0.
func TestSIGTERMUnderLoad(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	const partitions = 3
	topic := topicName("term")
	franz{}.CreateTopic(t, b.Kafka, topic, partitions)
	var mu sync.Mutex
	got := map[uint64]acked{}
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for w := range uint64(4) {
		wg.Go(func() {
			cl := kgoClient(t, b.Kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(256))
			for n := uint64(0); ctx.Err() == nil; n++ {
				value := w<<40 | n
				r := &kgo.Record{Topic: topic, Partition: int32((w + n) % partitions), Value: binary.BigEndian.AppendUint64(nil, value)}
				cl.Produce(ctx, r, func(r *kgo.Record, err error) {
					if err == nil {
						mu.Lock()
						got[value] = acked{r.Partition, r.Offset}
						mu.Unlock()
					}
				})
			}
			cl.Close() // nothing is tried again after the restart
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	eventually(t, 30*time.Second, func() string { return "nothing is acknowledged" }, func() bool { return count() > 2000 })
	b.Stop()
	stop()
	wg.Wait()
	b.Restart()
	stillServes(t, b)
	wantText(t, b.Output(), `"clean":true`)
	checkAcked(t, b.Kafka, topic, partitions, got)
	t.Logf("%d records acknowledged", len(got))
}

// A second SIGTERM, when it is not the first one again, does not wait for what that waits
// for.
func TestASecondSIGTERMEndsAtOnce(t *testing.T) {
	b := Start(t, "--set", "perigee.debug.sync.delay.ms=5000")
	b.NeedsOwnProcess()
	w := rawConn(t, b.Kafka)
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "t", 1, 1
	create.Topics = append(create.Topics, topic)
	w.send(create) // its sync takes longer than anybody waits
	w.again().do(kmsg.NewPtrApiVersionsRequest())
	p := b.process
	b.Signal(syscall.SIGTERM)
	eventually(t, stopLimit, func() string { return "no stop: " + b.Output() }, func() bool { return strings.Contains(b.Output(), "stopping") })
	eventually(t, stopLimit, func() string { return "the broker still runs after the second SIGTERM" }, func() bool {
		b.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
			return true
		default:
			return false
		}
	})
	exit, ok := errors.AsType[*exec.ExitError](p.err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v", p.err)
	}
	b.process = nil
}

// SIGUSR1 shows what the broker is doing and changes nothing; SIGHUP reads the
// settings again and opens the log file anew.
func TestOtherSignals(t *testing.T) {
	dir := t.TempDir()
	file, log := filepath.Join(dir, "perigee.yaml"), filepath.Join(dir, "perigee.log")
	if err := os.WriteFile(file, []byte("num.partitions: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := Start(t, "--config", file)
	b.NeedsOwnProcess()
	b.Stop()
	b.args = append(b.args, "--log-file", log)
	if err := b.Spawn(); err != nil {
		t.Fatal(err)
	}
	eventually(t, startLimit, func() string { return "not ready" }, func() bool {
		text, err := os.ReadFile(log)
		return err == nil && bytes.Contains(text, []byte(`"message":"ready"`))
	})
	b.Signal(syscall.SIGUSR1)
	eventually(t, 10*time.Second, func() string { return "no stacks: " + b.Output() }, func() bool { return strings.Contains(b.Output(), "goroutine ") })

	if err := os.WriteFile(file, []byte("num.partitions: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	b.Signal(syscall.SIGHUP)
	eventually(t, 10*time.Second, func() string { return "no line in the new log file" }, func() bool {
		text, err := os.ReadFile(log)
		return err == nil && bytes.Contains(text, []byte("settings reloaded"))
	})
	topic := topicName("reloaded")
	franz{}.CreateTopic(t, b.Kafka, topic, -1)
	details, err := kadmClient(t, b.Kafka).ListTopics(limited(t), topic)
	if err != nil || len(details[topic].Partitions) != 7 {
		t.Errorf("%d partitions after the reload, %v", len(details[topic].Partitions), err)
	}
}

// Clients that connect while the broker restarts are not refused for longer
// than a process needs to begin: the ports are taken before the recovery.
func TestThePortIsTakenBeforeTheRecovery(t *testing.T) {
	b := Start(t, "--set", "perigee.debug.sync.delay.ms=500") // every sync of a start takes long
	b.NeedsOwnProcess()
	stillServes(t, b)
	b.Kill()
	if err := b.Spawn(); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	eventually(t, startLimit, func() string { return "no port: " + b.Output() }, func() (ok bool) {
		var err error
		conn, err = net.Dial("tcp", b.Kafka)
		return err == nil
	})
	defer conn.Close()
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(startLimit))
	if _, err := conn.Read(make([]byte, 8)); err != nil {
		t.Errorf("not answered after the recovery: %v", err)
	}
}

// A signal that arrives twice, as timeout(1) sends it, stops the broker in good order like
// one that arrives once.
func TestASignalThatRepeatsItselfIsOne(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	for range 5 {
		b.Signal(syscall.SIGTERM)
		b.Stop() // with another
		b.Restart()
	}
}
