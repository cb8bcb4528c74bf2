package producer

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perigeemq/perigee/storage/model"
)

// naive is the same partition without any cleverness: every batch there was.
type naive struct{ batches []Batch }

// firstOpen is the first offset of a transaction that has no marker.
func (n *naive) firstOpen(upTo int) model.Offset {
	first := model.NoOffset
	for id := range model.ProducerID(4) {
		if o := n.openSince(id, upTo); o != model.NoOffset && (first == model.NoOffset || o < first) {
			first = o
		}
	}
	return first
}

func (n *naive) openSince(id model.ProducerID, upTo int) model.Offset {
	since := model.NoOffset
	for _, b := range n.batches[:upTo] {
		switch {
		case b.ID != id:
		case b.Marker:
			since = model.NoOffset
		case b.Transactional && since == model.NoOffset:
			since = b.First
		}
	}
	return since
}

// hidden lists the offsets of rolled back records in [from, upper).
func (n *naive) hidden(from, upper model.Offset) (offsets []model.Offset) {
	for i, b := range n.batches {
		if b.Marker || !b.Transactional || b.First < from || b.First >= upper {
			continue
		}
		for _, m := range n.batches[i:] {
			if m.ID == b.ID && m.Marker {
				if m.Abort {
					offsets = append(offsets, b.First)
				}
				break
			}
		}
	}
	return offsets
}

// client hides what a client hides that was given a list: as librdkafka and
// franz-go do, by producer, popping an entry at its abort marker.
func (n *naive) client(list []Aborted, from, upper model.Offset) (offsets []model.Offset) {
	starts := map[model.ProducerID][]model.Offset{}
	for _, a := range list {
		starts[a.ProducerID] = append(starts[a.ProducerID], a.First)
	}
	for _, b := range n.batches {
		if b.First < from || b.First >= upper {
			continue
		}
		queue := starts[b.ID]
		switch {
		case len(queue) == 0 || queue[0] > b.First || !b.Transactional:
		case b.Marker && b.Abort:
			starts[b.ID] = queue[1:]
		case !b.Marker:
			offsets = append(offsets, b.First)
		}
	}
	return offsets
}

// TestReadersHideExactlyWhatWasRolledBack runs random transactions and compares
// table, list and client with the naive twin for every range below the stable end.
func TestReadersHideExactlyWhatWasRolledBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l log
		var twin naive
		sequence := map[model.ProducerID]model.Sequence{}
		for i := range rapid.IntRange(1, 60).Draw(t, "batches") {
			id := model.ProducerID(rapid.IntRange(0, 3).Draw(t, fmt.Sprint("producer", i)))
			open := twin.openSince(id, len(twin.batches)) != model.NoOffset
			b := Batch{ID: id, BaseSequence: sequence[id], LastSequence: sequence[id], Transactional: true}
			switch rapid.IntRange(0, 3).Draw(t, fmt.Sprint("kind", i)) {
			case 0:
				b = mark(0, 0)
				b.ID, b.Abort = id, rapid.Bool().Draw(t, fmt.Sprint("abort", i))
			case 1:
				b.Transactional = open
			}
			if !b.Marker {
				sequence[id]++
			}
			twin.batches = append(twin.batches, l.apply(b))
			if got, want := l.FirstOpen(), twin.firstOpen(len(twin.batches)); got != want {
				t.Fatalf("first open %d, want %d", got, want)
			}
		}
		stable := l.next
		if first := l.FirstOpen(); first != model.NoOffset {
			stable = first
		}
		for from := range stable {
			for upper := from + 1; upper <= stable; upper++ {
				list, cut := SelectAborted(l.Aborted(), from, upper, 3)
				if cut > upper || cut <= from {
					t.Fatalf("asked [%d, %d), got up to %d", from, upper, cut)
				}
				if !slices.IsSortedFunc(list, func(a, b Aborted) int { return int(a.First - b.First) }) {
					t.Fatalf("not sorted: %v", list)
				}
				if got, want := twin.client(list, from, cut), twin.hidden(from, cut); !slices.Equal(got, want) {
					t.Fatalf("[%d, %d): hides %v, want %v; list %v", from, cut, got, want, list)
				}
			}
		}
	})
}

