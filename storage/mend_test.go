package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

const mendDir = "topics/AQAAAAAAAAAAAAAAAAAAAQ/1"

// mendable is a stopped directory with a partition of 40 records of one producer, four
// batches to a segment, and where its batches stand.
func mendable(t *testing.T) (fs *vfs.Memory, want []string, length int64) {
	fs = vfs.NewMemory()
	open(t, fs).Close(t.Context()) // so that leader epochs are not zeros
	e := open(t, fs)
	length = int64(idempotent(7, 0, 0, "some value 00").Len())
	p := part(t, e, 1, func(c *PartitionConfig) { c.SegmentBytes = 4 * length })
	for i := range 40 {
		put(t, e, Append{Partition: p, Batch: idempotent(7, 0, model.Sequence(i), fmt.Sprintf("some value %02d", i))})
	}
	want = values(t, p)
	shut(t, e)
	return fs, want, length
}

// A repair looks at every batch and gives up only what cannot be read; offsets,
// bounds and producers stay, whatever happens next.
func TestARepairGivesUpOnlyWhatCannotBeRead(t *testing.T) {
	type damage func(t *testing.T, fs *vfs.Memory, log string, length int64)
	flipIn := func(at int64) damage {
		return func(t *testing.T, fs *vfs.Memory, log string, length int64) {
			edit(t, fs, log, flip(func(int64) int64 { return length + at }))
		}
	}
	for name, c := range map[string]struct {
		do   damage
		lost []int // of the segment's four
	}{
		"a value":                {flipIn(70), []int{1}},
		"a checksum":             {flipIn(17), []int{1}},
		"a length, much too big": {flipIn(8), []int{1}},
		"a length, a bit off":    {flipIn(11), []int{1}},
		"a magic":                {flipIn(16), []int{1}},
		"an offset, far off":     {flipIn(3), nil},
		"an offset, a bit off":   {flipIn(7), nil},
		"an epoch":               {flipIn(15), nil},
		"two batches": {func(t *testing.T, fs *vfs.Memory, log string, length int64) {
			flipIn(70)(t, fs, log, length)
			edit(t, fs, log, flip(func(int64) int64 { return 3*length + 8 }))
		}, []int{1, 3}},
		"the file's end": {func(t *testing.T, fs *vfs.Memory, log string, length int64) { edit(t, fs, log, cut(3)) }, []int{3}},
		"zeros": {func(t *testing.T, fs *vfs.Memory, log string, length int64) {
			edit(t, fs, log, func(f vfs.File, _ int64) error {
				_, err := f.WriteAt(make([]byte, 2*length-10), length/2)
				return err
			})
		}, []int{0, 1, 2}},
		"the file": {func(t *testing.T, fs *vfs.Memory, log string, _ int64) {
			if err := fs.Remove(log); err != nil {
				t.Fatal(err)
			}
		}, []int{0, 1, 2, 3}},
	} {
		for at, segment := range map[string]int{"the first": 0, "a middle": 5, "the last": 9} {
			t.Run(name+" in "+at+" segment", func(t *testing.T) {
				fs, want, length := mendable(t)
				c.do(t, fs, names(t, fs, mendDir, ".log")[segment], length)
				want = slices.Clone(want)
				for _, n := range slices.Backward(c.lost) {
					want = slices.Delete(want, 4*segment+n, 4*segment+n+1)
				}
				repaired(t, fs, want)
			})
		}
	}
}

