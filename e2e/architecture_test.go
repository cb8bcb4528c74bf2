package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/perigeemq/perigee"

// level says how high a package stands; imports only point downwards. A
// package that is not listed fails the test: its place must be decided.
var level = map[string]int{
	"cmd/perigee": 10,
	"server":      9, "server/kafka": 8, "server/moonmq": 8, "server/admin": 8, "server/access": 7,
	"coordinator": 6, "coordinator/catalog": 5, "coordinator/group": 5, "coordinator/txn": 5, "coordinator/deadletter": 5, "coordinator/machine": 4,
	"storage": 3, "storage/journal": 2, "storage/segment": 2, "storage/producer": 2, "storage/batch": 1, "storage/vfs": 1, "storage/model": 0, "storage/invariant": 0,
	"server/transport": 3, "server/quota": 2, "server/config": 1, "server/metrics": 0,
	"protocol/kafka": 0, "protocol/moonmq": 0, "protocol": 0,
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Doc        string
	GoFiles    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Doc,GoFiles", "./...")
	cmd.Dir = repoRoot()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func TestImportsPointDownwards(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if top, _, _ := strings.Cut(name, "/"); top == "e2e" || top == "compat" {
			continue // tests may look at everything
		}
		own, known := level[name]
		if !known {
			t.Errorf("package %s has no level: add it here and to docs/architecture.md", name)
			continue
		}
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("package %s has no package page", name)
		}
		for _, imported := range p.Imports {
			dep, ours := strings.CutPrefix(imported, module+"/")
			if ours {
				checkArrow(t, name, own, dep)
			}
			checkForeign(t, name, imported)
		}
	}
}

func checkArrow(t *testing.T, name string, own int, dep string) {
	t.Helper()
	if strings.HasPrefix(name, "protocol/") {
		t.Errorf("%s imports %s: protocol packages import nothing of ours", name, dep)
	}
	if other := level[dep]; other >= own {
		t.Errorf("%s (level %d) imports %s (level %d): arrows point downwards", name, own, dep, other)
	}
	if strings.HasPrefix(name, "storage") && !strings.HasPrefix(dep, "storage") {
		t.Errorf("%s imports %s: the engine knows nothing above it", name, dep)
	}
	settings := dep == "server/config" // the one table of keys: what a setting means is decided where topics are
	if strings.HasPrefix(name, "coordinator") && !strings.HasPrefix(dep, "storage") && !strings.HasPrefix(dep, "coordinator") && !settings {
		t.Errorf("%s imports %s: coordinators know nothing of front ends", name, dep)
	}
}

func checkForeign(t *testing.T, name, imported string) {
	t.Helper()
	within := func(dirs ...string) bool {
		for _, d := range dirs {
			if name == d || strings.HasPrefix(name, d+"/") {
				return true
			}
		}
		return false
	}
	switch {
	case strings.HasPrefix(imported, "github.com/twmb/franz-go/pkg/kmsg") && !within("protocol/kafka", "server/kafka", "cmd"):
		t.Errorf("%s imports kmsg: wire types stay in protocol/kafka and server/kafka", name)
	case strings.HasPrefix(imported, "github.com/rs/zerolog") && !within("server", "cmd"):
		t.Errorf("%s imports a logger: only server and cmd log", name)
	case strings.HasPrefix(imported, "github.com/prometheus/") && !within("server", "cmd"):
		t.Errorf("%s imports a metrics library: the engine reports, the server publishes", name)
	}
}

// Machines decide; they do not do: no clock, goroutine, channel, lock, file or socket.
func TestMachinesArePure(t *testing.T) {
	forbidden := []string{"time.Now(", "time.After(", "time.Sleep(", "\tgo ", "make(chan", "sync.Mutex", "sync.RWMutex", "os.Open", "net.Dial", "rand."}
	for _, dir := range []string{"coordinator/catalog", "coordinator/group", "coordinator/txn"} {
		files, err := filepath.Glob(filepath.Join(repoRoot(), dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files (%v)", dir, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(text), "\n") {
				code, _, _ := strings.Cut(line, "//")
				for _, bad := range forbidden {
					if strings.Contains(code, bad) {
						t.Errorf("%s/%s:%d: %q has no place in a machine", dir, filepath.Base(f), i+1, bad)
					}
				}
			}
		}
	}
}