func TestSelectAbortedKeepsTheListShort(t *testing.T) {
	var l log
	for range 50 {
		l.apply(inTxn(data(0, model.NoSequence, model.NoSequence)))
		l.apply(abort(mark(0, 0)))
	}
	list, upper := SelectAborted(l.Aborted(), 10, 100, 5)
	if len(list) != 5 || upper != 20 {
		t.Errorf("%d entries up to %d, want 5 up to 20", len(list), upper)
	}
	if list, upper := SelectAborted(l.Aborted(), 11, 12, 5); len(list) != 1 || upper != 12 {
		t.Errorf("a range inside a transaction has %v up to %d", list, upper)
	}
	if list, _ := SelectAborted(nil, 0, 10, 5); list == nil {
		t.Error("an empty list is nil")
	}
}

func TestAnEmptyTransactionHidesNothing(t *testing.T) {
	var l log
	l.apply(abort(mark(0, 0)))
	if len(l.Aborted()) != 0 {
		t.Errorf("aborted %v", l.Aborted())
	}
}

func TestPruneForgetsWhatLiesBelowTheStart(t *testing.T) {
	var l log
	for range 3 {
		l.apply(inTxn(data(0, model.NoSequence, model.NoSequence)))
		l.apply(abort(mark(0, 0)))
	}
	held := l.Aborted()
	l.Prune(3) // inside the second one
	if got := l.Aborted(); len(got) != 2 || got[0].First != 2 {
		t.Errorf("left %v", got)
	}
	if len(held) != 3 || held[0].First != 0 {
		t.Errorf("a reader's list changed to %v", held)
	}
}

func TestStatesShowWhatDescribeProducersShows(t *testing.T) {
	var l log
	l.apply(data(3, 0, 4))
	l.apply(inTxn(data(3, 5, 5)))
	want := []State{{ID: pid, Epoch: 3, LastSequence: 5, LastTimestamp: 5, CoordinatorEpoch: -1, TxnStart: 5}}
	if diff := cmp.Diff(want, l.States()); diff != "" {
		t.Error(diff)
	}
	l.apply(mark(4, 9))
	want = []State{{ID: pid, Epoch: 4, LastSequence: model.NoSequence, CoordinatorEpoch: 9, TxnStart: model.NoOffset}}
	if diff := cmp.Diff(want, l.States()); diff != "" {
		t.Error(diff)
	}
}

// sample is a table with everything in it.
func sample() *log {
	l := &log{}
	for i := range model.Sequence(7) {
		l.apply(inTxn(data(1, i, i)))
	}
	l.apply(abort(mark(1, 4)))
	for id := range model.ProducerID(3) {
		b := inTxn(data(0, 0, 2))
		b.ID = 100 - id
		l.apply(b)
	}
	return l
}

func TestASnapshotIsTheTable(t *testing.T) {
	l := sample()
	b := l.AppendTo([]byte("before"))
	got, rest, err := Decode(append(b[6:], "behind"...))
	if err != nil || string(rest) != "behind" {
		t.Fatalf("rest %q, %v", rest, err)
	}
	if diff := cmp.Diff(&l.Table, got, cmp.AllowUnexported(Table{}, entry{}, written{}, openTxn{})); diff != "" {
		t.Error(diff)
	}
	if !bytes.Equal(got.AppendTo(nil), b[6:]) {
		t.Error("encoded again it is different")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sample().AppendTo(nil))
	f.Add((&Table{}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, rest, err := Decode(b)
		if err != nil {
			return
		}
		table.FirstOpen()
		table.States()
		if n := len(table.AppendTo(nil)); n != len(b)-len(rest) {
			t.Errorf("read %d bytes, writes %d", len(b)-len(rest), n)
		}
	})
}
