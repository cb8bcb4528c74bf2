package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// onDisk is a File with a descriptor.
type onDisk struct{ *os.File }

func (f onDisk) Fd() (uintptr, bool) { return f.File.Fd(), true }

// inMemory is one without.
type inMemory struct{ *bytes.Reader }

func (inMemory) Fd() (uintptr, bool) { return 0, false }

func TestRegionsArriveWholeAndInPlace(t *testing.T) {
	content := make([]byte, 3<<20)
	for i := range content {
		content[i] = byte(i * i >> 7)
	}
	path := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()

	regions := []struct{ pos, n int64 }{{0, 1}, {5, copyBelow}, {77, copyBelow + 1}, {1 << 20, 2 << 20}, {0, 3 << 20}}
	for _, c := range []struct {
		name      string
		file      File
		gatherers int32 // that are at it already
	}{
		{"disk", onDisk{disk}, 0},
		{"disk, while too many others gather", onDisk{disk}, 1 << 20},
		{"memory", inMemory{bytes.NewReader(content)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &Listener{Protocol: &script{serve: func(*Conn, *Frame) (Reply, error) {
				return func(context.Context) (Output, error) {
					var out Output
					for _, r := range regions {
						out.Parts = append(out.Parts, Part{Bytes: []byte("<")}, Part{File: c.file, Pos: r.pos, Len: r.n}, Part{Bytes: []byte(">")})
					}
					return out, nil
				}, nil
			}}}
			startTCP(t, Options{}, l).gathering.Store(c.gatherers)
			conn := dialTCP(t, l)
			send(t, conn, framed("read"))
			var want []byte
			for _, r := range regions {
				want = append(append(append(want, '<'), content[r.pos:r.pos+r.n]...), '>')
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(conn, got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Error("the bytes differ")
			}
		})
	}
}

func TestAShrunkFileClosesTheConnection(t *testing.T) {
	why := make(reasons, 1)
	path := filepath.Join(t.TempDir(), "segment")
	os.WriteFile(path, make([]byte, 100<<10), 0o600)
	disk, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	l := &Listener{Protocol: &script{serve: func(*Conn, *Frame) (Reply, error) {
		return func(context.Context) (Output, error) {
			return Output{Parts: []Part{{File: onDisk{disk}, Pos: 0, Len: 200 << 10}}}, nil
		}, nil
	}}}
	s := startTCP(t, Options{Events: Events{Closed: why.record}}, l)
	for _, gatherers := range []int32{0, 1 << 20} { // see TestRegionsArriveWholeAndInPlace
		s.gathering.Store(gatherers)
		c := dialTCP(t, l)
		send(t, c, framed("read"))
		io.Copy(io.Discard, c)
		if err := <-why; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("closed because %v", err)
		}
	}
}
