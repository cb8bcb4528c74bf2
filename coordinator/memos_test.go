package coordinator

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// The rules of sections 9.3 and of decisions 3 and 4, one row each.
func TestJudge(t *testing.T) {
	now, before := model.ProducerIdentity{ID: 7, Epoch: 2}, model.ProducerIdentity{ID: 7, Epoch: 1}
	single := func(p model.ProducerIdentity, seq uint32) *Memo { return &Memo{Producer: p, Base: seq, Last: seq} }
	three := func(p model.ProducerIdentity, base uint32) *Memo {
		return &Memo{Producer: p, Base: base, Last: base + 2, Batch: true}
	}
	inTxn := func(m *Memo) *Memo { m.Transactional = true; return m }
	for _, tt := range []struct {
		name    string
		memo    *Memo
		base    uint32
		count   int
		batch   bool
		aborted bool
		want    Retry
		expect  uint64
	}{
		{"first", nil, 0, 1, false, false, Fresh, 0},
		{"first, not 0", nil, 1, 1, false, false, Gap, 0},
		{"first batch", nil, 0, 5, true, false, Fresh, 0},
		{"next", single(now, 4), 5, 1, false, false, Fresh, 5},
		{"same", single(now, 4), 4, 1, false, false, Replay, 0},
		{"gap", single(now, 4), 6, 1, false, false, Gap, 5},
		{"older", single(now, 4), 3, 1, false, false, Gap, 5},
		{"same batch", three(now, 4), 4, 3, true, false, Replay, 0},
		{"shorter batch", three(now, 4), 4, 2, true, false, Gap, 7},
		{"overlapping batch", three(now, 4), 5, 3, true, false, Gap, 7},
		{"next batch", three(now, 4), 7, 9, true, false, Fresh, 7},
		{"last of a batch, alone", three(now, 4), 6, 1, false, false, Replay, 0},
		{"batch after a single", single(now, 4), 4, 1, true, false, Gap, 5},
		{"committed transaction", inTxn(single(now, 4)), 4, 1, false, false, Replay, 0},
		{"aborted transaction", inTxn(single(now, 4)), 4, 1, false, true, Fresh, 0},
		{"the largest number", single(now, 1<<32-1), 1<<32 - 1, 1, false, false, Replay, 0},

		{"new session, 0", single(before, 4), 0, 1, false, false, Fresh, 0},
		{"new session, 0 was last", single(before, 0), 0, 1, false, false, Fresh, 0},
		{"new session, retry", single(before, 4), 4, 1, false, false, Replay, 0},
		{"new session, goes on", single(before, 4), 5, 1, false, false, Gap, 0},
		{"new session, batch retry", three(before, 4), 4, 3, true, false, Replay, 0},
		{"new session, batch from 0", three(before, 0), 0, 3, true, false, Fresh, 0},
		{"new session, retry of an aborted record", inTxn(single(before, 4)), 4, 1, false, true, Fresh, 0},
	} {
		got, expected := tt.memo.Judge(now, tt.base, tt.count, tt.batch, func() bool { return tt.aborted })
		if got != tt.want || got == Gap && expected != tt.expect {
			t.Errorf("%s: %d, expected number %d; want %d, %d", tt.name, got, expected, tt.want, tt.expect)
		}
	}
}

func TestMemoCodec(t *testing.T) {
	key := memoKey{"billing-writer", model.TopicID{1, 2, 3}}
	memo := &Memo{
		Producer: model.ProducerIdentity{ID: 9, Epoch: 3}, Base: 1<<32 - 2, Last: 1<<32 - 1, Batch: true, Transactional: true,
		parts: []memoPart{{0, 41, 7}, {3, 0, 0}}, parted: []uint16{1, 0},
	}
	k, v := encodeMemo(key, memo)
	gotKey, got, err := decodeMemo(k, v)
	if err != nil || gotKey != key || !reflect.DeepEqual(got, memo) {
		t.Errorf("decoded %+v %+v, %v", gotKey, got, err)
	}
	if _, gone, err := decodeMemo(k, nil); gone != nil || err != nil {
		t.Errorf("tombstone: %+v, %v", gone, err)
	}
	if _, _, err := decodeMemo([]byte{0, 9}, v); !errors.Is(err, machine.ErrUnknownFact) {
		t.Errorf("key of another version: %v", err)
	}
	for n := range v {
		if _, _, err := decodeMemo(k, v[:n]); err == nil {
			t.Errorf("accepted a value cut after %d bytes", n)
		}
	}
}

func FuzzMemo(f *testing.F) {
	k, v := encodeMemo(memoKey{"n", model.TopicID{1}}, &Memo{parts: []memoPart{{0, 1, 2}}, parted: []uint16{0}})
	f.Add(k, v)
	f.Fuzz(func(t *testing.T, k, v []byte) {
		key, memo, err := decodeMemo(k, v)
		if err != nil || memo == nil {
			return
		}
		k2, v2 := encodeMemo(key, memo)
		if key2, memo2, err := decodeMemo(k2, v2); err != nil || key2 != key || !reflect.DeepEqual(memo, memo2) {
			t.Fatalf("%+v became %+v, %v", memo, memo2, err)
		}
	})
}

