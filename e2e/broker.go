package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perigeemq/perigee/e2e/freeport"
)

const (
	startLimit = 30 * time.Second // recovery of a large journal on a loaded machine included
	stopLimit  = 30 * time.Second
)

// Broker is one perigee process and its data directory.
type Broker struct {
	Dir    string // data directory, kept over restarts
	Kafka  string // host:port of each listener, kept over restarts
	MoonMQ string
	HTTP   string

	t        testing.TB
	args     []string
	process  *process // nil while stopped
	external bool
}

type process struct {
	cmd    *exec.Cmd
	output *lockedBuffer
	exited chan struct{} // closed when Wait has returned
	err    error         // of Wait, set before exited closes
}

// Start builds the binary (once per test process), starts it on an empty
// directory and returns when it says that it is ready. args are
// added to `perigee serve`. The process is killed when the test ends.
func Start(t testing.TB, args ...string) *Broker {
	t.Helper()
	return StartIn(t, filepath.Join(t.TempDir(), "data"), args...)
}

// StartIn is Start on a directory of the caller's.
func StartIn(t testing.TB, dir string, args ...string) *Broker {
	t.Helper()
	if addr := os.Getenv("PERIGEE_E2E_EXTERNAL"); addr != "" {
		return &Broker{t: t, Kafka: addr, external: true}
	}
	b := &Broker{t: t, Dir: dir, Kafka: freeport.Addr(t), MoonMQ: freeport.Addr(t), HTTP: freeport.Addr(t), args: args}
	t.Cleanup(b.cleanup)
	b.Restart()
	return b
}

// NeedsOwnProcess skips the test when the broker is not ours to kill.
func (b *Broker) NeedsOwnProcess() {
	b.t.Helper()
	if b.external {
		b.t.Skip("the broker is external: it cannot be killed or reconfigured by a test")
	}
}

// Restart starts the process again on the same directory and ports and waits
// until it serves.
func (b *Broker) Restart() {
	b.t.Helper()
	if err := b.TryRestart(); err != nil {
		b.t.Fatal(err)
	}
}

// TryRestart is Restart with the failure returned.
func (b *Broker) TryRestart() error {
	if err := b.Spawn(); err != nil {
		return err
	}
	p := b.process
	deadline := time.Now().Add(startLimit)
	for time.Now().Before(deadline) {
		if strings.Contains(p.output.String(), `"message":"ready"`) {
			return nil
		}
		select {
		case <-p.exited:
			b.process = nil
			return fmt.Errorf("start broker: it exited (%v) and said:\n%s", p.err, p.output)
		case <-time.After(2 * time.Millisecond):
		}
	}
	return fmt.Errorf("start broker: not ready within %s; it said:\n%s", startLimit, p.output)
}

// Spawn starts the process and does not wait until it serves.
func (b *Broker) Spawn() error {
	if b.process != nil {
		return fmt.Errorf("start broker: it still runs")
	}
	binary, err := Binary()
	if err != nil {
		return err
	}
	args := append([]string{"serve", "--data-dir", b.Dir, "--kafka-listen", b.Kafka,
		"--moonmq-listen", b.MoonMQ, "--http-listen", b.HTTP}, b.args...)
	p := &process{cmd: exec.Command(binary, args...), output: &lockedBuffer{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start broker: %w", err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	b.process = p
	return nil
}

// Kill sends SIGKILL and waits for the process to be gone.
func (b *Broker) Kill() {
	if p := b.process; p != nil {
		p.cmd.Process.Kill()
		<-p.exited
		b.process = nil
	}
}

// Stop sends SIGTERM and fails the test unless the broker exits 0 in time.
func (b *Broker) Stop() {
	b.t.Helper()
	p := b.process
	if p == nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		b.process = nil
		if p.err != nil {
			b.t.Fatalf("the broker ended with %v after SIGTERM and said:\n%s", p.err, p.output)
		}
	case <-time.After(stopLimit):
		b.t.Fatalf("the broker still runs %s after SIGTERM and said:\n%s", stopLimit, p.output)
	}
}

// Signal sends any other signal.
func (b *Broker) Signal(s os.Signal) { b.process.cmd.Process.Signal(s) }

// Output is everything the current process printed so far.
func (b *Broker) Output() string {
	if b.process == nil {
		return ""
	}
	return b.process.output.String()
}

// Pid is the process id of the running broker.
func (b *Broker) Pid() int { return b.process.cmd.Process.Pid }

// CLI runs the built binary as a command line tool against this broker and
// returns its standard output; a non-zero exit fails the test.
func (b *Broker) CLI(stdin string, args ...string) string {
	b.t.Helper()
	out, err := b.TryCLI(stdin, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TryCLI is CLI with the failure returned.
func (b *Broker) TryCLI(stdin string, args ...string) (string, error) {
	binary, err := Binary()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "PERIGEE_BROKERS="+b.Kafka)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("perigee %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

func (b *Broker) cleanup() {
	if b.t.Failed() && b.process != nil {
		b.t.Logf("broker output:\n%s", tail(b.Output(), 8<<10))
	}
	b.Kill()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

var build struct {
	once   sync.Once
	binary string
	err    error
}

// Binary is the path of the built perigee. PERIGEE_E2E_BINARY names one that
// exists already, for a race-enabled build for example.
func Binary() (string, error) {
	build.once.Do(func() {
		if build.binary = os.Getenv("PERIGEE_E2E_BINARY"); build.binary != "" {
			return
		}
		dir, err := os.MkdirTemp("", "perigee-e2e-")
		if err != nil {
			build.err = err
			return
		}
		build.binary = filepath.Join(dir, "perigee")
		cmd := exec.Command("go", "build", "-o", build.binary, "./cmd/perigee")
		cmd.Dir = repoRoot()
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("build perigee: %w\n%s", err, out)
		}
	})
	return build.binary, build.err
}

func repoRoot() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(here))
}

// RemoveBinary deletes what Binary built; TestMain calls it.
func RemoveBinary() {
	if build.binary != "" && os.Getenv("PERIGEE_E2E_BINARY") == "" {
		os.RemoveAll(filepath.Dir(build.binary))
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
