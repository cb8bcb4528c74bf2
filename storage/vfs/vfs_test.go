package vfs

import (
	"bytes"
	"errors"
	"io"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// implementations are the file systems that must behave alike.
func implementations(t *testing.T) map[string]FS {
	disk, err := OpenDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	return map[string]FS{"disk": disk, "memory": NewMemory(), "fault": NewFault(NewMemory())}
}

func TestConformance(t *testing.T) {
	stories := map[string]func(*testing.T, FS){
		"a file grows, shrinks and reads back":     testBytes,
		"vectors are written one after the other":  testVectors,
		"more vectors than one system call takes":  testManyVectors,
		"allocated bytes are zero":                 testAllocate,
		"direct writes are read by others":         testDirect,
		"names move, vanish and are listed sorted": testNames,
		"missing names say so":                     testMissing,
		"a removed file stays readable while open": testUnlinked,
		"one lock, one holder":                     testLock,
		"a small file is replaced whole":           testWriteFile,
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			for kind, fs := range implementations(t) {
				t.Run(kind, func(t *testing.T) { story(t, fs) })
			}
		})
	}
}

func create(t *testing.T, fs FS, name string) File {
	t.Helper()
	f, err := fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, f File, off int64, text string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(text), off); n != len(text) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(text), err)
	}
}

func content(t *testing.T, f File) string {
	t.Helper()
	size, err := f.Size()
	ok(t, err)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	return string(b)
}

func wantContent(t *testing.T, f File, want string) {
	t.Helper()
	if got := content(t, f); got != want {
		t.Fatalf("content is %q, want %q", got, want)
	}
}

func testBytes(t *testing.T, fs FS) {
	f := create(t, fs, "file")
	write(t, f, 3, "abcdef")
	wantContent(t, f, "\x00\x00\x00abcdef")
	write(t, f, 0, "XYZ")
	ok(t, f.Truncate(5))
	wantContent(t, f, "XYZab")
	ok(t, f.Truncate(7))
	wantContent(t, f, "XYZab\x00\x00")
	ok(t, f.Sync())
	if n, err := f.ReadAt(make([]byte, 4), 5); n != 2 || !errors.Is(err, io.EOF) {
		t.Fatalf("read %d bytes at the end, error %v", n, err)
	}
	again, err := fs.Open("file")
	ok(t, err)
	wantContent(t, again, "XYZab\x00\x00")
	ok(t, again.Close())
	create(t, fs, "file")
	wantContent(t, f, "")
}

func testVectors(t *testing.T, fs FS) {
	f := create(t, fs, "file")
	bufs := [][]byte{[]byte("ab"), nil, []byte("c"), {}, []byte("defg")}
	n, err := f.Writev(bufs, 1)
	if n != 7 || err != nil {
		t.Fatalf("wrote %d bytes: %v", n, err)
	}
	wantContent(t, f, "\x00abcdefg")
	if string(bufs[4]) != "defg" || len(bufs) != 5 {
		t.Fatalf("the caller's buffers changed: %q", bufs)
	}
}

func testManyVectors(t *testing.T, fs FS) {
	f := create(t, fs, "file")
	var bufs [][]byte
	var want []byte
	for i := range 2500 {
		b := strconv.AppendInt(nil, int64(i), 10)
		bufs, want = append(bufs, b), append(want, b...)
	}
	n, err := f.Writev(bufs, 0)
	if n != int64(len(want)) || err != nil {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(want), err)
	}
	wantContent(t, f, string(want))
}

func testAllocate(t *testing.T, fs FS) {
	f := create(t, fs, "file")
	write(t, f, 0, "kept")
	ok(t, f.Allocate(10_000))
	wantContent(t, f, "kept"+string(make([]byte, 9_996)))
	ok(t, f.Allocate(100))
	if size, _ := f.Size(); size != 10_000 {
		t.Fatalf("allocating less changed the size to %d", size)
	}
}

func names(t *testing.T, fs FS, dir string) (names []string) {
	t.Helper()
	infos, err := fs.ReadDir(dir)
	ok(t, err)
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return names
}

func testDirect(t *testing.T, fs FS) {
	reader := create(t, fs, "file")
	f, err := fs.OpenDirect("file")
	ok(t, err)
	ok(t, f.Allocate(3*Block))
	b := Aligned(2 * Block)
	copy(b, "first")
	copy(b[Block:], "second")
	for _, n := range []int{Block, 2 * Block} {
		if got, err := f.WriteAt(b[:n], Block); got != n || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", got, n, err)
		}
	}
	ok(t, f.Sync())
	ok(t, f.Close())
	if got := content(t, reader); got != string(make([]byte, Block))+string(b) {
		t.Fatalf("%d bytes read back, other than written", len(got))
	}
	if _, err := fs.OpenDirect("missing"); !errors.Is(err, iofs.ErrNotExist) {
		t.Fatalf("open of a missing file: %v", err)
	}
}

