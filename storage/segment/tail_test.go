package segment

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// leavers is a file system that notes what is sent to the disk.
type leavers struct {
	vfs.FS
	sent [][2]int64 // from, to
}

func (l *leavers) Create(name string) (vfs.File, error) {
	f, err := l.FS.Create(name)
	return leaver{f, l}, err
}

type leaver struct {
	vfs.File
	all *leavers
}

func (l leaver) StartWriteback(off, n int64) { l.all.sent = append(l.all.sent, [2]int64{off, off + n}) }

// A log leaves for the disk while it grows: every byte once, in good pieces, from the
// first on; and what is written again in its place leaves again.
func TestALogLeavesForTheDiskWhileItGrows(t *testing.T) {
	for _, size := range []int{1_000, 300_000} {
		l := &leavers{FS: vfs.NewMemory()}
		s := newSegment(NewFiles(l, 3), Meta{}, 100)
		for i := range 3_000_000 / size {
			add(t, s, build(t, model.Offset(i), 1, 1, size))
		}
		at := int64(0)
		for _, piece := range l.sent {
			if piece[0] != at || piece[1]-piece[0] < leaveBytes {
				t.Errorf("batches of %d: sent %v", size, l.sent)
				break
			}
			at = piece[1]
		}
		if rest := s.Size() - at; rest >= leaveBytes+tailBytes {
			t.Errorf("batches of %d: %d bytes of %d were not sent", size, rest, s.Size())
		}
		again := build(t, 9_999, 1, 1, 300_000)
		for range 2 {
			end := s.Size()
			l.sent = nil
			if err := s.Write(again.Bytes(), end); err != nil {
				t.Fatal(err)
			}
			if n := len(l.sent); n == 0 || l.sent[n-1][1] != end+int64(again.Len()) {
				t.Errorf("batches of %d: written at %d, sent %v", size, end, l.sent)
			}
			if err := s.Undo(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Small batches leave together; whoever wants the file finds all of them in it.
func TestSmallBatchesAreWrittenTogether(t *testing.T) {
	memory := vfs.NewMemory()
	fault := vfs.NewFault(memory)
	s := newSegment(NewFiles(fault, 3), Meta{}, 100)
	var want []byte
	for i := range 200 {
		v := build(t, model.Offset(i), 1, 1, 50)
		add(t, s, v)
		want = append(want, v.Bytes()...)
	}
	writes := fault.Count(vfs.OpWrite)
	if whole := 1 + len(want)/tailBytes; writes > whole+1 {
		t.Errorf("%d writes for %d bytes", writes, len(want))
	}
	got := make([]byte, len(want))
	if err := s.Read(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read back: %v", err)
	}
	if f, err := vfs.ReadFile(memory, s.Path(), 1<<20); err != nil || !bytes.Equal(f, want) {
		t.Errorf("the file has %d bytes of %d: %v", len(f), len(want), err)
	}
	s.Release()
}

// A tail that cannot be written stays, and goes out when it can.
func TestATailOutlivesAFailedWrite(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMemory())
	s := newSegment(NewFiles(fault, 3), Meta{}, 100)
	var want []byte
	for i := range 3 {
		v := build(t, model.Offset(i), 1, 1, 50)
		add(t, s, v)
		want = append(want, v.Bytes()...)
	}
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Times: 3, Err: syscall.ENOSPC, Short: 10})
	if _, err := s.Acquire(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("acquire: %v", err)
	}
	if _, err := s.Sync(); !errors.Is(err, syscall.ENOSPC) || !s.Dirty() {
		t.Errorf("sync: %v, dirty %v", err, s.Dirty())
	}
	large := build(t, 3, 1, 1, tailBytes)
	if err := s.Write(large.Bytes(), s.Size()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write behind it: %v", err)
	}
	if _, err := s.Cut(); err != nil {
		t.Errorf("cut: %v", err)
	}
	add(t, s, large)
	want = append(want, large.Bytes()...)
	got := make([]byte, len(want))
	if err := s.Read(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read back: %v", err)
	}
}

// Readers, syncs and the closing of files for others run while batches gather; a
// reader finds everything below the size it saw.
func TestTailsUnderConcurrentUse(t *testing.T) {
	memory := vfs.NewMemory()
	files := NewFiles(memory, 1) // every use of one segment closes the other's file
	var segments [2]*Segment
	for n := range segments {
		dir := fmt.Sprintf("p%d", n)
		segments[n] = New(files, dir, []string{dir, "."}, Meta{}, 100)
	}
	var done atomic.Bool
	var readers, writers sync.WaitGroup
	for n, s := range segments {
		writers.Go(func() {
			for i := range 2000 {
				add(t, s, build(t, model.Offset(i), 1, 1, 20+i%7))
				if i%50 == 0 {
					if _, err := s.Sync(); err != nil {
						t.Error(err)
					}
				}
			}
		})
		readers.Go(func() {
			for !done.Load() {
				size := s.Size()
				var last int64
				err := s.Headers(0, size, func(h *batch.Header, pos int64) bool {
					last = pos + int64(h.Len)
					return true
				})
				if err != nil || last != size {
					t.Errorf("segment %d: batches up to %d of %d: %v", n, last, size, err)
					return
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	for n, s := range segments {
		if _, err := s.Sync(); err != nil || s.Dirty() {
			t.Errorf("segment %d: dirty %v, %v", n, s.Dirty(), err)
		}
		if b, err := vfs.ReadFile(memory.Crash(nil), s.Path(), 1<<20); err != nil || int64(len(b)) != s.Size() {
			t.Errorf("segment %d: %d bytes survive of %d: %v", n, len(b), s.Size(), err)
		}
	}
	if n := files.tails.Load(); n != 0 {
		t.Errorf("%d tails are left", n)
	}
}
