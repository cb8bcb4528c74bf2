package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// smallDisk mounts a file system of so many bytes for the test.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", size), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill produces until the broker refuses, and returns how many records it took
// and the code of the refusal.
func fill(w *raw, topic string) (took int, code int16) {
	w.t.Helper()
	value := string(bytes.Repeat([]byte("x"), 100<<10))
	for took < 10_000 {
		req := w.produceRequest(9, "", topic, 0, records(nobody, 0, value))
		if _, code := produced(w.do(req)); code != 0 {
			return took, code
		}
		took++
	}
	w.t.Fatal("a small disk takes everything")
	return 0, 0
}

// A disk that fills up: producers are refused, with an error they retry, while
// there is still room; everything else goes on, above all what frees space; and
// when there is space again produce goes on, without a restart.
func TestDiskFull(t *testing.T) {
	const size, reserve = 96 << 20, 24 << 20
	disk := smallDisk(t, size)
	b := StartIn(t, filepath.Join(disk, "data"), "--set", fmt.Sprint("perigee.disk.reserve.bytes=", reserve),
		"--set", "perigee.journal.file.bytes=1MiB", "--set", "perigee.journal.bytes=8MiB", "--set", "log.segment.bytes=1MiB",
		"--set", "log.segment.delete.delay.ms=0", "--set", "perigee.log.level=debug")
	b.NeedsOwnProcess()
	adm := kadmClient(t, b.Kafka)
	for _, topic := range []string{"a", "b"} {
		if _, err := adm.CreateTopic(limited(t), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	w := rawConn(t, b.Kafka)

	took, code := fill(w, "a")
	if err := kerr.ErrorForCode(code); err != kerr.KafkaStorageError || !kerr.IsRetriable(err) {
		t.Fatalf("refused with %v after %d records", err, took)
	}
	if free := freeBytes(t, disk); free < reserve/2 {
		t.Errorf("refused with %d bytes free, %d are to be kept", free, reserve)
	}
	awaitText(t, b, "storage full")
	if full := metric(t, b, "perigee_storage_full"); full != "1" {
		t.Errorf("perigee_storage_full is %q", full)
	}

	// Reading, and committing what was read, go on.
	if got := (franz{}).From(t, b.Kafka, "a", 0, 0, took); len(got) != took {
		t.Errorf("%d of %d records are read", len(got), took)
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("a", 0, int64(took), -1)
	if resp, err := adm.CommitOffsets(limited(t), "readers", offsets); err != nil || resp.Error() != nil {
		t.Errorf("commit: %v, %v", err, resp.Error())
	}

	// Deleting records frees space, without a restart.
	before := kadm.Offsets{}
	before.AddOffset("a", 0, int64(took), -1)
	if resp, err := adm.DeleteRecords(limited(t), before); err != nil || resp.Error() != nil {
		t.Fatalf("delete records: %v, %v", err, resp.Error())
	}
	acceptsAgain(t, w, "a", b)
	awaitText(t, b, "storage has room again")

	// So does deleting a topic, also when somebody else has taken most of the reserve.
	if _, code := fill(w, "b"); code != kerr.KafkaStorageError.Code {
		t.Fatalf("refused with %v", kerr.ErrorForCode(code))
	}
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, freeBytes(t, disk)-reserve/8), 0o644); err != nil {
		t.Fatal(err)
	}
	if resp, err := adm.DeleteTopics(limited(t), "b"); err != nil || resp.Error() != nil {
		t.Fatalf("delete topic: %v, %v", err, resp.Error())
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	acceptsAgain(t, w, "a", b)

	// And what was acknowledged all along is there after a crash.
	b.Kill()
	b.Restart()
	resp, err := kadmClient(t, b.Kafka).ListEndOffsets(limited(t), "a")
	if end, _ := resp.Lookup("a", 0); err != nil || end.Offset < int64(took)+2 {
		t.Errorf("the log ends at %d after the crash, %v", end.Offset, err)
	}
}

// acceptsAgain waits until a record is taken.
func acceptsAgain(t *testing.T, w *raw, topic string, b *Broker) {
	t.Helper()
	var code int16
	eventually(t, 20*time.Second, func() string {
		return fmt.Sprintf("still refused with %v: %s", kerr.ErrorForCode(code), tail(b.Output(), 2000))
	}, func() bool {
		_, code = produced(w.do(w.produceRequest(9, "", topic, 0, records(nobody, 0, "x"))))
		return code == 0
	})
}

// A disk that is full from the start: the broker starts and says so.
func TestStartOnAFullDisk(t *testing.T) {
	disk := smallDisk(t, 48<<20)
	b := StartIn(t, filepath.Join(disk, "data"), "--set", "perigee.disk.reserve.bytes=8MiB", "--set", "perigee.journal.file.bytes=1MiB")
	b.NeedsOwnProcess()
	franz{}.CreateTopic(t, b.Kafka, "a", 1)
	b.Stop()
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, freeBytes(t, disk)-4<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Restart()
	w := rawConn(t, b.Kafka)
	if _, code := produced(w.do(w.produceRequest(9, "", "a", 0, records(nobody, 0, "x")))); code != kerr.KafkaStorageError.Code {
		t.Errorf("produce on a full disk: %v", kerr.ErrorForCode(code))
	}
	resp := w.do(kmsg.NewPtrMetadataRequest()).(*kmsg.MetadataResponse)
	if len(resp.Topics) == 0 {
		t.Error("no topics")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	acceptsAgain(t, w, "a", b)
	if strings.Contains(b.Output(), "BUG") {
		t.Error(b.Output())
	}
}
