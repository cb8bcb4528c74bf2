package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestMain(m *testing.M) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "PERIGEE_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// shell runs command lines in this process, as a user would, against one broker.
type shell struct {
	t       *testing.T
	brokers string
}

// result is what a command line left behind.
type result struct {
	out, err string
	code     int
}

// newShell starts an independent broker in memory with the given topics, one
// partition each.
func newShell(t *testing.T, topics ...string) *shell {
	t.Helper()
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID("fake"), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})}
	if len(topics) > 0 {
		opts = append(opts, kfake.SeedTopics(1, topics...))
	}
	broker, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return &shell{t, broker.ListenAddrs()[0]}
}

func (s *shell) try(stdin string, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	var out, err bytes.Buffer
	if s.brokers != "" {
		args = append([]string{"--brokers", s.brokers}, args...)
	}
	code := run(ctx, args, strings.NewReader(stdin), &out, &err)
	if ctx.Err() != nil {
		s.t.Fatalf("perigee %s: still running after 30 s\nstdout: %s\nstderr: %s", strings.Join(args, " "), out.String(), err.String())
	}
	return result{out.String(), err.String(), code}
}

// input runs a command line that must succeed, and returns what it printed.
func (s *shell) input(stdin string, args ...string) string {
	s.t.Helper()
	r := s.try(stdin, args...)
	if r.code != exitDone || r.err != "" {
		s.t.Fatalf("perigee %s: exit code %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

func (s *shell) run(args ...string) string {
	s.t.Helper()
	return s.input("", args...)
}

// fail runs a command line that must end with the code and say the words.
func (s *shell) fail(code int, words string, args ...string) result {
	s.t.Helper()
	r := s.try("", args...)
	if r.code != code || !strings.Contains(r.err, words) {
		s.t.Fatalf("perigee %s: exit code %d, want %d; stderr wants %q:\n%s", strings.Join(args, " "), r.code, code, words, r.err)
	}
	return r
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("want -, got +:\n%s", d)
	}
}

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

// Exit code 2 is for command lines that cannot be meant. Nothing is contacted for them.
func TestWrongCommandLines(t *testing.T) {
	s := &shell{t, "127.0.0.1:1"}
	for _, tc := range []struct{ words, line string }{
		{`unknown command "topc" for "perigee", did you mean topic?`, "topc"},
		{`unknown command "lst" for "perigee topic", did you mean list?`, "topic lst"},
		{"unknown flag: --colour", "topic list --colour"},
		{"requires at least 1 arg(s)", "topic create"},
		{`unknown command "now"`, "cluster info now"},
		{"--format xml: want text or json", "--format xml cluster info"},
		{"-c retention.ms: want key=value", "topic create t -c retention.ms"},
		{"nothing to change", "topic alter t"},
		{"--before is needed", "topic trim t"},
		{"--before soon: want an offset", "topic trim t --before soon"},
		{"-X colour: unknown key; the keys are", "-X colour=red cluster info"},
		{"-X client.id: want key=value", "-X client.id cluster info"},
		{`-X security.protocol: "TELNET" is none of PLAINTEXT`, "-X security.protocol=telnet cluster info"},
		{`-X request.timeout.ms: "fast" is not a number`, "-X request.timeout.ms=fast cluster info"},
		{"unknown format token %q", "consume t -f %q"},
		{"-o sideways: want start, end", "consume t -o sideways"},
		{"-g and -p exclude each other", "consume t -g g -p 0"},
		{`-F "status": want FIELD OPERATOR TEXT`, "consume t -F status"},
		{`-F unknown field "colour"`, "consume t -F colour=red"},
		{"a topic is needed", "produce"},
		{"--acks 2: want 0, 1 or all", "produce t --acks 2"},
		{"-z brotli: want none", "produce t -z brotli"},
		{"--txn needs --acks all", "produce t --txn x --acks 1"},
		{"nothing between %k and %v", "produce t -f %k%v"},
		{"reading knows no braces but", "produce t -f %h{%k=%v;}_%v"},
		{"reading knows no braces but", "produce t -f %d{strftime[%F]}_%v"},
		{"%o{foo}: invalid output number layout", "consume t -f %o{foo}"},
		{"where to? One of", "group reset-offsets g -t t"},
		{"--to-earliest and --to-latest exclude each other", "group reset-offsets g -t t --to-earliest --to-latest"},
		{"-t TOPIC or --all-topics is needed", "group reset-offsets g --to-latest"},
		{"-t is needed", "group delete-offsets g"},
		{"want a transactional id, or all of", "txn abort"},
		{"want a transactional id, or all of", "txn abort x --topic t --partition 0 --start-offset 0"},
		{"-n must be above 0", "bench produce -n 0"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			s := &shell{t, s.brokers}
			r := s.fail(exitUsage, tc.words, strings.Fields(tc.line)...)
			if r.out != "" {
				t.Fatalf("stdout: %s", r.out)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	s := &shell{t, "127.0.0.1:1"}
	for _, line := range []string{"cluster info", "topic list", "consume t -e", "produce t"} {
		s.fail(exitFailed, "connect to 127.0.0.1:1: ", strings.Fields(line)...)
	}
}

func TestBrokersComeFromFlagThenOptionThenEnvironment(t *testing.T) {
	s := newShell(t)
	t.Setenv("PERIGEE_BROKERS", s.brokers)
	alone := &shell{t, ""}
	alone.run("cluster", "info")
	alone.fail(exitFailed, "127.0.0.1:1", "-X", "bootstrap.servers=127.0.0.1:1", "cluster", "info")
	alone.run("-X", "bootstrap.servers=127.0.0.1:1", "--brokers", s.brokers, "cluster", "info")
	t.Setenv("PERIGEE_SECURITY_PROTOCOL", "telnet")
	alone.fail(exitUsage, "PERIGEE_SECURITY_PROTOCOL", "cluster", "info")
}

func TestHelpVersionAndCompletion(t *testing.T) {
	s := &shell{t, ""}
	for _, tc := range []struct{ words, line string }{
		{"Available Commands:", ""},
		{"Available Commands:", "topic"},
		{"%k key", "consume --help"},
		{"perigee devel", "version"},
		{`"go": "go1.`, "version --format json"},
		{"\n  sasl.username  ", "-X list"},
		{"\n  sasl.username  ", "-X list produce"},
		{"bash completion", "completion bash"},
		{"#compdef perigee", "completion zsh"},
	} {
		if out := s.run(strings.Fields(tc.line)...); !strings.Contains(out, tc.words) {
			t.Errorf("perigee %s: no %q in\n%s", tc.line, tc.words, out)
		}
	}
}

// TAB knows the broker's topics and groups, and files only where they are meant.
func TestCompletion(t *testing.T) {
	s := newShell(t, "alpha", "beta")
	s.run("consume", "alpha", "-g", "readers", "-e")
	for _, tc := range []struct{ line, begun, want string }{
		{"topic describe", "", "alpha beta :4"},
		{"topic describe alpha", "", "beta :4"},
		{"topic describe", "b", "beta :4"},
		{"topic create", "", ":4"},
		{"produce", "", "alpha beta :4"},
		{"group describe", "", "readers :4"},
		{"group reset-offsets", "", "readers :4"},
		{"group reset-offsets readers -t", "", "alpha beta :4"},
		{"dlq peek", "a", "alpha :4"},
		{"produce alpha -z", "", "none gzip snappy lz4 zstd :4"},
		{"topic list --format", "", "text json :4"},
		{"consume alpha --format", "", "text json :4"},
		{"serve --config", "", ":0"},
		{"check --data-dir", "", ":16"},
	} {
		words := append(strings.Fields("__complete "+tc.line), tc.begun)
		if got := strings.Join(strings.Fields(s.try("", words...).out), " "); got != tc.want {
			t.Errorf("%s %s: %q, want %q", tc.line, tc.begun, got, tc.want)
		}
	}
	alone := &shell{t, "127.0.0.1:1"} // nobody is there to ask
	equal(t, alone.try("", "__complete", "topic", "describe", "").out, ":4\n")
}

// Every command says what it does and does something.
func TestEveryCommandIsDescribed(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || c.RunE == nil && c.Run == nil {
			t.Errorf("%s has no description or does nothing", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}
