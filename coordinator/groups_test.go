package coordinator

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// nackScript is what was acknowledged to a group that reads t-0 and fails three
// times at offset 4. The letter goes to t-1.
type nackScript struct {
	committed model.Offset // newest acknowledged position of the group; -1 before
	attempts  int32
	dead      bool
}

func (w *txnWorld) commitPlain(offset model.Offset) error {
	results, err := w.groups.CommitOffsets(group.CommitOffsets{
		Group: "g", Caller: group.Anonymous,
		Offsets: []group.Commit{{Topic: "t", TopicID: w.topic, Partition: 0, Offset: offset, LeaderEpoch: -1}},
	}).Wait(w.Context())
	if err == nil {
		err = results[0]
	}
	return err
}

func (w *txnWorld) nack(letter func(group.DeadLetter) ([]storage.Append, error)) (group.Verdict, error) {
	return w.groups.Nack(group.Nack{
		Group: "g", Caller: group.Anonymous, Deliveries: 3, Offset: 4,
		Partition: group.PartitionOf{Topic: "t", TopicID: w.topic, Partition: 0},
	}, letter).Wait(w.Context())
}

func (w *txnWorld) letter(d group.DeadLetter) ([]storage.Append, error) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Add(batch.NewRecord{Value: fmt.Appendf(nil, "%s-%d@%d after %d", d.Partition.Topic, d.Partition.Partition, d.Offset, d.Attempts)})
	view, err := b.Build()
	return []storage.Append{{Partition: w.logs[1], Batch: view}}, err
}

// position is the group's committed offset of t-0.
func (w *txnWorld) position() model.Offset {
	w.Helper()
	all, err := w.groups.FetchOffsets(group.FetchOffsets{
		Group: "g", Partitions: []group.PartitionOf{{Topic: "t", TopicID: w.topic}},
	}).Wait(w.Context())
	if err != nil {
		w.Fatalf("fetch offsets: %v", err)
	}
	return all[0].Offset
}

func (w *txnWorld) letters() (n int) {
	w.Helper()
	err := w.logs[1].Scan(w.Context(), 0, func(v batch.View) error { n += int(v.Count()); return nil })
	if err != nil {
		w.Fatalf("scan: %v", err)
	}
	return n
}

func TestThirdNackMovesTheRecordAndTheGroupTogether(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	if err := w.commitPlain(9); err != nil {
		t.Fatal(err)
	}
	for i, want := range []group.Verdict{{Attempts: 1, Next: 4}, {Attempts: 2, Next: 4}, {Attempts: 3, Dead: true, Next: 5}} {
		got, err := w.nack(w.letter)
		if err != nil || got != want {
			t.Fatalf("nack %d: %+v, %v; want %+v", i+1, got, err, want)
		}
		if w.position() != want.Next {
			t.Fatalf("group is at %d, want %d", w.position(), want.Next)
		}
	}
	if n := w.letters(); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}

func TestLetterThatCannotBeWrittenRefusesTheNack(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	unreadable := errors.New("unreadable record")
	for name, letter := range map[string]func(group.DeadLetter) ([]storage.Append, error){
		"no letter": func(group.DeadLetter) ([]storage.Append, error) { return nil, unreadable },
		"refused": func(d group.DeadLetter) ([]storage.Append, error) {
			a, err := w.letter(d)
			a[0].LeaderEpoch = 1 << 20
			return a, err
		},
	} {
		for range 2 {
			if _, err := w.nack(w.letter); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.nack(letter); !errors.Is(err, unreadable) && !errors.Is(err, storage.ErrStaleLeaderEpoch) {
			t.Fatalf("%s: %v", name, err)
		}
		if w.position() != 4 {
			t.Errorf("%s: the group went on to %d", name, w.position())
		}
		// The counter stays at the limit: the next try moves the record.
		if got, err := w.nack(w.letter); err != nil || !got.Dead || got.Attempts != 3 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if n := w.letters(); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
}

func runNacks(w *txnWorld) nackScript {
	s := nackScript{committed: model.NoOffset}
	for _, offset := range []model.Offset{2, 9} {
		if w.commitPlain(offset) != nil {
			return s
		}
		s.committed = offset
	}
	for range 3 {
		v, err := w.nack(w.letter)
		if err != nil {
			return s
		}
		s.committed, s.attempts, s.dead = v.Next, v.Attempts, v.Dead
	}
	return s
}

// The script is cut after every change of the disk. What was acknowledged is
// there; the letter exists exactly if the group has passed the record; and
// failures that were acknowledged are still counted.
func TestCrashAnywhereInNacks(t *testing.T) {
	run := func(n int) (*vfs.Memory, nackScript, int) {
		disk := vfs.NewMemory()
		fault := vfs.NewFault(disk)
		fault.StopAfter(n)
		w, err := tryWorld(t, fault)
		if err != nil {
			return disk, nackScript{committed: model.NoOffset}, fault.Changes()
		}
		s := runNacks(w)
		w.stop()
		return disk, s, fault.Changes()
	}
	_, _, changes := run(1 << 30)
	step := 1
	if testing.Short() {
		step = 7
	}
	for n := 0; n < changes; n += step {
		disk, acknowledged, _ := run(n)
		for seed := range uint64(2) {
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(seed, uint64(n)))
			}
			w := newTxnWorld(t, disk.Crash(rng))
			acknowledged.verify(w)
			w.stop()
			if t.Failed() {
				t.Fatalf("cut after %d of %d, seed %d", n, changes, seed)
			}
		}
	}
}

