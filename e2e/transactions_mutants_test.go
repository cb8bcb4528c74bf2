package e2e

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var txnMutants = flag.String("txn.mutants", ".", "which mutants of the broker to judge: a regular expression")

// edit replaces the one occurrence of a piece of source.
type edit struct{ file, old, new string }

// mutant is the broker with one rule switched off.
type mutant struct {
	name  string
	edits []edit
	kills int // SIGKILLs it takes to notice
	// simulation judges by the crash tests beside the coordinator: what shows
	// only between two writes to the disk.
	simulation bool
}

var mutants = []mutant{
	{name: "retries are not recognised", edits: []edit{
		{"storage/producer/check.go", "if o, found := e.find(b); found {", "if o, found := e.find(b); found && false {"},
		{"storage/producer/check.go", "if b.BaseSequence != want {", "if b.BaseSequence != want && false {"},
	}},
	{name: "the stable offset is the high watermark", edits: []edit{
		{"storage/partition.go", "v.stable = min(v.stable, f.firstOpen)", "_ = f.firstOpen"},
	}},
	{name: "the aborted list is empty", edits: []edit{
		{"storage/read.go", "read.Aborted = chosen", "_ = chosen"},
	}},
	{name: "epochs are not compared", edits: []edit{
		{"coordinator/txn/machine.go", "case e.Producer.Epoch != p.Epoch:", "case false:"},
		{"storage/producer/check.go", "if b.Epoch < e.epoch {", "if false {"},
	}},
	{name: "an end forgets its second partition", edits: []edit{
		{"coordinator/transaction_markers.go", "for _, p := range e.partitions {\n\t\tappends", "for i, p := range e.partitions {\n\t\tif i == 1 {\n\t\t\tcontinue\n\t\t}\n\t\tappends"},
	}},
	{name: "an end is several entries", simulation: true, edits: []edit{
		{
			"coordinator/transaction_markers.go", "sequence := func() (*storage.Pending, error) { return t.o.Engine.Append(appends...) }",
			"sequence := func() (p *storage.Pending, err error) {\n\t\tfor _, a := range appends {\n\t\t\tif p, err = t.o.Engine.Append(a); err != nil || p.Wait(t.ctx()) != nil {\n\t\t\t\treturn p, err\n\t\t\t}\n\t\t}\n\t\treturn p, err\n\t}",
		},
		{"coordinator/transaction_markers.go", "// raise takes over", "func (*transactions) ctx() context.Context { return context.Background() }\n\n// raise takes over"},
		{"coordinator/transaction_markers.go", "import (\n", "import (\n\t\"context\"\n"},
	}},
	{name: "every transaction settles its offsets", edits: []edit{
		{"coordinator/group/facts.go", "return transactionEnded{producer: producer, commit: commit}", "return transactionEnded{producer: producer, commit: true}"},
	}},
	{name: "a repeated end is answered whatever it asks for", edits: []edit{
		{"coordinator/txn/end.go", "case r.State == c.Outcome.complete():\n\t\treturn accept(r)\n\tcase c.Outcome == Commit:", "case true:\n\t\treturn accept(r)\n\tcase c.Outcome == Commit:"},
	}},
	{name: "a batch is let in without the coordinator", edits: []edit{
		{"coordinator/produce.go", "d, err := h.admit(p, producer, partitions)", "var d txn.Decision\n\t_, _ = producer, partitions"},
	}},
	{name: "the coordinator's answers do not wait for the disk", kills: 20, edits: []edit{
		{"coordinator/machine/future.go", "if f.p.pending != nil {", "if f.p.pending != nil && false {"},
	}},
	{name: "producer ids start anew with every start", kills: 3, edits: []edit{
		{"coordinator/catalog/machine.go", "{ m.nextID = max(m.nextID, f.Next) }", "{ _ = m }"},
	}},
}

// A checker that passes everything is worth nothing: each rule of the broker,
// switched off, must be noticed. The log is the kill table.
func TestTransactionCheckerKillsMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a broker for each mutant")
	}
	chosen, err := regexp.Compile(*txnMutants)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if !chosen.MatchString(m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t)
			if m.simulation {
				m.simulate(t, overlay)
				return
			}
			m.judge(t, buildMutant(t, overlay))
		})
	}
}

// overlay writes the changed sources and the file that tells the compiler to
// use them.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sources := map[string]string{}
	for _, e := range m.edits {
		source, ok := sources[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(repoRoot(), e.file))
			if err != nil {
				t.Fatal(err)
			}
			source = string(b)
		}
		if n := strings.Count(source, e.old); n != 1 {
			t.Fatalf("%s holds %d times what the mutant changes: %q", e.file, n, e.old)
		}
		sources[e.file] = strings.Replace(source, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for file, source := range sources {
		name := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(name, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(repoRoot(), file)] = name
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func buildMutant(t *testing.T, overlay string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "perigee")
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./cmd/perigee")
	cmd.Dir = repoRoot()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// judge runs the checker's tests against a mutant, in a process of their own,
// until they notice.
func (m mutant) judge(t *testing.T, binary string) {
	run := []string{"-test.run", "^TestTransactionsInPeace$"}
	if m.kills > 0 {
		run = []string{"-test.run", "^TestTransactionsSurviveKills$", "-txn.kills", strconv.Itoa(m.kills)}
	}
	for seed := 1; seed <= 3; seed++ {
		cmd := exec.Command(os.Args[0], append(run, "-test.timeout", "3m", "-crash.seed", strconv.Itoa(seed))...)
		cmd.Env = append(os.Environ(), "PERIGEE_E2E_BINARY="+binary)
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		anomaly := regexp.MustCompile(`\bI\d+: .*`).FindString(string(out))
		if anomaly == "" {
			t.Fatalf("the run failed, but not by the checker:\n%s", tail(string(out), 4<<10))
		}
		t.Logf("killed with seed %d by %v: %s", seed, invariantsIn(string(out)), anomaly)
		return
	}
	t.Error("survived")
}

// invariantsIn lists the invariants a run's output names, each once.
func invariantsIn(output string) []string {
	names := regexp.MustCompile(`\bI\d+\b`).FindAllString(output, -1)
	slices.Sort(names)
	return slices.Compact(names)
}

// simulate expects the crash tests to fail.
func (m mutant) simulate(t *testing.T, overlay string) {
	cmd := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-run", "^TestCrashAnywhereInTransactions$", "./coordinator")
	cmd.Dir = repoRoot()
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("survived")
	}
	first := regexp.MustCompile(`\S+_test\.go:\d+: .*`).FindString(string(out))
	if first == "" {
		t.Fatalf("the simulation did not judge:\n%s", out)
	}
	t.Logf("killed by the simulation: %s", first)
}
