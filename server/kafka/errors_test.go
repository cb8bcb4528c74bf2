package kafka

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/perigeemq/perigee/storage"
)

// Every sentinel of the packages below stands in a table that maps it to a
// code: an error without one would reach clients as UNKNOWN_SERVER_ERROR.
func TestEveryDomainErrorHasACode(t *testing.T) {
	notForClients := map[string]string{
		"coordinator.ErrNoRecord":      "only MoonMQ's NACK names a record",
		"coordinator.ErrControlRecord": "only MoonMQ's NACK names a record",
		"coordinator.ErrAborted":       "only MoonMQ's NACK names a record",
		"coordinator.ErrMemoLost":      "only MoonMQ's named producers have memos",
		"batch.ErrNotMarker":           "control batches are read by the broker alone",
		"machine.ErrMalformed":         "a fact of ours that cannot be read stops the start",
		"machine.ErrUnknownFact":       "a fact of ours that cannot be read stops the start",
		"deadletter.ErrTopicName":      "a dead letter that cannot be placed is the MoonMQ front end's answer",
	}
	var tables strings.Builder
	for _, file := range []string{"errors.go", "txn_codes.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tables.Write(text)
	}
	for _, dir := range []string{"storage", "storage/batch", "coordinator", "coordinator/catalog", "coordinator/group", "coordinator/txn", "coordinator/machine", "coordinator/deadletter"} {
		for _, name := range sentinels(t, filepath.Join("../..", dir)) {
			name = filepath.Base(dir) + "." + name
			_, excused := notForClients[name]
			if mapped := strings.Contains(tables.String(), "{"+name+","); mapped == excused {
				t.Errorf("%s: has a code %v, excused %v", name, mapped, excused)
			}
		}
	}
}

// sentinels lists the exported package variables of a folder that are named Err….
func sentinels(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(n.Name, "Err") {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

func TestCodesSeeThroughWrapping(t *testing.T) {
	for _, c := range []struct {
		err  error
		want *kerr.Error
	}{
		{fmt.Errorf("append: %w", &storage.AppendError{Err: storage.ErrStorageFull}), kerr.KafkaStorageError},
		{fmt.Errorf("read: %w", &storage.CorruptionError{File: "0.log"}), kerr.KafkaStorageError},
		{fmt.Errorf("surprise"), kerr.UnknownServerError},
	} {
		if got := codeOf(c.err); got != c.want.Code {
			t.Errorf("%v: code %d, want %d", c.err, got, c.want.Code)
		}
	}
	if got := codeOf(nil); got != 0 {
		t.Errorf("nil: code %d", got)
	}
}