// session is a named producer's, as the front end keeps it.
type moonSession struct {
	w    *moonWorld
	name string
	id   model.ProducerIdentity
	seq  map[int32]model.Sequence
	txn  bool
}

func (w *moonWorld) open(name string) (*moonSession, error) {
	a, err := w.InitProducer(txn.Init{ID: name, Timeout: 60e9, Given: noIdentity, Owner: txn.Session}).Wait(w.t.Context())
	return &moonSession{w: w, name: name, id: a.Producer, seq: map[int32]model.Sequence{}}, err
}

// send produces values from a sequence number on; each goes to the partition of
// its length.
func (s *moonSession) send(base uint32, isBatch bool, values ...string) (Retry, []Ack, error) {
	topic := s.w.topic("t")
	p := NamedProduce{Name: s.name, Session: s.id, Topic: topic.ID, Base: base, Batch: isBatch, Transactional: s.txn}
	retry, acks, _, err := s.w.JudgeNamed(p, len(values))
	if err != nil || retry != Fresh {
		return retry, acks, err
	}
	var records []batch.NewRecord
	for _, v := range values {
		records = append(records, batch.NewRecord{Value: []byte(v)})
	}
	p.Parts, p.Parted, err = SplitRecords(records,
		func(r batch.NewRecord) int32 { return int32(len(r.Value)) % topic.Partitions },
		func(n int32) (*storage.Partition, error) { return s.w.Partition(topic, n) },
		func(n int32) batch.BuilderOptions {
			return batch.BuilderOptions{Transactional: s.txn, Producer: &batch.Producer{ProducerIdentity: s.id, BaseSequence: s.seq[n]}}
		})
	if err != nil {
		return retry, nil, err
	}
	acks, pending, err := s.w.ProduceNamed(p)
	if err != nil {
		return retry, nil, err
	}
	for _, part := range p.Parts {
		s.seq[part.Partition.ID().Partition] = part.Batch.BaseSequence().Add(part.Batch.Count())
	}
	return retry, acks, pending.Wait(s.w.t.Context())
}

func (s *moonSession) end(outcome txn.Outcome) error {
	_, err := s.w.EndTransaction(txn.End{ID: s.name, Producer: s.id, Outcome: outcome, Owner: txn.Session}).Wait(s.w.t.Context())
	s.txn = false
	return err
}

// must is for a session without which the test has no meaning.
func must(s *moonSession, err error) *moonSession {
	if err != nil {
		panic(err)
	}
	return s
}

// A named producer's retry gets the acks of the original: in the same session, in
// a later one, and after a restart, when they have to be found in the log again.
func TestRetriesOfANamedProducer(t *testing.T) {
	disk := vfs.NewMemory()
	w := newMoonWorld(t, disk)
	if err := w.make("t", 3); err != nil {
		t.Fatal(err)
	}
	s := must(w.open("writer"))
	if _, _, err := s.send(0, false, "a"); err != nil {
		t.Fatal(err)
	}
	_, acks, err := s.send(1, true, "bb", "c", "dd", "eee")
	if want := []Ack{{2, 0}, {1, 1}, {2, 1}, {0, 0}}; err != nil || !slices.Equal(acks, want) {
		t.Fatalf("acks %v, %v; want %v", acks, err, want)
	}
	check := func(when string, s *moonSession) {
		t.Helper()
		retry, again, err := s.send(1, true, "bb", "c", "dd", "eee")
		if err != nil || retry != Replay || !slices.Equal(again, acks) {
			t.Errorf("%s: retry of the batch: %v %v, %v; want %v", when, retry, again, err, acks)
		}
		retry, again, err = s.send(4, false, "eee")
		if err != nil || retry != Replay || !slices.Equal(again, acks[3:]) {
			t.Errorf("%s: retry of its last record: %v %v, %v", when, retry, again, err)
		}
	}
	check("same session", s)
	if err := w.put("t", 2, batch.None, batch.NewRecord{Value: []byte("somebody else's")}); err != nil {
		t.Fatal(err)
	}
	next := must(w.open("writer"))
	check("next session", next)
	if _, _, err := s.send(5, false, "f"); !errors.Is(err, txn.ErrFenced) {
		t.Errorf("the old session may still write: %v", err)
	}
	w.stop()
	w = newMoonWorld(t, disk)
	defer w.stop()
	third := must(w.open("writer"))
	check("after a restart", third)
	if retry, _, err := third.send(5, false, "f"); err != nil || retry != Gap {
		t.Errorf("a new session may go on with the old numbers: %v, %v", retry, err)
	}
	if _, acks, err := third.send(0, false, "g"); err != nil || acks[0] != (Ack{1, 2}) {
		t.Errorf("first record of a new session: %v, %v", acks, err)
	}
	if retry, _, err := third.send(4, false, "eee"); err != nil || retry != Gap {
		t.Errorf("retry of an older session's record after a new one's: %v, %v", retry, err)
	}
	if got := len(w.read("t", 0)) + len(w.read("t", 1)) + len(w.read("t", 2)); got != 7 {
		t.Errorf("%d records, want 7: a retry was appended", got)
	}
}