// Memory does not let a test pass that a disk would refuse.
func TestMemoryRefusesUnalignedDirectWrites(t *testing.T) {
	fs := NewMemory()
	create(t, fs, "file")
	f, err := fs.OpenDirect("file")
	ok(t, err)
	b := Aligned(2 * Block)
	for name, write := range map[string]func() (int, error){
		"offset": func() (int, error) { return f.WriteAt(b[:Block], 512) },
		"length": func() (int, error) { return f.WriteAt(b[:512], 0) },
		"memory": func() (int, error) { return f.WriteAt(b[8:Block+8], 0) },
	} {
		if _, err := write(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testNames(t *testing.T, fs FS) {
	ok(t, fs.MkdirAll("a/b"))
	ok(t, fs.MkdirAll("a/b"))
	write(t, create(t, fs, "a/two"), 0, "22")
	write(t, create(t, fs, "a/one"), 0, "1")
	if got := names(t, fs, "a"); !slices.Equal(got, []string{"b", "one", "two"}) {
		t.Fatalf("listed %q", got)
	}
	ok(t, fs.Rename("a/two", "a/one"))
	info, err := fs.Stat("a/one")
	if err != nil || info.Size != 2 || info.Dir || info.Name != "one" {
		t.Fatalf("after the rename: %+v, %v", info, err)
	}
	if info, err := fs.Stat("a"); err != nil || !info.Dir {
		t.Fatalf("directory: %+v, %v", info, err)
	}
	ok(t, fs.Rename("a", "c"))
	if got := names(t, fs, "."); !slices.Equal(got, []string{"c"}) {
		t.Fatalf("listed %q", got)
	}
	if fs.Remove("c") == nil {
		t.Fatal("removed a directory that is not empty")
	}
	ok(t, fs.Remove("c/one"))
	ok(t, fs.SyncDir("c"))
	ok(t, fs.RemoveAll("c"))
	ok(t, fs.RemoveAll("c"))
	if got := names(t, fs, "."); len(got) != 0 {
		t.Fatalf("left over: %q", got)
	}
	if free, total, err := fs.Free(); err != nil || free <= 0 || free > total {
		t.Fatalf("free %d of %d, %v", free, total, err)
	}
}

func testMissing(t *testing.T, fs FS) {
	_, opened := fs.Open("no")
	_, created := fs.Create("no/file")
	_, listed := fs.ReadDir("no")
	_, described := fs.Stat("no")
	for what, err := range map[string]error{"open": opened, "create": created, "list": listed, "stat": described,
		"remove": fs.Remove("no"), "rename": fs.Rename("no", "yes"), "sync": fs.SyncDir("no")} {
		if !errors.Is(err, iofs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func testUnlinked(t *testing.T, fs FS) {
	f := create(t, fs, "file")
	write(t, f, 0, "still here")
	ok(t, fs.Remove("file"))
	wantContent(t, f, "still here")
	ok(t, f.Close())
	if f.Sync() == nil {
		t.Fatal("a closed file was synced")
	}
}

func testLock(t *testing.T, fs FS) {
	lock, err := fs.Lock("lock")
	ok(t, err)
	_, err = fs.Lock("lock")
	held, isHeld := errors.AsType[*LockedError](err)
	if !isHeld {
		t.Fatalf("second lock: %v", err)
	}
	if _, disk := fs.(*Disk); disk && held.Holder != strconv.Itoa(os.Getpid()) {
		t.Fatalf("holder is %q", held.Holder)
	}
	ok(t, lock.Close())
	lock, err = fs.Lock("lock")
	ok(t, err)
	ok(t, lock.Close())
}

func testWriteFile(t *testing.T, fs FS) {
	ok(t, fs.MkdirAll("d"))
	ok(t, WriteFile(fs, "d", "f", []byte("first")))
	ok(t, WriteFile(fs, "d", "f", []byte("second")))
	b, err := ReadFile(fs, "d/f", 6)
	if string(b) != "second" || err != nil {
		t.Fatalf("read %q, %v", b, err)
	}
	if got := names(t, fs, "d"); !slices.Equal(got, []string{"f"}) {
		t.Fatalf("listed %q", got)
	}
	if _, err := ReadFile(fs, "d/f", 5); err == nil {
		t.Fatal("read more than the limit")
	}
}

// A kernel may take less than it is offered, at any byte.
func TestPartialWritesAreContinued(t *testing.T) {
	disk, err := OpenDisk(t.TempDir())
	ok(t, err)
	defer disk.Close()
	f := create(t, disk, "file").(*diskFile)
	rng := rand.New(rand.NewPCG(1, 2))
	f.pwritev = func(f *os.File, bufs [][]byte, off int64) (int, error) {
		b := slices.Concat(bufs...)
		return f.WriteAt(b[:1+rng.IntN(min(len(b), 40))], off)
	}
	var bufs [][]byte
	for i := range 200 {
		bufs = append(bufs, bytes.Repeat([]byte{byte(i)}, rng.IntN(30)))
	}
	n, err := f.Writev(bufs, 0)
	if want := slices.Concat(bufs...); n != int64(len(want)) || err != nil || content(t, f) != string(want) {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(want), err)
	}
	f.pwritev = func(*os.File, [][]byte, int64) (int, error) { return 0, nil }
	if _, err := f.Writev(bufs, 0); !errors.Is(err, io.ErrShortWrite) {
		t.Fatalf("a write that makes no progress: %v", err)
	}
}

func TestNamesCannotLeaveTheRoot(t *testing.T) {
	disk, err := OpenDisk(t.TempDir())
	ok(t, err)
	defer disk.Close()
	if _, err := disk.Create("../outside"); err == nil {
		t.Fatal("created a file outside")
	}
}

// A data directory that is made is its owner's alone; one that is there stays as it is.
func TestTheDirectoryIsItsOwners(t *testing.T) {
	made := filepath.Join(t.TempDir(), "a", "data") + "/"
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o750); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{made: 0o700, shared: 0o750} {
		for range 2 {
			d, err := OpenDisk(path)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
		}
		if is, err := os.Stat(path); err != nil || is.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, is.Mode(), err, want)
		}
	}
}
