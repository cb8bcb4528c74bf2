package journal

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/perigeemq/perigee/storage/vfs"
)

func writeCheckpoint(t *testing.T, fs vfs.FS, position LSN, payload string) LSN {
	t.Helper()
	trim, err := WriteCheckpoint(fs, ".", Checkpoint{Position: position, Payload: []byte(payload)})
	ok(t, err)
	return trim
}

func TestTheNewestTwoCheckpointsAreKept(t *testing.T) {
	fs := vfs.NewMemory()
	c, err := ReadCheckpoint(fs, ".")
	if err != nil || c.Generation != 0 || c.Position != 0 {
		t.Fatalf("without any: %+v, %v", c, err)
	}
	var trims []LSN
	for i := range LSN(5) {
		trims = append(trims, writeCheckpoint(t, fs, 100*(i+1), string(rune('a'+i))))
	}
	if want := []LSN{0, 100, 200, 300, 400}; !slices.Equal(trims, want) {
		t.Errorf("journal may be trimmed below %v, want %v", trims, want)
	}
	c, err = ReadCheckpoint(fs, ".")
	ok(t, err)
	if c.Generation != 5 || c.Position != 500 || string(c.Payload) != "e" || c.Skipped != nil {
		t.Errorf("read %+v", c)
	}
	if from, err := KeptFrom(fs, "."); from != 400 || err != nil {
		t.Errorf("the journal is kept from %d, %v", from, err)
	}
	infos, err := fs.ReadDir(".")
	ok(t, err)
	if len(infos) != 2 {
		t.Errorf("files %v", infos)
	}
}

// A damaged checkpoint costs a longer replay, not the data; two of them stop the
// start.
func TestDamagedCheckpoints(t *testing.T) {
	damages := map[string]func(t *testing.T, fs vfs.FS, name string){
		"truncated": func(t *testing.T, fs vfs.FS, name string) {
			edit(t, fs, name, func(f vfs.File) { ok(t, f.Truncate(30)) })
		},
		"empty": func(t *testing.T, fs vfs.FS, name string) {
			edit(t, fs, name, func(f vfs.File) { ok(t, f.Truncate(0)) })
		},
		"torn":                  func(t *testing.T, fs vfs.FS, name string) { overwrite(t, fs, name, 41, []byte{0, 0}) },
		"flipped in the header": func(t *testing.T, fs vfs.FS, name string) { flip(t, fs, name, 25) },
		"flipped in the body":   func(t *testing.T, fs vfs.FS, name string) { flip(t, fs, name, 42) },
		"foreign":               func(t *testing.T, fs vfs.FS, name string) { overwrite(t, fs, name, 0, []byte("GIF89a..")) },
		"of another generation": func(t *testing.T, fs vfs.FS, name string) {
			c := Checkpoint{Generation: 9, Payload: []byte("new")}
			overwrite(t, fs, name, 0, c.encode())
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMemory()
			writeCheckpoint(t, fs, 100, "old")
			writeCheckpoint(t, fs, 200, "new")
			damage(t, fs, checkpointName(2))
			c, err := ReadCheckpoint(fs, ".")
			ok(t, err)
			if c.Generation != 1 || c.Position != 100 || string(c.Payload) != "old" || c.Skipped == nil {
				t.Fatalf("read %+v", c)
			}
			damage(t, fs, checkpointName(1))
			_, err = ReadCheckpoint(fs, ".")
			if _, corrupt := errors.AsType[*CorruptionError](err); !corrupt {
				t.Fatalf("both damaged: %v", err)
			}
		})
	}
}

// A checkpoint that could not be written leaves the one before in place.
func TestACheckpointIsReplacedWholeOrNotAtAll(t *testing.T) {
	for _, rule := range []vfs.Rule{
		{Op: vfs.OpCreate, Err: syscall.ENOSPC},
		{Op: vfs.OpWrite, Err: syscall.ENOSPC, Short: 20},
		{Op: vfs.OpSync, Err: syscall.EIO},
		{Op: vfs.OpRename, Err: syscall.EIO},
	} {
		mem := vfs.NewMemory()
		writeCheckpoint(t, mem, 100, "old")
		fault := vfs.NewFault(mem)
		fault.Add(rule)
		if _, err := WriteCheckpoint(fault, ".", Checkpoint{Position: 200}); !errors.Is(err, rule.Err) {
			t.Errorf("%v fails: %v", rule.Op, err)
		}
		c, err := ReadCheckpoint(mem, ".")
		ok(t, err)
		if c.Position != 100 || c.Skipped != nil {
			t.Errorf("%v failed, read %+v", rule.Op, c)
		}
	}
}
