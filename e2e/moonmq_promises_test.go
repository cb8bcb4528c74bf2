package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test and every recorded conversation that the page of promises names exists.
func TestPromisesNameTests(t *testing.T) {
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{repoRoot()}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(repoRoot(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page, corpus := read("docs", "promises.md"), read("compat", "corpus", "moonmq-transcripts.json")
	named := regexp.MustCompile(`\bTest\w+`).FindAllString(page, -1)
	if len(named) < 50 {
		t.Errorf("the page names %d tests", len(named))
	}
	for _, name := range named {
		if !tests[name] {
			t.Errorf("there is no %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(page, -1) {
		if !regexp.MustCompile(`"name": *"` + m[1] + `"`).MatchString(corpus) {
			t.Errorf("there is no conversation %q", m[1])
		}
	}
}
