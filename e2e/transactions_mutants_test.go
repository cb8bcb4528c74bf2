package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
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
	by    judgement
}

// judgement says which run has to notice a mutant.
type judgement int8

const (
	inPeace    judgement = iota // the workload against the process, without faults
	underKill                   // with SIGKILLs
	inScripts                   // simulation, every crash point: what shows only between two writes to the disk
	inLongRuns                  // simulation, with disks that fail
)

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
	{name: "an end is several entries", by: inScripts, edits: []edit{
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
	{name: "the coordinator's answers do not wait for the disk", by: underKill, edits: []edit{
		{"coordinator/machine/future.go", "if f.p.pending != nil {", "if f.p.pending != nil && false {"},
	}},
	{name: "producer ids start anew with every start", by: underKill, edits: []edit{
		{"coordinator/catalog/machine.go", "{ m.nextID = max(m.nextID, f.Next) }", "{ _ = m }"},
	}},
	{name: "the journal is not synced", by: inScripts, edits: []edit{
		{"storage/journal/flush.go", "if err := w.current.Sync(); err != nil {", "if err := error(nil); err != nil {"},
	}},
	{name: "a torn entry is taken for whole", by: inScripts, edits: []edit{
		{"storage/journal/reader.go", "if Checksum(b) != h.bodyCRC {", "if false {"},
	}},
	{name: "readers see what is not durable", by: inLongRuns, edits: []edit{
		{"storage/read.go", "stop := v.Visible(r.Isolation)", "stop := v.Visible(r.Isolation)\n\tif r.Isolation != model.ReadCommitted {\n\t\tstop = v.End\n\t}"},
	}},
	{name: "a dead letter is an entry of its own", by: inScripts, edits: []edit{
		{
			"coordinator/groups.go", "letters = append(letters, more...)",
			"if p, err := g.o.Engine.Append(more...); err != nil || p.Wait(context.Background()) != nil {\n\t\t\t\treturn machine.Sequenced{}, err\n\t\t\t}",
		},
	}},
	{name: "a start leaves open what an abort passed over", by: inLongRuns, edits: []edit{
		{"coordinator/transactions.go", "return t.abortLeftOvers()", "return nil"},
	}},
	{name: "a commit passes over partitions that are offline", by: inLongRuns, edits: []edit{
		{"coordinator/transaction_markers.go", "if m.Outcome == txn.Abort && p.Err() != nil {", "if p.Err() != nil {"},
	}},
}

// killed is a row of the kill table.
type killed struct {
	rule       string
	by         string
	seed       int
	invariants []string
	first      string // what was noticed
}

// A checker that passes everything is worth nothing: each rule of the broker,
// switched off, must be noticed. The log ends with the kill table.
func TestTransactionCheckerKillsMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a broker for each mutant")
	}
	chosen, err := regexp.Compile(*txnMutants)
	if err != nil {
		t.Fatal(err)
	}
	table := "| rule switched off | noticed | seed | invariants | the first anomaly |\n| --- | --- | --- | --- | --- |\n"
	tried, caught := 0, 0
	for _, m := range mutants {
		if !chosen.MatchString(m.name) {
			continue
		}
		tried++
		t.Run(m.name, func(t *testing.T) {
			if k, ok := m.judge(t); ok {
				caught++
				table += fmt.Sprintf("| %s | %s | %d | %s | %s |\n", m.name, k.by, k.seed, strings.Join(k.invariants, " "), k.first)
			}
		})
	}
	t.Logf("%d of %d mutants killed\n%s", caught, tried, table)
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

// judge runs a mutant until it is noticed.
func (m mutant) judge(t *testing.T) (killed, bool) {
	overlay := m.overlay(t)
	if m.by == inScripts || m.by == inLongRuns {
		return m.until(t, m.simulated(t, overlay))
	}
	return m.until(t, m.run(buildMutant(t, overlay)))
}

// attempt is a run of a mutant with one seed, in a process of its own.
type attempt struct {
	what    string
	command func(seed int) *exec.Cmd
}

// run judges a built mutant by the workload.
func (m mutant) run(binary string) attempt {
	what, args := "workload", []string{"-test.run", "^TestTransactionsInPeace$"}
	if m.by == underKill {
		what, args = "workload, SIGKILL", []string{"-test.run", "^TestTransactionsSurviveKills$", "-txn.kills", "20"}
	}
	return attempt{what, func(seed int) *exec.Cmd {
		cmd := exec.Command(os.Args[0], append(args, "-test.timeout", "3m", "-crash.seed", strconv.Itoa(seed))...)
		cmd.Env = append(os.Environ(), "PERIGEE_E2E_BINARY="+binary)
		return cmd
	}}
}

// simulated judges a mutant by the simulation.
func (m mutant) simulated(t *testing.T, overlay string) attempt {
	what, run := "simulation, every crash point", "^TestEveryCrashPointOfScripts$"
	if m.by == inLongRuns {
		what, run = "simulation, long runs", "^TestLongRuns$"
	}
	binary := filepath.Join(t.TempDir(), "sim.test")
	build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, "./e2e/sim")
	build.Dir = repoRoot()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return attempt{what, func(seed int) *exec.Cmd {
		cmd := exec.Command(binary, "-test.run", run, "-test.timeout", "3m", "-sim.seed", strconv.Itoa(100*seed), "-test.v")
		cmd.Dir = filepath.Join(repoRoot(), "e2e", "sim")
		return cmd
	}}
}

var (
	anomaly    = regexp.MustCompile(`\bI\d+: .*`)
	unexpected = regexp.MustCompile(`\b(?:workload|writer|reader|around|final|resume|moonmq)\.go:\d+: .*`) // of packages workload and sim
	fewNames   = regexp.MustCompile(`\bI\d+\b`)
)

// until tries a few seeds. What is noticed is an anomaly, or an answer that the
// workload says may not come.
func (m mutant) until(t *testing.T, a attempt) (killed, bool) {
	for seed := 1; seed <= 4; seed++ {
		out, err := a.command(seed).CombinedOutput()
		if err == nil {
			continue
		}
		names := fewNames.FindAllString(string(out), -1)
		slices.Sort(names)
		k := killed{rule: m.name, by: a.what, seed: seed, invariants: slices.Compact(names)}
		if k.first = anomaly.FindString(string(out)); k.first == "" {
			k.first = unexpected.FindString(string(out))
		}
		if k.first == "" {
			t.Fatalf("the run failed, but nothing judged:\n%s", tail(string(out), 4<<10))
		}
		t.Logf("killed with seed %d by %v: %s", seed, k.invariants, k.first)
		return k, true
	}
	t.Error("survived")
	return killed{}, false
}
