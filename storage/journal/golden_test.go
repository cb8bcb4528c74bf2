package journal

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The bytes on disk are a promise to every later release: version 1 is these.
func TestFormatIsTheGoldenOne(t *testing.T) {
	tp := model.TopicPartition{Topic: testTopic, Partition: 0x01020304}
	var e encoded
	ok(t, e.encode([]Item{
		{Kind: KindInline, Partition: tp, Offset: 0x1122334455, SegmentBase: 0x1122334400, Position: 0x10203040, Bytes: []byte("batch")},
		{Kind: KindReference, Partition: tp, Offset: 0x1122334456, SegmentBase: 0x1122334400, Position: 0x10203045, Length: 0x200000, CRC: 0xfeedface},
		{Kind: KindSetStart, Partition: tp, Offset: 0x1122334450},
	}))
	e.place(0x4000, 0x3000, 0x5a175a175a175a17)
	c := Checkpoint{Generation: 3, Position: 0x4000, Payload: []byte("the engine's own")}
	golden(t, "entry", bytes.Join(e.bufs, nil))
	golden(t, "file_header", fileHeader{number: 12, salt: 0x5a175a175a175a17, start: 0x4000}.encode()[:64])
	golden(t, "checkpoint", c.encode())
}

// A checksum that is given makes the same entry as one that is computed.
func TestAGivenChecksumMakesTheSameEntry(t *testing.T) {
	items := append(inline(7, 5000), inline(8, 40_000)...)
	given := slices.Clone(items)
	for i := range given {
		given[i].CRC, given[i].Summed = Checksum(given[i].Bytes), true
	}
	var computed, taken encoded
	ok(t, computed.encode(items))
	ok(t, taken.encode(given))
	if computed.header != taken.header {
		t.Errorf("header %x, want %x", taken.header, computed.header)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		ok(t, os.MkdirAll("testdata", 0o755))
		ok(t, os.WriteFile(path, []byte(hex.Dump(got)), 0o644))
	}
	want, err := os.ReadFile(path)
	ok(t, err)
	if hex.Dump(got) != string(want) {
		t.Errorf("%s is\n%swant\n%s", name, hex.Dump(got), want)
	}
}

// FuzzItems feeds the entry parser bytes whose checksum it would have accepted:
// whatever it takes it must write again as the same bytes.
func FuzzItems(f *testing.F) {
	for _, items := range [][]Item{inline(1, 10), {{Kind: KindSetStart, Offset: 4}}, {{Kind: KindReference, Length: 3, CRC: 9}}, nil} {
		var e encoded
		ok(f, e.encode(items))
		f.Add(slices.Concat(e.bufs[1:]...), uint32(len(items)))
	}
	f.Fuzz(func(t *testing.T, body []byte, count uint32) {
		items, err := parseItems(nil, body, count)
		if err != nil {
			return
		}
		var e encoded
		ok(t, e.encode(items))
		if again := slices.Concat(e.bufs[1:]...); !bytes.Equal(again[:len(body)], body) {
			t.Fatalf("%x was read as %v and written as %x", body, items, again)
		}
	})
}

// FuzzFile replays a file with any content. It may find damage, never panic, and
// never take an entry that was not written.
func FuzzFile(f *testing.F) {
	fs := vfs.NewMemory()
	w := open(f, fs, Options{FileBytes: 2 * fileHeaderBytes})
	for i := range int64(3) {
		add(f, w, inline(i, 50))
	}
	ok(f, w.Close())
	name := Directory + "/" + fileName(1)
	whole, err := vfs.ReadFile(fs, name, 1<<20)
	ok(f, err)
	f.Add(whole, uint16(0))
	f.Add(whole[:len(whole)/2], uint16(200))
	f.Add([]byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, content []byte, from uint16) {
		fs := vfs.NewMemory()
		ok(t, fs.MkdirAll(Directory))
		file, err := fs.Create(name)
		ok(t, err)
		_, err = file.WriteAt(content, 0)
		ok(t, err)
		for _, repair := range []bool{false, true} {
			records, _, _ := recoverAll(fs, RecoverOptions{From: LSN(from), Repair: repair})
			for i, rec := range records {
				if rec.End <= rec.Start || i > 0 && rec.Start != records[i-1].End {
					t.Fatalf("entries at %d to %d, then %d", records[i-1].Start, records[i-1].End, rec.Start)
				}
			}
		}
	})
}
