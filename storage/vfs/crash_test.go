package vfs

import (
	"errors"
	iofs "io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

func read(t *testing.T, fs FS, name string) string {
	t.Helper()
	f, err := fs.Open(name)
	ok(t, err)
	defer f.Close()
	return content(t, f)
}

func TestCrashKeepsWhatWasSyncedAndMayKeepTheRest(t *testing.T) {
	m := NewMemory()
	f := create(t, m, "file")
	write(t, f, 0, strings.Repeat("A", 2048))
	ok(t, f.Sync())
	ok(t, m.SyncDir("."))
	write(t, f, 512, strings.Repeat("B", 2048))

	if got := read(t, m.Crash(nil), "file"); got != strings.Repeat("A", 2048) {
		t.Fatalf("without luck %d bytes are left: %q", len(got), got)
	}
	seen := map[string]bool{}
	for seed := range uint64(200) {
		got := read(t, m.Crash(rand.New(rand.NewPCG(seed, 0))), "file")
		if len(got) < 2048 || len(got) > 2560 || got[:512] != strings.Repeat("A", 512) {
			t.Fatalf("seed %d: impossible content, %d bytes", seed, len(got))
		}
		for i := 512; i < 2048; i++ {
			if got[i] != 'A' && got[i] != 'B' {
				t.Fatalf("seed %d: byte %d is %q", seed, i, got[i])
			}
		}
		again := read(t, m.Crash(rand.New(rand.NewPCG(seed, 0))), "file")
		if got != again {
			t.Fatalf("seed %d gives two outcomes", seed)
		}
		seen[got] = true
	}
	if len(seen) < 20 {
		t.Fatalf("only %d different outcomes", len(seen))
	}
	wantContent(t, f, strings.Repeat("A", 512)+strings.Repeat("B", 2048))
}

func TestCrashForgetsNamesWithoutSyncDir(t *testing.T) {
	tests := map[string]struct {
		do          func(*testing.T, *Memory)
		lost, saved string // names after a crash without SyncDir and with it
	}{
		"created": {func(t *testing.T, m *Memory) { create(t, m, "d/new") }, "old", "new old"},
		"renamed": {func(t *testing.T, m *Memory) { ok(t, m.Rename("d/old", "d/other")) }, "old", "other"},
		"removed": {func(t *testing.T, m *Memory) { ok(t, m.Remove("d/old")) }, "old", ""},
		"replaced": {func(t *testing.T, m *Memory) {
			create(t, m, "d/tmp")
			ok(t, m.Rename("d/tmp", "d/old"))
		}, "old", "old"},
		"nested": {func(t *testing.T, m *Memory) { ok(t, m.MkdirAll("d/x/y")) }, "old", "old x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMemory()
			ok(t, m.MkdirAll("d"))
			write(t, create(t, m, "d/old"), 0, "x")
			ok(t, m.SyncDir("d"))
			ok(t, m.SyncDir("."))
			test.do(t, m)
			if got := strings.Join(names(t, m.Crash(nil), "d"), " "); got != test.lost {
				t.Errorf("before SyncDir %q survived, want %q", got, test.lost)
			}
			ok(t, m.SyncDir("d"))
			if got := strings.Join(names(t, m.Crash(nil), "d"), " "); got != test.saved {
				t.Errorf("after SyncDir %q survived, want %q", got, test.saved)
			}
		})
	}
}

// A rename is never half done: with any luck there is one name or the other.
func TestCrashRenamesWhole(t *testing.T) {
	m := NewMemory()
	create(t, m, "a")
	ok(t, m.SyncDir("."))
	ok(t, m.Rename("a", "b"))
	for seed := range uint64(50) {
		got := strings.Join(names(t, m.Crash(rand.New(rand.NewPCG(seed, 0))), "."), " ")
		if got != "a" && got != "b" {
			t.Fatalf("seed %d: names %q", seed, got)
		}
	}
}

func TestFaultRules(t *testing.T) {
	m := NewMemory()
	f := NewFault(m)
	f.Add(Rule{Op: OpWrite, Name: "*.log", After: 1, Times: 1, Err: syscall.EIO, Short: 3})
	f.Add(Rule{Op: OpRename, Err: syscall.ENOSPC})
	log, other := create(t, f, "x.log"), create(t, f, "x.idx")
	write(t, log, 0, "first")
	write(t, other, 0, "first")
	write(t, other, 0, "second")
	if n, err := log.Writev([][]byte{[]byte("SE"), []byte("COND")}, 0); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Fatalf("second write: %d bytes, %v", n, err)
	}
	wantContent(t, log, "SECst")
	write(t, log, 0, "third")
	if err := f.Rename("x.log", "y.log"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("rename: %v", err)
	}
	if _, err := f.Stat("y.log"); !errors.Is(err, iofs.ErrNotExist) {
		t.Fatalf("the failed rename happened: %v", err)
	}
	if got := f.Count(OpWrite); got != 5 {
		t.Fatalf("%d writes counted", got)
	}
	f.Clear()
	ok(t, f.Rename("x.log", "y.log"))
}

// After a failed sync Linux forgets what was dirty: the next one succeeds and the
// bytes are lost all the same.
func TestFailedSyncDropsWhatWasDirty(t *testing.T) {
	m := NewMemory()
	f := NewFault(m)
	f.Add(Rule{Op: OpSync, Times: 1, Err: syscall.EIO, DropDirty: true})
	file := create(t, f, "file")
	ok(t, f.SyncDir("."))
	write(t, file, 0, "lost")
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	ok(t, file.Sync())
	wantContent(t, file, "lost")
	if got := read(t, m.Crash(nil), "file"); strings.Trim(got, "\x00") != "" {
		t.Fatalf("%q survived", got)
	}
}

func TestStopAfterStopsEverything(t *testing.T) {
	m := NewMemory()
	f := NewFault(m)
	var seen []Event
	f.AfterEach(func(e Event) { seen = append(seen, e) })
	file := create(t, f, "file")
	f.StopAfter(1)
	write(t, file, 0, "x")
	if f.Stopped() {
		t.Fatal("stopped too early")
	}
	for what, err := range map[string]error{"sync": file.Sync(), "mkdir": f.MkdirAll("d")} {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := file.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrStopped) {
		t.Errorf("read: %v", err)
	}
	if !f.Stopped() || len(seen) != 2 {
		t.Fatalf("stopped %v, saw %v", f.Stopped(), seen)
	}
}

func TestMemoryFillsUp(t *testing.T) {
	m := NewMemory()
	m.SetTotal(10)
	f := create(t, m, "file")
	if n, err := f.WriteAt(make([]byte, 12), 0); n != 10 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d bytes: %v", n, err)
	}
	if free, total, _ := m.Free(); free != 0 || total != 10 {
		t.Fatalf("free %d of %d", free, total)
	}
	ok(t, m.Remove("file"))
	if free, _, _ := m.Free(); free != 10 {
		t.Fatalf("free %d after the removal", free)
	}
}