func (s nackScript) verify(w *txnWorld) {
	w.Helper()
	position, letters := w.position(), w.letters()
	if passed := position == 5; passed != (letters == 1) || letters > 1 {
		w.Errorf("group at %d with %d letters", position, letters)
	}
	if s.dead && letters != 1 {
		w.Errorf("the acknowledged move of the record is gone")
	}
	if s.attempts == 0 && position < s.committed {
		w.Errorf("group at %d, acknowledged %d", position, s.committed)
	}
	if letters == 1 {
		return
	}
	// At most one failure more than acknowledged was counted.
	v, err := w.nack(w.letter)
	if err != nil || v.Attempts < s.attempts+1 || v.Attempts > s.attempts+2 {
		w.Errorf("next failure is counted as %d, %v; acknowledged %d", v.Attempts, err, s.attempts)
	}
}

func TestMarkersThatAreRefusedSettleNothing(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	producer := model.ProducerIdentity{ID: 70}
	offsets := group.CommitOffsets{
		Group: "g", Caller: group.Anonymous, Producer: &producer,
		Offsets: []group.Commit{{Topic: "t", TopicID: w.topic, Offset: 7, LeaderEpoch: -1}},
	}
	answer, joint, err := w.groups.commitInTxn(offsets)
	if err != nil || joint.Entry == nil {
		t.Fatalf("commit: %v", err)
	}
	if _, err := answer.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	partition := shardOf("g", offsetsShards)
	refusal := errors.New("no marker today")
	_, err = w.groups.settle([]int32{partition}, producer.ID, true, func() (*storage.Pending, error) { return nil, refusal })
	if !errors.Is(err, refusal) || w.position() != model.NoOffset {
		t.Fatalf("settle: %v, group at %d", err, w.position())
	}
	log, err := w.internal("__consumer_offsets")(partition)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.groups.settle([]int32{partition, partition}, producer.ID, true, func() (*storage.Pending, error) {
		marker := batch.NewMarker(batch.Marker{Type: batch.Commit, Producer: producer})
		return w.engine.Append(storage.Append{Partition: log, Batch: marker, Internal: true})
	})
	if err != nil || w.position() != 7 {
		t.Fatalf("settle: %v, group at %d", err, w.position())
	}
}

func TestSessionsEndThroughTheTimer(t *testing.T) {
	w := newTxnWorld(t, vfs.NewMemory())
	timer := w.groups.o.Timer
	joined, err := w.groups.JoinGroup(group.JoinGroup{
		Group: "g", NewMember: NewMemberID("client"), ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range"}},
		SessionTimeout: 10 * time.Second, RebalanceTimeout: time.Minute,
	}).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	caller := group.Caller{Member: joined.Member, Generation: 1}
	if _, err := w.groups.SyncGroup(group.SyncGroup{Group: "g", Caller: caller}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	state := func() group.State {
		d, err := w.groups.DescribeGroup("g").Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d.State
	}
	for range 3 {
		w.clock.advance(9 * time.Second)
		timer.Tick()
		if _, err := w.groups.Heartbeat(group.Heartbeat{Group: "g", Caller: caller}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if state() != group.Stable {
		t.Fatalf("group is %s", state())
	}
	w.clock.advance(10 * time.Second)
	timer.Tick()
	if state() != group.Empty {
		t.Fatalf("group is %s after its only member fell silent", state())
	}
	all, err := w.groups.ListGroups()(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "g" {
		t.Errorf("listed %+v, %v", all, err)
	}
}

func TestGroupsArePlacedAsKafkaDoes(t *testing.T) {
	// Java: Utils.abs("…".hashCode()) % 50.
	for id, want := range map[string]int32{"": 0, "g": 3, "test-group": 12, "größe": 7, "polygenelubricants": 0, "🚀 rockets": 26} {
		if got := shardOf(id, offsetsShards); got != want {
			t.Errorf("%q is in partition %d, want %d", id, got, want)
		}
	}
}