// repaired repairs a directory, interrupted now and then, and looks at it after a
// crash, appends, and a stop.
func repaired(t *testing.T, fs *vfs.Memory, want []string) {
	t.Helper()
	repair := func(o *Options) { o.Repair = true }
	for _, log := range names(t, fs, mendDir, ".log") {
		edit(t, fs, log, func(f vfs.File, _ int64) error { return f.Sync() })
	}
	if err := fs.SyncDir(mendDir); err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		fault := vfs.NewFault(fs)
		fault.StopAfter(3 * n)
		if e, err := Open(t.Context(), Options{FS: fault, JournalFileBytes: 1 << 20, ReserveBytes: -1, Repair: true}); err == nil {
			e.Close(t.Context())
		}
		fs = fs.Crash(nil)
	}
	e := open(t, fs, repair)
	for what, open := range map[string]*Engine{"repaired": e, "after a crash": open(t, fs.Crash(nil))} {
		p := part(t, open, 1)
		if got := values(t, p); !slices.Equal(got, want) || p.Bounds() != (model.Bounds{Stable: 40, High: 40, End: 40}) {
			t.Fatalf("%s: %+v, %q, want %q", what, p.Bounds(), got, want)
		}
		if end := followed(t, p, 0); end != 40 {
			t.Errorf("%s: a client gets to %d", what, end)
		}
		put(t, open, Append{Partition: p, Batch: idempotent(7, 0, 40, "more")})
		if at := put(t, open, Append{Partition: p, Batch: idempotent(7, 0, 38, "some value 38")}).At(0); at.Base != 38 || !at.Duplicate {
			t.Errorf("%s: repeated batch %+v", what, at)
		}
	}
	crashed := fs.Crash(nil)
	if got := values(t, part(t, open(t, crashed), 1)); !slices.Equal(got, append(want, "40:more")) {
		t.Errorf("after a crash: %q", got)
	}
	shut(t, e)
	if report, err := Check(t.Context(), Options{FS: fs}); err != nil || len(report.Damage) > 0 {
		t.Errorf("the checker finds %v, %v", report, err)
	}
}

// Behind a damaged batch that the journal refers to stands more, in the file and in the
// journal alone.
func TestARepairGoesOnBehindADamagedReference(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs, func(o *Options) { o.ReferenceThreshold = 1000 })
	p := part(t, e, 1)
	large := strings.Repeat("x", 5000)
	for i := range 9 {
		value := "small"
		if i%3 == 1 {
			value = large
		}
		put(t, e, Append{Partition: p, Batch: idempotent(7, 0, model.Sequence(i), value)})
	}
	want := slices.Delete(values(t, p), 4, 5)
	crashed := fs.Crash(nil)
	edit(t, crashed, names(t, crashed, mendDir, ".log")[0], flip(func(int64) int64 { return 10_000 })) // in the second large one
	e = open(t, crashed, func(o *Options) { o.Repair = true })
	p = part(t, e, 1)
	if got := values(t, p); !slices.Equal(got, want) || p.Bounds().High != 9 {
		t.Errorf("%+v, %.40q", p.Bounds(), got)
	}
	put(t, e, Append{Partition: p, Batch: idempotent(7, 0, 9, "more")})
	shut(t, e)
	if report, err := Check(t.Context(), Options{FS: crashed}); err != nil || len(report.Damage) > 0 {
		t.Errorf("the checker finds %v, %v", report, err)
	}
}

// Whoever is told of a rolled back transaction waits for its marker, or would hide what
// its producer writes later.
func TestARepairWritesAbortMarkersAgain(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs)
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: transactional(9, 3, 0, "undone"), Txn: TxnOpen})
	at := p.segments()[0].Size()
	put(t, e, Append{Partition: p, Batch: marker(9, 3, batch.Abort), Internal: true})
	put(t, e, Append{Partition: p, Batch: transactional(9, 3, 1, "done"), Txn: TxnOpen})
	put(t, e, Append{Partition: p, Batch: marker(9, 3, batch.Commit), Internal: true})
	want := values(t, p)
	shut(t, e)
	edit(t, fs, names(t, fs, mendDir, ".log")[0], flip(func(int64) int64 { return at + 62 }))
	e = open(t, fs, func(o *Options) { o.Repair = true })
	if got := values(t, part(t, e, 1)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	shut(t, e)
	if report, err := Check(t.Context(), Options{FS: fs}); err != nil || len(report.Damage) > 0 {
		t.Errorf("the checker finds %v, %v", report, err)
	}
}

