package storage

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// edit changes a file in place.
func edit(t *testing.T, fs vfs.FS, name string, change func(vfs.File, int64) error) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err == nil {
		err = change(f, size)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flip(at func(size int64) int64) func(vfs.File, int64) error {
	return func(f vfs.File, size int64) error {
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, at(size)); err != nil {
			return err
		}
		b[0] ^= 0x55
		_, err := f.WriteAt(b, at(size))
		return err
	}
}

func cut(n int64) func(vfs.File, int64) error {
	return func(f vfs.File, size int64) error { return f.Truncate(size - n) }
}

// names lists the files of a directory whose names end in a way.
func names(t *testing.T, fs vfs.FS, dir, end string) (found []string) {
	t.Helper()
	infos, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if strings.HasSuffix(i.Name, end) || strings.HasPrefix(i.Name, end) {
			found = append(found, dir+"/"+i.Name)
		}
	}
	return found
}

// TestDamages breaks a data directory in one way each and says what the next start
// makes of it, without and with Repair. The directory has 20 records on each of two
// partitions; damages are done to the first one's files, or to everybody's.
func TestDamages(t *testing.T) {
	const partitionDir = "topics/AQAAAAAAAAAAAAAAAAAAAQ/1"
	all := func(fs *vfs.Memory, t *testing.T, dir, end string, change func(vfs.File, int64) error) {
		for _, name := range names(t, fs, dir, end) {
			edit(t, fs, name, change)
		}
	}
	last := func(fs *vfs.Memory, t *testing.T, dir, end string, change func(vfs.File, int64) error) {
		found := names(t, fs, dir, end)
		edit(t, fs, found[len(found)-1], change)
	}
	type outcome struct {
		refused any // a type of error that Open returns
		offline bool
		records int // left on the first partition
		other   int // and on the second
	}
	whole := outcome{records: 20, other: 20}
	for name, c := range map[string]struct {
		clean    bool // stopped, not crashed
		damage   func(fs *vfs.Memory, t *testing.T)
		without  outcome
		repaired outcome
	}{
		"nothing, after a crash": {false, func(*vfs.Memory, *testing.T) {}, whole, whole},
		"nothing, after a stop":  {true, func(*vfs.Memory, *testing.T) {}, whole, whole},
		"garbage behind the journal's end": {false, func(fs *vfs.Memory, t *testing.T) {
			last(fs, t, "journal", ".journal", func(f vfs.File, size int64) error {
				_, err := f.WriteAt([]byte("garbage"), size-200)
				return err
			})
		}, whole, whole},
		"an entry in the middle of the journal": {false, func(fs *vfs.Memory, t *testing.T) {
			edit(t, fs, names(t, fs, "journal", ".journal")[0], flip(func(int64) int64 { return 4096 + 5000 }))
		}, outcome{refused: &CorruptionError{}}, outcome{records: 15, other: 14}},
		"the journal is gone, after a stop": {true, func(fs *vfs.Memory, t *testing.T) {
			fs.RemoveAll("journal")
		}, outcome{refused: &CorruptionError{}}, whole},
		"the journal is gone, after a crash": {false, func(fs *vfs.Memory, t *testing.T) {
			fs.RemoveAll("journal")
		}, outcome{refused: &CorruptionError{}}, outcome{records: 11, other: 11}}, // up to the checkpoint's sync
		"the newest checkpoint": {true, func(fs *vfs.Memory, t *testing.T) {
			last(fs, t, ".", "checkpoint-", flip(func(size int64) int64 { return size / 2 }))
		}, whole, whole},
		"both checkpoints": {true, func(fs *vfs.Memory, t *testing.T) {
			all(fs, t, ".", "checkpoint-", flip(func(size int64) int64 { return size / 2 }))
		}, outcome{refused: &CorruptionError{}}, whole},
		"a segment ends early, after a stop": {true, func(fs *vfs.Memory, t *testing.T) {
			last(fs, t, partitionDir, ".log", cut(3))
		}, outcome{offline: true, other: 20}, outcome{records: 19, other: 20}},
		"a sealed segment ends early, after a crash": {false, func(fs *vfs.Memory, t *testing.T) {
			edit(t, fs, names(t, fs, partitionDir, ".log")[0], cut(3))
		}, outcome{offline: true, other: 20}, outcome{records: 19, other: 20}},
		"a sealed segment is missing, after a crash": {false, func(fs *vfs.Memory, t *testing.T) {
			fs.Remove(names(t, fs, partitionDir, ".log")[1])
		}, outcome{offline: true, other: 20}, outcome{records: 17, other: 20}},
		"the whole partition is missing, after a crash": {false, func(fs *vfs.Memory, t *testing.T) {
			fs.RemoveAll(partitionDir)
		}, outcome{offline: true, other: 20}, outcome{records: 0, other: 20}},
		"bytes behind the end of a segment": {false, func(fs *vfs.Memory, t *testing.T) {
			last(fs, t, partitionDir, ".log", func(f vfs.File, size int64) error {
				_, err := f.WriteAt(make([]byte, 100), size)
				return err
			})
		}, whole, whole},
		"a file no list names": {false, func(fs *vfs.Memory, t *testing.T) {
			if _, err := fs.Create(partitionDir + "/00000000000000000999.log"); err != nil {
				t.Fatal(err)
			}
		}, whole, whole},
	} {
		t.Run(name, func(t *testing.T) {
			for _, repair := range []bool{false, true} {
				fs := damageable(t, c.clean)
				c.damage(fs, t)
				want := c.without
				if repair {
					want = c.repaired
				}
				e, err := tryOpen(t, fs, func(o *Options) { o.Repair = repair })
				if want.refused != nil || err != nil {
					damage, ok := errors.AsType[*CorruptionError](err)
					if !ok || damage.File == "" || damage.Reason == "" || want.refused == nil {
						t.Fatalf("repair %v: %v, want %+v", repair, err, want)
					}
					continue
				}
				p, other := part(t, e, 1), part(t, e, 2)
				if got := len(values(t, other)); got != want.other {
					t.Errorf("repair %v: %d records on the other partition, want %d", repair, got, want.other)
				}
				if want.offline {
					if _, err := readAll(p); err == nil {
						t.Errorf("repair %v: the partition can be read", repair)
					}
					continue
				}
				if got := len(values(t, p)); got != want.records {
					t.Errorf("repair %v: %d records, want %d", repair, got, want.records)
				}
				high := p.Bounds().High
				if at := put(t, e, Append{Partition: p, Batch: plain("more")}).At(0); at.Base != high {
					t.Errorf("repair %v: the next append went to %d, want %d", repair, at.Base, high)
				}
			}
		})
	}
}

