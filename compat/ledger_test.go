package compat

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/server/kafka"
)

func TestClaimsAreTheDispatchTable(t *testing.T) {
	var claimed []kafka.API
	for _, c := range Ledger {
		claimed = append(claimed, kafka.API{Key: c.Key, Min: c.Min, Max: c.Max, Name: c.Name})
	}
	if diff := cmp.Diff(kafka.APIs(), claimed); diff != "" {
		t.Errorf("-table +ledger:\n%s", diff)
	}
}

func TestProofsExist(t *testing.T) {
	known := tests(t)
	check := func(what string, names []string) {
		t.Helper()
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s: there is no test %s", what, name)
			}
		}
	}
	for _, c := range Ledger {
		check(c.Name, c.Proof)
	}
	for _, c := range Clients {
		check(c.Name, c.Proof)
	}
	page, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	check(pagePath, regexp.MustCompile(`\b[a-z0-9]+(?:/[a-z0-9]+)*\.Test[A-Z][A-Za-z0-9]*`).FindAllString(string(page), -1))
}

// What clients send is something we serve.
func TestClientsSendWhatIsServed(t *testing.T) {
	served := map[string]kafka.API{}
	for _, a := range kafka.APIs() {
		served[a.Name] = a
	}
	for _, c := range Clients {
		for api, version := range c.Sends {
			if a, ok := served[api]; !ok || version < a.Min || version > a.Max {
				t.Errorf("%s sends %s v%d; served is %+v", c.Name, api, version, a)
			}
		}
	}
}

// tests returns the names of all tests in the tree, as ledgers spell them.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[filepath.ToSlash(dir)+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