// A catalog that has lost a fact does not know a topic any more. Its data stays.
func TestARepairDeletesNothing(t *testing.T) {
	fs := damageable(t, true)
	e := open(t, fs, func(o *Options) { o.Repair = true })
	if err := e.Retain(func(tp model.TopicPartition) bool { return tp == key(2) }); err != nil {
		t.Fatal(err)
	}
	if _, there := e.Partition(key(1)); there {
		t.Error("a partition without a topic is there")
	}
	if got := values(t, part(t, e, 2)); len(got) != 20 {
		t.Errorf("the other has %d records", len(got))
	}
	shut(t, e)
	e = open(t, fs)
	if err := e.Retain(func(tp model.TopicPartition) bool { return tp == key(2) }); err != nil {
		t.Fatal(err)
	}
	shut(t, e)
	if logs := names(t, fs, mendDir+asideSuffix, ".log"); len(logs) < 5 {
		t.Errorf("left of it: %v", logs)
	}
}

// A damaged identity is met by its checksum and not believed. A repair keeps what it
// can, and counts on above every epoch in the logs.
func TestADamagedIdentityIsNotBelieved(t *testing.T) {
	fs := vfs.NewMemory()
	var cluster string
	for range 5 {
		e := open(t, fs)
		cluster = e.Identity().ClusterID
		put(t, e, Append{Partition: part(t, e, 1), Batch: plain("x")})
		shut(t, e)
	}
	content, err := vfs.ReadFile(fs, identityFile, identityLimit)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for name, c := range map[string]struct {
		content string
		keeps   bool
	}{
		"another cluster": {strings.Replace(text, cluster, "A"+cluster[1:21]+"A", 1), false},
		"fewer starts":    {strings.Replace(text, `"incarnation": 4`, `"incarnation": 0`, 1), true},
		"a clean stop":    {strings.Replace(text, `"clean": true`, `"clean": false`, 1), true},
		"no JSON":         {text[1:], false},
		"nothing":         {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			fs := fs.Clone()
			if err := vfs.WriteFile(fs, ".", identityFile, []byte(c.content)); err != nil {
				t.Fatal(err)
			}
			if report, err := Check(t.Context(), Options{FS: fs}); err != nil || len(report.Damage) != 1 || report.Damage[0].File != identityFile {
				t.Errorf("the checker finds %+v, %v", report, err)
			}
			_, err := tryOpen(t, fs)
			if damage, ok := errors.AsType[*CorruptionError](err); !ok || damage.File != identityFile {
				t.Fatalf("opened: %v", err)
			}
			e := open(t, fs, func(o *Options) { o.Repair = true })
			if id := e.Identity(); id.Incarnation < 5 || (id.ClusterID == cluster) != c.keeps && c.keeps {
				t.Errorf("identity %+v, was %s", id, cluster)
			}
			if got := values(t, part(t, e, 1)); len(got) != 5 {
				t.Errorf("%d records", len(got))
			}
			shut(t, e)
			shut(t, open(t, fs))
		})
	}
	// A later version may count its checksum in another way; nobody repairs what is its.
	later := fs.Clone()
	if err := vfs.WriteFile(later, ".", identityFile, []byte(strings.Replace(text, `"format": 1`, `"format": 9`, 1))); err != nil {
		t.Fatal(err)
	}
	_, err = tryOpen(t, later, func(o *Options) { o.Repair = true })
	if version, ok := errors.AsType[*VersionError](err); !ok || version.Found != 9 {
		t.Errorf("opened a later version's: %v", err)
	}
	var old map[string]any
	if err := json.Unmarshal(content, &old); err != nil {
		t.Fatal(err)
	}
	delete(old, "sum") // as earlier versions wrote it
	content, err = json.Marshal(old)
	if err == nil {
		err = vfs.WriteFile(fs, ".", identityFile, content)
	}
	if err != nil {
		t.Fatal(err)
	}
	if id := open(t, fs).Identity(); id.ClusterID != cluster || id.Incarnation != 5 {
		t.Errorf("identity %+v of a file without checksum", id)
	}
}
