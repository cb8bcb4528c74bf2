package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/server"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/vfs"
)

// examined runs the doctor and returns its findings by check.
func examined(t *testing.T, code int, args ...string) map[string]finding {
	t.Helper()
	r := (&shell{t, ""}).try("", append([]string{"doctor", "--format", "json"}, args...)...)
	if r.code != code {
		t.Fatalf("exit code %d, want %d: %s%s", r.code, code, r.out, r.err)
	}
	var findings []finding
	if err := json.Unmarshal([]byte(r.out), &findings); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	byCheck := map[string]finding{}
	for _, f := range findings {
		if worse, ok := byCheck[f.Check]; !ok || worse.Status == fine {
			byCheck[f.Check] = f
		}
	}
	return byCheck
}

func expectFinding(t *testing.T, found map[string]finding, check, status, says string) {
	t.Helper()
	if f := found[check]; f.Status != status || !strings.Contains(f.Says, says) {
		t.Errorf("%s: %s %q, want %s %q", check, f.Status, f.Says, status, says)
	}
}

func TestDoctorWithoutABroker(t *testing.T) {
	dir := t.TempDir()
	off := []string{"--kafka-listen", "127.0.0.1:0", "--moonmq-listen", "off", "--http-listen", "off"}
	found := examined(t, exitDone, append(off, "--data-dir", filepath.Join(dir, "a", "b"))...)
	expectFinding(t, found, "data directory", fine, "will be made")
	for _, check := range []string{"settings", "sync", "disk", "open files", "clock", "listener PLAINTEXT", "listener MOONMQ"} {
		if _, ok := found[check]; !ok {
			t.Errorf("nothing about %s", check)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	found = examined(t, exitFailed, "--data-dir", dir, "--kafka-listen", taken.Addr().String(), "--moonmq-listen", "off", "--http-listen", "off",
		"--set", "advertised.listeners=PLAINTEXT://no-such-host.invalid:9092", "--set", "perigee.disk.reserve.bytes=1EiB")
	expectFinding(t, found, "data directory", fail, "thesis.tex")
	expectFinding(t, found, "listener PLAINTEXT", fail, "in use by")
	expectFinding(t, found, "advertised PLAINTEXT", warn, "no-such-host.invalid")

	(&shell{t, ""}).fail(exitUsage, "unknown setting", "doctor", "--set", "no.such=1")
}

func TestDoctorAndSettingsOfARunningBroker(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s, stop := ownBroker(t, dir)
	args := []string{"--data-dir", dir, "--kafka-listen", s.brokers, "--moonmq-listen", "off", "--http-listen", "off"}
	found := examined(t, exitDone, args...)
	expectFinding(t, found, "data directory", fine, "is used by the broker with pid")
	expectFinding(t, found, "client of PLAINTEXT", fine, "is told to connect to "+s.brokers+", and can")

	s.run("cluster", "config", "set", "num.partitions=4", "perigee.log.level=warn")
	equal(t, s.run("cluster", "config", "list", "num.partitions"), lines(
		"KEY             VALUE  SOURCE", "num.partitions  4      DYNAMIC_DEFAULT_BROKER_CONFIG"))
	s.run("cluster", "config", "set", "--unset", "num.partitions")
	equal(t, s.run("cluster", "config", "list", "num.partitions"), lines(
		"KEY             VALUE  SOURCE", "num.partitions  1      DEFAULT_CONFIG"))
	s.fail(exitFailed, "Cannot update these configs dynamically", "cluster", "config", "set", "node.id=4")
	s.fail(exitUsage, "NAME=VALUE", "cluster", "config", "set", "node.id")
	s.fail(exitUsage, "nothing to change", "cluster", "config", "set")
	stop()
	found = examined(t, exitDone, args...)
	expectFinding(t, found, "data directory", fine, "a stopped broker")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	expectFinding(t, examined(t, exitDone, args...), "data directory", warn, "can be read by every user")
}

// --dev is weaker than everything else that is given, and says what it costs.
func TestDevSettings(t *testing.T) {
	s := &shell{t, ""}
	out := s.run("config", "print", "--given", "--dev", "--set", "log.segment.bytes=2MiB")
	for _, want := range []string{"perigee.durability +os +--dev", "log.segment.bytes +2097152 +--set"} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if out := s.run("config", "print", "--given"); strings.Contains(out, "--dev") {
		t.Error(out)
	}
}

// Every series the dashboard draws is one the broker has.
func TestTheDashboardDrawsWhatThereIs(t *testing.T) {
	loaded, err := config.Load(config.Sources{Set: []string{"listeners=127.0.0.1:0", "moonmq.listen=off", "perigee.http.listen=127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	b := server.New(server.Options{Config: loaded, FS: vfs.NewMemory()})
	defer b.Close(t.Context())
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := &shell{t, b.KafkaAddr("PLAINTEXT").String()}
	client.input("x\ny\n", "produce", "orders")
	client.run("consume", "orders", "-e", "-g", "readers")
	resp, err := http.Get("http://" + b.HTTPAddr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	exported, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte((&shell{t, ""}).run("generate", "grafana-dashboard")), &board); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\b(perigee|process|go)_[a-z_]+`)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			names := name.FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: no series in %s", p.Title, target.Expr)
			}
			for _, n := range names {
				if !strings.Contains(string(exported), "\n"+n) {
					t.Errorf("%s: the broker has no %s", p.Title, n)
				}
			}
		}
	}
}

// A file that cannot be read is as wrong as one with mistakes in it.
func TestSettingsThatCannotBeRead(t *testing.T) {
	for _, verb := range []string{"serve", "doctor"} {
		(&shell{t, ""}).fail(exitUsage, "no-such.yaml", verb, "--config", "no-such.yaml")
	}
	(&shell{t, ""}).fail(exitUsage, "no-such.properties", "config", "check", "--kafka-properties", "no-such.properties")
}

func TestGeneratedFiles(t *testing.T) {
	s := &shell{t, ""}
	if out := s.run("generate", "prometheus-config"); !strings.Contains(out, "127.0.0.1:9404") {
		t.Error(out)
	}
	unit := s.run("generate", "systemd")
	if !strings.Contains(unit, "Type=notify") || !strings.Contains(unit, " serve --data-dir /var/lib/perigee") {
		t.Error(unit)
	}
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit is not verified")
	}
	file := filepath.Join(t.TempDir(), "perigee.service")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(verify, "verify", "--man=no", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
