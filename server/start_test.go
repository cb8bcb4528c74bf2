package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/admin"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/vfs"
)

// slowDisk holds back whoever opens a file of the journal until it is let go.
type slowDisk struct {
	vfs.FS
	reached chan struct{} // closed when somebody waits
	release chan struct{}
}

func newSlowDisk() *slowDisk {
	return &slowDisk{FS: vfs.NewMemory(), reached: make(chan struct{}), release: make(chan struct{})}
}

func (d *slowDisk) ReadDir(name string) ([]vfs.Info, error) {
	if name == "journal" {
		select {
		case <-d.release:
		case <-d.reached:
			<-d.release
		default:
			close(d.reached)
			<-d.release
		}
	}
	return d.FS.ReadDir(name)
}

// startSlowly starts a broker that is held in its recovery, and returns a
// function that waits for the start's end.
func startSlowly(t *testing.T, o Options) (b *Broker, finish func() error) {
	t.Helper()
	disk := newSlowDisk()
	o.FS = disk
	b = New(o)
	started := make(chan error, 1)
	go func() { started <- b.Start(t.Context()) }()
	<-disk.reached
	return b, func() error {
		close(disk.release)
		err := <-started
		t.Cleanup(func() { b.Close(context.Background()) })
		return err
	}
}

// A client that connects while the broker recovers is not refused: it waits and
// is answered. Health says meanwhile what is going on.
func TestClientsWaitWhileTheBrokerRecovers(t *testing.T) {
	b, finish := startSlowly(t, Options{Config: load(t)})
	client, err := net.Dial("tcp", b.KafkaAddr("PLAINTEXT").String())
	if err != nil {
		t.Fatalf("dial during recovery: %v", err)
	}
	defer client.Close()
	request := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 7)
	if _, err := client.Write(request); err != nil {
		t.Fatal(err)
	}

	if code, body := get(t, b, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, body)
	}
	code, body := get(t, b, "/readyz")
	var health admin.Health
	if err := json.Unmarshal([]byte(body), &health); err != nil || code != http.StatusServiceUnavailable ||
		health.Status != "starting" || health.Reason != "recovering the data directory" {
		t.Errorf("/readyz: %d %s (%v)", code, body, err)
	}
	if code, _ := get(t, b, "/metrics"); code != http.StatusOK {
		t.Errorf("/metrics: %d", code)
	}
	if wrong := new(NotReadyError); !errors.As(b.Ready(), &wrong) {
		t.Errorf("ready: %v", b.Ready())
	}

	if err := finish(); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 8)
	client.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(client, answer); err != nil || answer[7] != 7 {
		t.Errorf("answer after recovery: %x, %v", answer, err)
	}
	if code, body := get(t, b, "/readyz"); code != http.StatusOK || !strings.Contains(body, `"ready"`) {
		t.Errorf("/readyz: %d %s", code, body)
	}
}

// A journal that takes long is counted for those who wait.
func TestHealthTellsHowFarARecoveryIs(t *testing.T) {
	b := New(Options{Config: load(t)})
	defer b.Close(context.Background())
	b.health.enter(statusStarting, "recovering the data directory")
	b.storageEvents().Recovery(storage.RecoveryProgress{JournalBytes: 8 << 20, JournalTotal: 16 << 20, Entries: 3})
	text, err := json.Marshal(b.healthForAdmin())
	if want := `{"status":"starting","reason":"recovering the data directory","progress":{"journal_bytes":"8388608","journal_total":"16777216","entries":"3"}}`; err != nil || string(text) != want {
		t.Errorf("%s, want %s (%v)", text, want, err)
	}
	b.health.enter(statusReady, "")
	if h := b.healthForAdmin(); h.Progress != nil || !h.Ready {
		t.Errorf("when ready: %+v", h)
	}
}

// A start is never silent for long.
func TestASlowStartReportsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logBuffer)
		_, finish := startSlowly(t, Options{
			Config: load(t, "perigee.http.listen=off"), Log: zerolog.New(log), Kafka: transport.ListenMemory("memory:9092"),
		})
		time.Sleep(11 * time.Second)
		if err := finish(); err != nil {
			t.Fatal(err)
		}
		reports := 0
		for _, m := range log.messages(t) {
			if m == "recovering the data directory" {
				reports++
			}
		}
		if reports != 2 {
			t.Errorf("%d reports in 11 seconds: %q", reports, log.messages(t))
		}
	})
}

func TestAPortInUseIsReportedBeforeRecovery(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	disk := newSlowDisk() // never let go: a start that looks at the journal hangs
	b := New(Options{Config: load(t, "listeners=PLAINTEXT://"+taken.Addr().String()), FS: disk})
	if inUse := new(transport.InUseError); !errors.As(b.Start(t.Context()), &inUse) || inUse.Listener != "PLAINTEXT" {
		t.Errorf("%+v", inUse)
	}
	b.Close(context.Background())
}
