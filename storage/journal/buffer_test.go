package journal

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Whatever is gathered, and however it falls over pages and full buffers, stands in
// the file after each finish, with zeros behind it to the end of its page.
func TestBufferWritesWhatWasPut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	fs := vfs.NewMemory()
	created, err := fs.Create("file")
	ok(t, err)
	f, err := fs.OpenDirect("file")
	ok(t, err)
	var o buffer
	o.moveTo(pageBytes)
	want := make([]byte, pageBytes)
	sizes := []int{0, 1, 40, 4056, pageBytes, firstBufferBytes, maxBufferBytes - 1, maxBufferBytes + pageBytes}
	for round := range 20 {
		var pieces [][]byte
		var n int64
		for range 1 + rng.IntN(4) {
			p := make([]byte, sizes[rng.IntN(len(sizes))])
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			pieces = append(pieces, p)
			n += int64(len(p))
		}
		o.reserve(n)
		for _, p := range pieces {
			ok(t, o.put(f, p))
			want = append(want, p...)
		}
		ok(t, o.finish(f))
		if o.offset() != int64(len(want)) {
			t.Fatalf("round %d: at %d, not %d", round, o.offset(), len(want))
		}
		got := make([]byte, (len(want)+pageBytes-1)&^(pageBytes-1))
		if _, err := created.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[:len(want)], want) || !allZero(got[len(want):]) {
			t.Fatalf("round %d: the file differs", round)
		}
	}
}

// Making the next file keeps pace with the use of the current one: a burst of zeros
// would stand between a commit and the disk.
func TestTheNextFileIsMadeInStep(t *testing.T) {
	w := open(t, vfs.NewMemory(), Options{FileBytes: 4 << 20})
	for i := range int64(12) {
		add(t, w, inline(i, 90<<10))
		awaitIdlePreparer(w)
		w.mu.Lock()
		made, due, ready := w.mu.made, w.dueLocked(), w.mu.next != nil
		w.mu.Unlock()
		step := float64(fillBytes) / float64(fileGrowth*firstFileBytes)
		if !ready && made < due || made > due+step || ready && due < 1-step {
			t.Fatalf("after %d entries: %.2f of the next file is made (ready %v), %.2f is due", i+1, made, ready, due)
		}
		if ready {
			return
		}
	}
	t.Fatal("the next file never became ready")
}
