package journal

import (
	"errors"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/storage/vfs"
)

// The journal of the table: 33 entries of 1096 bytes, each written and synced by
// itself, 11 in each of the files 1 to 3. File 4 is prepared.
const (
	damageEntries = 33
	damageEntry   = 1096
	damagePerFile = 11
)

func damageJournal(t *testing.T) *vfs.Memory {
	t.Helper()
	fs := vfs.NewMemory()
	w := open(t, fs, Options{})
	for i := range int64(damageEntries) {
		q := add(t, w, inline(i, damageEntry-entryHeaderBytes-inlineBytes))
		if q.Start != LSN(i*damageEntry) {
			t.Fatalf("entry %d stands at %d", i, q.Start)
		}
		awaitIdlePreparer(w)
	}
	ok(t, w.Close())
	return fs
}

func journalFile(number uint64) string { return Directory + "/" + fileName(number) }

// at is where an entry of the table stands.
func at(entry int) (name string, offset int64) {
	return journalFile(uint64(1 + entry/damagePerFile)), fileHeaderBytes + int64(entry%damagePerFile)*damageEntry
}

func edit(t *testing.T, fs vfs.FS, name string, change func(f vfs.File)) {
	t.Helper()
	f, err := fs.Open(name)
	ok(t, err)
	change(f)
	ok(t, f.Close())
}

func flip(t *testing.T, fs vfs.FS, name string, offset int64) {
	t.Helper()
	edit(t, fs, name, func(f vfs.File) {
		var b [1]byte
		_, err := f.ReadAt(b[:], offset)
		ok(t, err)
		b[0] ^= 0x10
		_, err = f.WriteAt(b[:], offset)
		ok(t, err)
	})
}

func overwrite(t *testing.T, fs vfs.FS, name string, offset int64, b []byte) {
	t.Helper()
	edit(t, fs, name, func(f vfs.File) {
		_, err := f.WriteAt(b, offset)
		ok(t, err)
	})
}

func contentOf(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fs, name, 1<<30)
	ok(t, err)
	return b
}

// Every way to break a journal, what survives, and whether the damage is told
// from a torn tail. Damage to the very last group cannot be: nothing was written
// after it that would vouch for it.
func TestDamages(t *testing.T) {
	tests := map[string]struct {
		damage  func(t *testing.T, fs *vfs.Memory)
		survive int    // entries replayed before the end or the damage
		corrupt string // file named by the error; "" when the journal is taken as it is
	}{
		"nothing": {func(*testing.T, *vfs.Memory) {}, damageEntries, ""},
		"last entry torn in its body": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(32)
			overwrite(t, fs, name, off+512, make([]byte, damageEntry-512))
		}, 32, ""},
		"last entry torn in its header": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(32)
			overwrite(t, fs, name, off+20, make([]byte, damageEntry-20))
		}, 32, ""},
		"last entry gone": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(32)
			overwrite(t, fs, name, off, make([]byte, damageEntry))
		}, 32, ""},
		"last file truncated in an entry": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(30)
			edit(t, fs, name, func(f vfs.File) { ok(t, f.Truncate(off+100)) })
		}, 30, ""},
		"bit flipped in a body": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(25)
			flip(t, fs, name, off+700)
		}, 25, journalFile(3)},
		"bit flipped in a header": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(25)
			flip(t, fs, name, off+6)
		}, 25, journalFile(3)},
		"bit flipped in a body of an earlier file": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(5)
			flip(t, fs, name, off+700)
		}, 5, journalFile(1)},
		"bit flipped in the last entry of an earlier file": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(10)
			flip(t, fs, name, off+700)
		}, 10, journalFile(1)},
		"hole in the last file": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(24)
			overwrite(t, fs, name, off, make([]byte, 4096))
		}, 24, journalFile(3)},
		"earlier file truncated": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, journalFile(2), func(f vfs.File) { ok(t, f.Truncate(fileHeaderBytes)) })
		}, 11, journalFile(2)},
		"earlier file empty": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, journalFile(2), func(f vfs.File) { ok(t, f.Truncate(0)) })
		}, 11, journalFile(1)},
		"middle file missing": {func(t *testing.T, fs *vfs.Memory) {
			ok(t, fs.Remove(journalFile(2)))
		}, 11, journalFile(1)},
		"first file missing": {func(t *testing.T, fs *vfs.Memory) {
			ok(t, fs.Remove(journalFile(1)))
		}, 0, Directory},
		"file header of the last file flipped": {func(t *testing.T, fs *vfs.Memory) {
			flip(t, fs, journalFile(3), 34)
		}, 22, journalFile(3)},
		"file header of the first file flipped": {func(t *testing.T, fs *vfs.Memory) {
			flip(t, fs, journalFile(1), 3)
		}, 0, journalFile(1)},
		"header of the prepared file torn": {func(t *testing.T, fs *vfs.Memory) {
			flip(t, fs, journalFile(4), 20)
		}, damageEntries, ""},
		"prepared file missing": {func(t *testing.T, fs *vfs.Memory) {
			ok(t, fs.Remove(journalFile(4)))
		}, damageEntries, ""},
		"foreign file in place of an earlier one": {func(t *testing.T, fs *vfs.Memory) {
			overwrite(t, fs, journalFile(2), 0, contentOf(t, damageJournal(t), journalFile(2))[fileHeaderBytes:])
		}, 11, journalFile(2)},
		"last file of another journal": {func(t *testing.T, fs *vfs.Memory) {
			overwrite(t, fs, journalFile(3), 0, contentOf(t, damageJournal(t), journalFile(2)))
		}, 22, ""},
		"stale content of a recycled file follows": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(28)
			overwrite(t, fs, name, off, contentOf(t, fs, journalFile(1))[fileHeaderBytes:fileHeaderBytes+5*damageEntry])
		}, 28, ""},
		"an entry of another place": {func(t *testing.T, fs *vfs.Memory) {
			name, off := at(28)
			overwrite(t, fs, name, off, contentOf(t, fs, name)[off-damageEntry:off])
		}, 28, journalFile(3)},
		"other files in the directory": {func(t *testing.T, fs *vfs.Memory) {
			_, err := fs.Create(Directory + "/notes.txt")
			ok(t, err)
			ok(t, fs.MkdirAll(Directory+"/"+fileName(99)))
		}, damageEntries, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fs := damageJournal(t)
			test.damage(t, fs)
			records, r, err := recoverAll(fs, RecoverOptions{})
			if len(records) != test.survive {
				t.Errorf("%d entries survive, want %d (%v)", len(records), test.survive, err)
			}
			c, isCorrupt := errors.AsType[*CorruptionError](err)
			if test.corrupt == "" {
				ok(t, err)
			} else if !isCorrupt || c.File != test.corrupt || c.Reason == "" {
				t.Fatalf("got %v, want damage of %s", err, test.corrupt)
			}
			checkRepair(t, fs, test.survive, test.corrupt != "")
			if test.corrupt == "" {
				checkGoesOn(t, fs, r, test.survive)
			}
		})
	}
}

