package segment

import (
	"slices"
	"testing"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Directories that log files share are synced once for all that was made in them;
// what is made while a sync runs needs another.
func TestSharedDirectoriesAreSyncedOnce(t *testing.T) {
	var n names
	var synced []string
	sync := func(dir string) error { synced = append(synced, dir); return nil }
	all := func(dirs ...string) {
		for _, dir := range dirs {
			if err := n.sync(dir, sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.made([]string{"t/0", "t", "."})
	n.made([]string{"t/1", "t", "."})
	all("t/0", "t", ".", "t/1", "t", ".")
	if want := []string{"t/0", "t", ".", "t/1"}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	n.made([]string{"t/2", "t", "."})
	during := func(dir string) error { n.made([]string{"t/3", "t", "."}); return sync(dir) }
	if err := n.sync("t", during); err != nil {
		t.Fatal(err)
	}
	synced = nil
	all("t", "t")
	if !slices.Equal(synced, []string{"t"}) {
		t.Errorf("synced %q, want the directory that got an entry meanwhile", synced)
	}
	if len(n.open) != 3 { // t/2, t/3, .
		t.Errorf("open %v", n.open)
	}
}

func TestNamesSurviveWhateverSegmentIsSyncedFirst(t *testing.T) {
	memory := vfs.NewMemory()
	files := NewFiles(memory, 5)
	var segments []*Segment
	for _, dir := range []string{"t/0", "t/1", "t/2"} {
		s := New(files, dir, []string{dir, "t", "."}, Meta{}, 100)
		add(t, s, build(t, 0, 1, 1, 10))
		segments = append(segments, s)
	}
	for _, s := range slices.Backward(segments) {
		if _, err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, err := vfs.ReadFile(memory.Crash(nil), s.Path(), 1000); err != nil {
			t.Errorf("%s: %v", s.Path(), err)
		}
	}
}