// damageable is a data directory with two partitions of 20 records in segments of
// two or three, a checkpoint in the middle, stopped or crashed.
func damageable(t *testing.T, clean bool) *vfs.Memory {
	fs := vfs.NewMemory()
	e := open(t, fs)
	for i := range 20 {
		for n := range 2 {
			p := part(t, e, n+1, func(c *PartitionConfig) { c.SegmentBytes = 250 })
			put(t, e, Append{Partition: p, Batch: plain("some value")})
		}
		if i == 10 {
			if err := e.checkpoint(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if clean {
		shut(t, e)
		return fs
	}
	return fs.Crash(nil).Clone()
}

// An index says what its log holds. After a repair another log may begin at the same
// offset, and must not be read by it.
func TestARepairLeavesNoIndexes(t *testing.T) {
	fs := damageable(t, false)
	const dir = "topics/AQAAAAAAAAAAAAAAAAAAAQ/1"
	logs := names(t, fs, dir, ".log")
	for _, name := range logs {
		if _, err := fs.Create(strings.TrimSuffix(name, ".log") + ".index"); err != nil {
			t.Fatal(err)
		}
	}
	edit(t, fs, logs[0], cut(3))
	fs.RemoveAll("journal") // so that only the files can tell what there was
	p := part(t, open(t, fs, func(o *Options) { o.Repair = true }), 1)
	if left := names(t, fs, dir, ".index"); len(left) > 0 {
		t.Errorf("%d of %d indexes are left: %v", len(left), len(logs), left)
	}
	if got := values(t, p); len(got) != 2 {
		t.Errorf("%d records, want the 2 in front of the cut", len(got))
	}
}

func readAll(p *Partition) (n int, err error) {
	for from := p.Bounds().Start; from < max(p.Bounds().High, 1); {
		r, err := p.Read(ReadRequest{From: from, MaxBytes: math.MaxInt32})
		if err != nil {
			return n, err
		}
		if r.Slice != nil {
			b, err := r.Slice.Bytes()
			r.Slice.Release()
			if err != nil {
				return n, err
			}
			n += len(b)
		}
		from = r.Next
	}
	return n, nil
}

// Dropped files go only when not even the older checkpoint names them.
func TestTheOlderCheckpointFindsItsFiles(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	p := part(t, e, 1, func(c *PartitionConfig) { c.SegmentBytes = 250 })
	for range 20 {
		put(t, e, Append{Partition: p, Batch: plain("some value")})
	}
	if err := e.checkpoint(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.DeleteRecords(10); err != nil {
		t.Fatal(err)
	}
	within(t, "dropped segments removed", func() bool { return len(names(t, fs, p.dir, ".log")) < 6 && e.Stats().Obsolete == 0 })
	crashed := fs.Clone() // with the removals, which nobody syncs
	found := names(t, crashed, ".", "checkpoint-")
	edit(t, crashed, found[len(found)-1], flip(func(size int64) int64 { return size / 2 }))
	p = part(t, open(t, crashed), 1)
	if got := values(t, p); p.Bounds().Start != 10 || len(got) < 10 {
		t.Errorf("%+v, read %v", p.Bounds(), got)
	}
}

func TestADamagedIndexIsRebuiltFromTheLog(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	big := strings.Repeat("x", 3000)
	for range 60 {
		put(t, e, Append{Partition: part(t, e, 1), Batch: plain(big)})
	}
	shut(t, e)
	index := names(t, fs, "topics/AQAAAAAAAAAAAAAAAAAAAQ/1", ".index")
	if len(index) != 1 {
		t.Fatalf("index files %v", index)
	}
	for name, damage := range map[string]func(vfs.File, int64) error{
		"flipped": flip(func(size int64) int64 { return size - 3 }), "cut": cut(5), "empty": cut(0),
	} {
		copied := fs.Clone()
		edit(t, copied, index[0], damage)
		p := part(t, open(t, copied), 1)
		for _, from := range []model.Offset{0, 17, 59} {
			r, err := p.Read(ReadRequest{From: from, MaxBytes: 1, MinOneBatch: true})
			if err != nil || r.Next != from+1 {
				t.Errorf("%s: read at %d: next %d, %v", name, from, r.Next, err)
				continue
			}
			r.Slice.Release()
		}
	}
}

func TestADirectoryThatIsNotOursIsRefused(t *testing.T) {
	write := func(fs vfs.FS, name, content string) {
		if err := vfs.WriteFile(fs, ".", name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	foreign := vfs.NewMemory()
	write(foreign, "holiday.jpg", "")
	_, err := tryOpen(t, foreign)
	if e, ok := errors.AsType[*ForeignDirectoryError](err); !ok || e.Found != "holiday.jpg" {
		t.Errorf("foreign: %v", err)
	}
	newer := vfs.NewMemory()
	write(newer, identityFile, `{"format": 99}`)
	if _, err := tryOpen(t, newer); !strings.Contains(err.Error(), "format 99") {
		t.Errorf("newer: %v", err)
	}
	for _, content := range []string{"", "{", `{"format":1,"cluster":"short","incarnation":1}`} {
		fs := vfs.NewMemory()
		write(fs, identityFile, content)
		_, err := tryOpen(t, fs)
		if _, ok := errors.AsType[*CorruptionError](err); !ok {
			t.Errorf("identity %q: %v", content, err)
		}
	}
	used := vfs.NewMemory()
	open(t, used)
	_, err = tryOpen(t, used)
	if _, ok := errors.AsType[*vfs.LockedError](err); !ok {
		t.Errorf("in use: %v", err)
	}
}

func TestAReferencedBatchIsVerifiedWhenReplayed(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs, func(o *Options) { o.ReferenceThreshold = 1000 })
	put(t, e, Append{Partition: part(t, e, 1), Batch: plain(strings.Repeat("x", 5000))})
	put(t, e, Append{Partition: part(t, e, 1), Batch: plain("small")})
	whole := fs.Crash(nil)
	if got := values(t, part(t, open(t, whole.Clone()), 1)); len(got) != 2 {
		t.Fatalf("recovered %d records", len(got))
	}
	edit(t, whole, names(t, whole, "topics/AQAAAAAAAAAAAAAAAAAAAQ/1", ".log")[0], flip(func(int64) int64 { return 3000 }))
	var offline []model.TopicPartition
	e = open(t, whole, func(o *Options) {
		o.Events.PartitionOffline = func(tp model.TopicPartition, err error) { offline = append(offline, tp) }
	})
	if err := part(t, e, 1).Err(); !errors.Is(err, ErrPartitionOffline) || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("partition with a flipped byte: %v", err)
	}
	shut(t, e)
	if !slices.Contains(offline, key(1)) {
		t.Errorf("reported offline: %v", offline)
	}
}

// A search by time that meets damage behind a batch that only promised the time says
// so, and not that there is no such record.
func TestASearchByTimeReportsTheDamageItMeets(t *testing.T) {
	memory := vfs.NewMemory()
	e := open(t, memory)
	p := part(t, e, 1)
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Add(batch.NewRecord{Timestamp: 2000, Value: []byte("below the start")})
	b.Add(batch.NewRecord{Timestamp: 1000, Value: []byte("too early")})
	first, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, Append{Partition: p, Batch: first})
	put(t, e, Append{Partition: p, Batch: plain("x")})
	pending, _, err := p.DeleteRecords(1)
	if err != nil || pending.Wait(t.Context()) != nil {
		t.Fatalf("delete records: %v", err)
	}
	s := p.segments()[0]
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	edit(t, memory, s.Path(), flip(func(int64) int64 { return int64(first.Len()) + 16 })) // the magic
	if found, ok, err := p.OffsetForTimestamp(1500, model.ReadUncommitted); err == nil {
		t.Errorf("found %+v, %v", found, ok)
	}
}