// With Repair what stands before the damage is kept, and the journal can be used.
func checkRepair(t *testing.T, fs *vfs.Memory, survive int, damaged bool) {
	t.Helper()
	fs = fs.Clone()
	records, r, err := recoverAll(fs, RecoverOptions{Repair: true})
	ok(t, err)
	if len(records) != survive || (r.Damage != nil) != damaged {
		t.Fatalf("repair kept %d entries of %d, damage %v", len(records), survive, r.Damage)
	}
	checkGoesOn(t, fs, r, survive)
}

// After any end that was accepted the journal takes entries and finds them again.
func checkGoesOn(t *testing.T, fs *vfs.Memory, r *Recovered, survive int) {
	t.Helper()
	w := openAfter(t, fs, r, Options{})
	for i := range int64(20) {
		add(t, w, inline(1000+i, 900))
	}
	ok(t, w.Close())
	records, _, err := recoverAll(fs, RecoverOptions{})
	ok(t, err)
	if got := offsets(records); len(got) != survive+20 || got[survive] != 1000 {
		t.Fatalf("afterwards %d entries, want %d: %v", len(got), survive+20, got)
	}
}

// Entries of one write vouch for nothing: a power cut may keep the later ones
// only. So they are a torn tail even when they are whole.
func TestATornGroupIsNotDamage(t *testing.T) {
	mem := vfs.NewMemory()
	g := newGate(mem)
	w := open(t, g, Options{})
	add(t, w, inline(0, 1000))
	g.set(true)
	first, err := w.Enqueue(&Entry{Items: inline(1, 1000)})
	ok(t, err)
	g.awaitSync()
	var last Queued
	for i := range int64(5) {
		last, err = w.Enqueue(&Entry{Items: inline(2+i, 1000)})
		ok(t, err)
	}
	g.set(false)
	<-first.Group.Done()
	<-last.Group.Done()
	ok(t, w.Close())
	flip(t, mem, journalFile(1), fileHeaderBytes+int64(first.End)+500)
	records, r, err := recoverAll(mem, RecoverOptions{})
	ok(t, err)
	wantOffsets(t, records, 0, 1)
	if !strings.Contains(r.Tail, "checksum") {
		t.Fatalf("tail: %q", r.Tail)
	}
}

func TestACheckpointBeyondTheJournalIsDamage(t *testing.T) {
	fs := damageJournal(t)
	for _, from := range []LSN{damageEntries*damageEntry + 8, 1 << 40} {
		_, _, err := recoverAll(fs, RecoverOptions{From: from})
		if _, corrupt := errors.AsType[*CorruptionError](err); !corrupt {
			t.Errorf("from %d: %v", from, err)
		}
	}
	ok(t, fs.RemoveAll(Directory))
	_, _, err := recoverAll(fs, RecoverOptions{From: 8})
	if err == nil {
		t.Error("a journal without files was taken for whole")
	}
}