// A record whose transaction was aborted was never promised to anybody: its
// number is used again for the same record, and that one counts.
func TestRetryOfAnAbortedRecordIsFresh(t *testing.T) {
	w := newMoonWorld(t, vfs.NewMemory())
	defer w.stop()
	if err := w.make("t", 1); err != nil {
		t.Fatal(err)
	}
	s := must(w.open("writer"))
	for _, tt := range []struct {
		outcome txn.Outcome
		want    Retry
	}{{txn.Commit, Replay}, {txn.Abort, Fresh}} {
		s.txn = true
		seq := uint32(0)
		if tt.outcome == txn.Abort {
			seq = 1
		}
		_, first, err := s.send(seq, false, "x")
		if err != nil {
			t.Fatal(err)
		}
		if retry, again, err := s.send(seq, false, "x"); err != nil || retry != Replay || !slices.Equal(first, again) {
			t.Errorf("inside the transaction: %v %v, %v", retry, again, err)
		}
		if err := s.end(tt.outcome); err != nil {
			t.Fatal(err)
		}
		if retry, _, err := s.send(seq, false, "x"); err != nil || retry != tt.want {
			t.Errorf("after outcome %d: %v, %v; want %v", tt.outcome, retry, err, tt.want)
		}
	}
}

// Memos of forgotten names and of deleted topics go, at the next start at the
// latest; the others stay.
func TestMemosAreSwept(t *testing.T) {
	disk := vfs.NewMemory()
	w := newMoonWorld(t, disk)
	if err := errors.Join(w.make("t", 1), w.make("short-lived", 1)); err != nil {
		t.Fatal(err)
	}
	s := must(w.open("kept"))
	if _, _, err := s.send(0, false, "x"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []memoKey{{"kept", w.topic("short-lived").ID}, {"forgotten", w.topic("t").ID}} {
		memo := &Memo{parts: []memoPart{{}}, parted: []uint16{0}}
		a, err := w.memos.append(key, memo, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Append(a); err != nil {
			t.Fatal(err)
		}
		w.memos.set(key, memo)
	}
	if _, err := w.DeleteTopics([]catalog.TopicRef{{Name: "short-lived"}})(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.sweep(); err != nil || w.memos.len() != 1 {
		t.Errorf("%d memos are left, %v", w.memos.len(), err)
	}
	w.stop()
	w = newMoonWorld(t, disk)
	defer w.stop()
	if w.memos.len() != 1 || w.memos.get(memoKey{"kept", w.topic("t").ID}) == nil {
		t.Errorf("%d memos after a restart", w.memos.len())
	}
}

// Data and memo are one entry: after a power cut anywhere a retry is appended if
// and only if the original is not there.
func TestCrashAnywhereAroundNamedProduce(t *testing.T) {
	type life struct{ create, init, first, second step }
	run := func(n int) (int, *vfs.Memory, life) {
		disk := vfs.NewMemory()
		fault := vfs.NewFault(disk)
		fault.StopAfter(n)
		var l life
		w, err := tryMoonWorld(t, fault)
		if err != nil {
			return fault.Changes(), disk, l
		}
		defer w.stop()
		stopped := false
		var s *moonSession
		attempt(&stopped, &l.create, func() error { return w.make("t", 1) })
		attempt(&stopped, &l.init, func() (err error) { s, err = w.open("writer"); return })
		attempt(&stopped, &l.first, func() error { _, _, err := s.send(0, false, "0"); return err })
		attempt(&stopped, &l.second, func() error { _, _, err := s.send(1, false, "1"); return err })
		return fault.Changes(), disk, l
	}
	changes, _, _ := run(1 << 30)
	step := 1
	if testing.Short() {
		step = 5
	}
	for n := 0; n <= changes; n += step {
		_, disk, l := run(n)
		if l.first != acked {
			continue
		}
		for seed := range uint64(3) {
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(seed, uint64(n)))
			}
			w := newMoonWorld(t, disk.Crash(rng))
			there := len(w.read("t", 0))
			s := must(w.open("writer"))
			retry, acks, err := s.send(1, false, "1")
			if err != nil {
				t.Fatal(err)
			}
			// The first record is 0's, which a new session cannot repeat; the second is a retry.
			if (there == 2) != (retry == Replay) || retry == Replay && acks[0] != (Ack{0, 1}) || l.second == acked && there != 2 {
				t.Fatalf("cut after %d of %d, seed %d: %d records, retry judged %d with %v", n, changes, seed, there, retry, acks)
			}
			w.stop()
		}
	}
}
