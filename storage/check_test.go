package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/vfs"
)

// checked runs the checker over a directory and fails when it finds damage.
func checked(t testing.TB, fs vfs.FS) *CheckReport {
	t.Helper()
	r, err := Check(t.Context(), Options{FS: fs})
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	for _, d := range r.Damage {
		t.Errorf("check: %v", d)
	}
	return r
}

// checkedDirectory is a directory with something of everything, stopped.
func checkedDirectory(t *testing.T) *vfs.Memory {
	t.Helper()
	c := newCompacted(t, func(pc *PartitionConfig) { pc.SegmentBytes = 40_000; pc.FileDeleteDelay = time.Hour })
	plainTopic := part(t, c.e, 2, func(pc *PartitionConfig) { pc.SegmentBytes = 100_000 })
	for i := range 40 {
		c.txn(1, fmt.Sprintf("k%d=%s", i%7, strings.Repeat("v", 2000)))
		c.txn(2, "aborted=1")
		c.put(fmt.Sprintf("p%d=1", i))
		put(t, c.e, Append{Partition: plainTopic, Batch: plain(strings.Repeat("x", 10_000))})
		if i%5 == 4 {
			c.end(1, batch.Commit)
			c.end(2, batch.Abort)
		}
		if i == 20 {
			if err := c.e.checkpoint(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.txn(3, "open=1")
	c.roll()
	c.compact()
	pending, _, err := plainTopic.DeleteRecords(7)
	if err != nil {
		t.Fatal(err)
	}
	if err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	shut(t, c.e)
	return c.fs
}

func TestCheckFindsNothingWrongWithAWholeDirectory(t *testing.T) {
	fs := checkedDirectory(t)
	r := checked(t, fs)
	if r.Partitions != 2 || r.Segments < 4 || r.Batches < 60 || r.Records < 60 || r.JournalEntries == 0 || r.Behind != 0 {
		t.Errorf("report %+v", r)
	}
	if again := checked(t, fs); fmt.Sprint(*again) != fmt.Sprint(*r) {
		t.Errorf("checking changed something: %+v, then %+v", r, again)
	}
	if r := checked(t, vfs.NewMemory()); r.Partitions != 0 {
		t.Errorf("an empty directory: %+v", r)
	}
}

func TestCheckRefusesADirectoryInUse(t *testing.T) {
	fs := vfs.NewMemory()
	open(t, fs)
	if _, err := Check(t.Context(), Options{FS: fs}); err == nil {
		t.Fatal("checked a directory that is open")
	}
}

// What a crash leaves is not damage: the journal has what the segments lack.
func TestCheckCountsWhatAStartWillReplay(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	p := part(t, e, 1)
	for range 5 {
		put(t, e, Append{Partition: p, Batch: plain("x")})
	}
	r := checked(t, fs.Crash(nil))
	if r.Behind != 5 || r.Partitions != 0 {
		t.Fatalf("report %+v", r)
	}
}

// Every kind of damage is found and named.
func TestCheckFindsDamage(t *testing.T) {
	first := func(t *testing.T, fs vfs.FS, dir, end string) string { return names(t, fs, dir, end)[0] }
	const one, two = "topics/AQAAAAAAAAAAAAAAAAAAAQ/1", "topics/AQAAAAAAAAAAAAAAAAAAAg/2"
	for name, c := range map[string]struct {
		damage func(t *testing.T, fs *vfs.Memory)
		want   string
	}{
		"a bit of a batch": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, first(t, fs, two, ".log"), flip(func(int64) int64 { return 15_000 }))
		}, "checksum"},
		"the base offset, which no checksum covers": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, first(t, fs, two, ".log"), flip(func(int64) int64 { return 3 }))
		}, "the checkpoint ends at"},
		"the leader epoch, which no checksum covers": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, names(t, fs, two, ".log")[1], flip(func(int64) int64 { return 15 }))
		}, "leader epoch"},
		"a segment cut off": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, first(t, fs, two, ".log"), cut(100))
		}, "ends early"},
		"a segment missing": {func(t *testing.T, fs *vfs.Memory) {
			if err := fs.Remove(first(t, fs, two, ".log")); err != nil {
				t.Fatal(err)
			}
		}, "missing"},
		"the segment of another partition": {func(t *testing.T, fs *vfs.Memory) {
			b, err := vfs.ReadFile(fs, names(t, fs, two, ".log")[1], 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			edit(t, fs, first(t, fs, two, ".log"), func(f vfs.File, _ int64) error {
				_, err := f.WriteAt(b, 0)
				return err
			})
		}, "known were"},
		"an index": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, first(t, fs, two, ".index"), flip(func(size int64) int64 { return size - 1 }))
		}, "checksum"},
		"an entry of the journal": {func(t *testing.T, fs *vfs.Memory) {
			edit(t, fs, first(t, fs, "journal", ".journal"), flip(func(int64) int64 { return 350_000 }))
		}, "durable"},
		"the checkpoint": {func(t *testing.T, fs *vfs.Memory) {
			found := names(t, fs, ".", "checkpoint-")
			edit(t, fs, found[len(found)-1], flip(func(int64) int64 { return 100 }))
		}, "checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := checkedDirectory(t)
			c.damage(t, fs)
			r, err := Check(t.Context(), Options{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(r.Damage); !strings.Contains(got, c.want) {
				t.Fatalf("found %s, want %q", got, c.want)
			}
		})
	}
	t.Run("a stray file", func(t *testing.T) {
		fs := checkedDirectory(t)
		before := checked(t, fs)
		if _, err := fs.Create(one + "/00000000000000000099.log.7"); err != nil {
			t.Fatal(err)
		}
		if r := checked(t, fs); len(r.Stray) != len(before.Stray)+1 {
			t.Fatalf("strays %q, before %q", r.Stray, before.Stray)
		}
	})
}
