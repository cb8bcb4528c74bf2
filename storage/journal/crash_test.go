package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/perigeemq/perigee/storage/vfs"
)

// promised is what a run told its caller before it was cut off.
type promised struct {
	acked      int64 // entries 0 to acked-1 are durable
	sequenced  int64 // entries that were queued at all
	checkpoint int64 // entries below it may be gone
}

// run opens the journal and adds entries until the disk stops or there are
// enough. Entry i begins with offset i. Sometimes several are queued at once,
// sometimes one is larger than a file, sometimes a checkpoint trims.
func run(fs vfs.FS, p *promised, until int64) error {
	c, err := ReadCheckpoint(fs, ".")
	if err != nil {
		return err
	}
	records, r, err := recoverAll(fs, RecoverOptions{From: c.Position})
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	if err := p.check(c, records); err != nil {
		return err
	}
	w, err := Open(r, Options{FS: fs, FileBytes: testFileBytes, Spares: 1})
	if err != nil {
		return err
	}
	defer w.Close()
	for p.sequenced < until {
		if err := step(fs, w, p); err != nil {
			return err
		}
	}
	return nil
}

// check compares what came back with what was promised, and goes on from there.
func (p *promised) check(c Checkpoint, records []Record) error {
	first := p.checkpoint
	if len(c.Payload) > 0 {
		first = int64(c.Payload[0])
	}
	next := first
	for _, rec := range records {
		if int64(rec.Items[0].Offset) != next {
			return violation{fmt.Sprintf("entry %d where %d should be", rec.Items[0].Offset, next)}
		}
		next++
	}
	if next < p.acked || next > p.sequenced {
		return violation{fmt.Sprintf("entries %d to %d came back, promised %+v", first, next, *p)}
	}
	p.acked, p.sequenced = next, next
	return nil
}

// violation is a broken promise, as opposed to the stopped disk.
type violation struct{ what string }

func (v violation) Error() string { return v.what }

func step(fs vfs.FS, w *Writer, p *promised) error {
	size, count := 300, int64(1)
	switch p.sequenced % 10 {
	case 3:
		count = 4
	case 8:
		size = 2 * testFileBytes
	}
	var last Queued
	var err error
	for range count {
		p.sequenced++
		if last, err = w.Enqueue(&Entry{Items: inline(p.sequenced-1, size)}); err != nil {
			p.sequenced--
			return err
		}
	}
	<-last.Group.Done()
	if err := last.Group.Err(); err != nil {
		return err
	}
	p.acked = p.sequenced
	awaitIdlePreparer(w)
	if p.acked%7 != 0 {
		return nil
	}
	trim, err := WriteCheckpoint(fs, ".", Checkpoint{Position: w.End(), Payload: []byte{byte(p.acked)}})
	if err != nil {
		return err
	}
	p.checkpoint = p.acked
	return w.Trim(trim)
}

// The same work is cut after every single change of the disk, the power goes with
// any part of the unsynced bytes, and what was promised must be there; twice, the
// second cut falling into the recovery and the work after it.
func TestCrashAnywhere(t *testing.T) {
	const first, second = 40, 70
	for stop := 0; ; stop++ {
		mem := vfs.NewMemory()
		fault := vfs.NewFault(mem)
		fault.StopAfter(stop)
		var p promised
		err := run(fault, &p, first)
		if _, broken := errors.AsType[violation](err); broken {
			t.Fatalf("stop %d: %v", stop, err)
		}
		if !fault.Stopped() {
			ok(t, err)
			return
		}
		for seed := range uint64(3) {
			crashAgain(t, mem, p, stop, seed, second)
		}
	}
}

func crashAgain(t *testing.T, mem *vfs.Memory, p promised, stop int, seed uint64, until int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(stop), seed))
	again := mem.Crash(rng)
	if seed == 0 {
		again = mem.Crash(nil)
	}
	fault := vfs.NewFault(again)
	fault.StopAfter(rng.IntN(60))
	err := run(fault, &p, until)
	if err != nil && !errors.Is(err, vfs.ErrStopped) {
		t.Fatalf("stop %d, seed %d: second run: %v", stop, seed, err)
	}
	if err := run(again.Crash(rng), &p, until); err != nil {
		t.Fatalf("stop %d, seed %d: third run: %v", stop, seed, err)
	}
}

// What a torn write left in a file must not come back when the file is used again
// at the same position: only the salt tells it from what belongs there.
func TestRemainsOfATornWriteStayDead(t *testing.T) {
	const pageful = pageBytes - entryHeaderBytes - inlineBytes // so that padding hides nothing
	mem := vfs.NewMemory()
	g := newGate(mem)
	w := open(t, g, Options{FileBytes: 1 << 20})
	g.set(true)
	_, err := w.Enqueue(&Entry{Items: inline(0, 10)})
	ok(t, err)
	g.awaitSync()
	// The power goes: of one write only the second entry reached the disk.
	torn := mem.Clone()
	var e encoded
	ok(t, e.encode(inline(1, pageful)))
	e.place(pageBytes, 0, w.current.header.salt)
	edit(t, torn, journalFile(1), func(f vfs.File) {
		_, err := f.WriteAt(make([]byte, pageBytes), fileHeaderBytes)
		ok(t, err)
		_, err = f.Writev(e.bufs, fileHeaderBytes+pageBytes)
		ok(t, err)
	})
	g.set(false)
	ok(t, w.Close())

	w = open(t, torn, Options{FileBytes: 1 << 20})
	ok(t, w.Trim(w.End()))
	ok(t, w.Close())
	w = open(t, torn, Options{FileBytes: 1 << 20})
	if s := w.Stats(); s.Recycled != 1 || s.End != 0 {
		t.Fatalf("the torn file was not used again at its position: %+v", s)
	}
	add(t, w, inline(7, pageful))
	ok(t, w.Close())
	records, _, err := recoverAll(torn, RecoverOptions{})
	ok(t, err)
	wantOffsets(t, records, 7)
}
