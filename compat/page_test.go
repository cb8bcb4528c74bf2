package compat

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	pagePath = "../docs/compatibility.md"
	pageFrom = "<!-- from here: generated from compat/ledger.go by go test ./compat -run Page -update -->\n"
	pageTo   = "<!-- to here -->\n"
)

var update = flag.Bool("update", false, "write the generated part of docs/compatibility.md anew")

// The page's tables say what ledger and recording say.
func TestPageIsTheLedger(t *testing.T) {
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), pageFrom)
	old, after, closed := strings.Cut(rest, pageTo)
	if !found || !closed {
		t.Fatalf("%s lacks the lines %q and %q", pagePath, pageFrom, pageTo)
	}
	want := tables(t)
	if *update {
		if err := os.WriteFile(pagePath, []byte(before+pageFrom+want+pageTo+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, old); diff != "" {
		t.Errorf("run go test ./compat -run Page -update (-ledger +page):\n%s", diff)
	}
}

// tables renders the ledger: APIs with the versions of everybody, then tests,
// clients and differences.
func tables(t *testing.T) string {
	t.Helper()
	kafkas, _ := recorded(t)
	var b strings.Builder
	b.WriteString("\n| key | API | Perigee | Kafka 4.4 |")
	for _, c := range Clients {
		fmt.Fprintf(&b, " %s %s |", c.Name, c.Version)
	}
	fmt.Fprintf(&b, "\n| ---: | --- | --- | --- |%s\n", strings.Repeat(" ---: |", len(Clients)))
	for _, c := range Ledger {
		fmt.Fprintf(&b, "| %d | %s | %d–%d | %d–%d |", c.Key, c.Name, c.Min, c.Max, kafkas[c.Key][0], kafkas[c.Key][1])
		for _, client := range Clients {
			if v, sends := client.Sends[c.Name]; sends {
				fmt.Fprintf(&b, " %d |", v)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\nEvery version above is answered, to the byte and without an error, in `compat.TestEveryVersionIsServed`. That the answers are right:\n\n| API | tests |\n| --- | --- |\n")
	for _, c := range Ledger {
		if len(c.Proof) > 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", c.Name, code(c.Proof))
		}
	}
	b.WriteString("\n| client | tests |\n| --- | --- |\n")
	for _, c := range Clients {
		fmt.Fprintf(&b, "| %s %s | %s |\n", c.Name, c.Version, code(c.Proof))
	}
	b.WriteString("\nWhere the same request to Kafka 4.4 gets another answer (`compat.TestDifferentialAgainstKafka`):\n\n| request | field | |\n| --- | --- | --- |\n")
	for _, d := range differences {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", inTable(d.step), inTable(d.field), d.why)
	}
	b.WriteString("\n")
	return b.String()
}

func code(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }

// inTable shows a regular expression where | ends a cell.
func inTable(expression string) string {
	return "`" + strings.ReplaceAll(strings.TrimSpace(expression), "|", `\|`) + "`"
}
