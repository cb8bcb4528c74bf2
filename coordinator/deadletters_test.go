package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// moonWorld is a whole coordinator on a disk of the test's choice.
type moonWorld struct {
	*Coordinator
	t      testing.TB
	engine *storage.Engine
}

func tryMoonWorld(t testing.TB, fs vfs.FS, events ...Events) (*moonWorld, error) {
	e, err := storage.Open(t.Context(), storage.Options{FS: fs, ReserveBytes: -1})
	if err != nil {
		return nil, err
	}
	w := &moonWorld{t: t, engine: e}
	w.Coordinator, err = Open(t.Context(), e, Options{Events: append(events, Events{})[0]})
	if err != nil {
		e.Close(context.Background())
		return nil, err
	}
	return w, nil
}

func newMoonWorld(t testing.TB, fs vfs.FS) *moonWorld {
	t.Helper()
	w, err := tryMoonWorld(t, fs)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return w
}

// stop may fail: a stopped machine is part of the tests.
func (w *moonWorld) stop() {
	w.Coordinator.Close()
	w.engine.Close(context.Background())
}

func (w *moonWorld) make(name string, partitions int32) error {
	created, err := w.CreateTopics([]catalog.NewTopic{{Name: name, Partitions: partitions, ReplicationFactor: -1}}, false).Wait(w.t.Context())
	if err != nil {
		return err
	}
	return created[0].Err
}

func (w *moonWorld) topic(name string) *catalog.Topic {
	w.t.Helper()
	t, ok := w.Catalog().Topic(name)
	if !ok {
		w.t.Fatalf("no topic %s", name)
	}
	return t
}

func (w *moonWorld) put(topic string, partition int32, codec batch.Compression, records ...batch.NewRecord) error {
	t, ok := w.Catalog().Topic(topic)
	if !ok {
		return catalog.ErrUnknownTopic
	}
	p, err := w.Partition(t, partition)
	if err != nil {
		return err
	}
	b := batch.NewBuilder(batch.BuilderOptions{Codec: batch.DefaultCodec(codec)})
	for _, r := range records {
		b.Add(r)
	}
	view, err := b.Build()
	if err != nil {
		return err
	}
	pending, err := w.transactions.Produce(Produce{Batches: []ProduceBatch{{p, view}}})
	if err != nil {
		return err
	}
	return pending.Wait(w.t.Context())
}

// read returns the records of a partition, markers left out.
func (w *moonWorld) read(topic string, partition int32) []batch.Record {
	w.t.Helper()
	t, ok := w.Catalog().Topic(topic)
	if !ok {
		return nil
	}
	p, err := w.Partition(t, partition)
	if err != nil {
		return nil
	}
	var all []batch.Record
	err = p.Scan(w.t.Context(), 0, func(v batch.View) error {
		if v.IsControl() {
			return nil
		}
		for r, err := range v.Clone().Records(batch.MaxDecompressedBytes) {
			if err != nil {
				return err
			}
			all = append(all, batch.Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: slices.Clone(r.Key), Value: slices.Clone(r.Value),
				Headers: batch.EncodeHeaders(slices.Collect(r.Headers.All()))})
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *moonWorld) nackAt(id string, partition int32, offset model.Offset, reason string) (Nacked, error) {
	t, ok := w.Catalog().Topic("t")
	if !ok {
		return Nacked{}, catalog.ErrUnknownTopic
	}
	return w.NackRecord(Nack{Group: id, Caller: group.Anonymous, Topic: t, Partition: partition, Offset: offset, Reason: reason})(w.t.Context())
}

// committed is the group's offset of t-0, -1 if it has none.
func (w *moonWorld) committed(id string) model.Offset {
	w.t.Helper()
	got, err := w.FetchOffsets(group.FetchOffsets{Group: id, Partitions: []group.PartitionOf{{Topic: "t"}}}).Wait(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return got[0].Offset
}

func (w *moonWorld) commitAt(id string, offset model.Offset) error {
	errs, err := w.groups.CommitOffsets(group.CommitOffsets{Group: id, Caller: group.Anonymous, Retention: -1,
		Offsets: []group.Commit{{Topic: "t", TopicID: w.topic("t").ID, Offset: offset, LeaderEpoch: -1}}}).Wait(w.t.Context())
	return errors.Join(append(errs, err)...)
}

// A record of any codec ends in its dead-letter topic with its key, value and
// headers unchanged and the six headers of Kafka's share groups behind them.
func TestNackUntilDead(t *testing.T) {
	for _, codec := range []batch.Compression{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			w := newMoonWorld(t, vfs.NewMemory())
			defer w.stop()
			if err := errors.Join(w.make("t", 2), w.put("t", 0, codec,
				batch.NewRecord{Timestamp: 1, Value: []byte("before")},
				batch.NewRecord{Timestamp: 1700000000123, Key: []byte("key"), Value: []byte("poison"),
					Headers: []batch.RecordHeader{{Key: "trace", Value: []byte("7")}}},
				batch.NewRecord{Timestamp: 3, Value: []byte("behind")})); err != nil {
				t.Fatal(err)
			}
			if err := w.commitAt("g", 3); err != nil {
				t.Fatal(err)
			}
			for attempt := int32(1); attempt <= 3; attempt++ {
				got, err := w.nackAt("g", 0, 1, fmt.Sprintf("boom %d", attempt))
				want := Nacked{Attempts: attempt, Next: 1}
				if attempt == 3 {
					want = Nacked{Attempts: 3, Dead: true, Topic: "t.dlq", Next: 2}
				}
				if err != nil || got != want {
					t.Fatalf("nack %d: %+v, %v; want %+v", attempt, got, err, want)
				}
				if at := w.committed("g"); at != want.Next {
					t.Errorf("after nack %d the group is at %d, want %d", attempt, at, want.Next)
				}
			}
			if n := w.topic("t.dlq").Partitions; n != 2 {
				t.Errorf("dead-letter topic of %d partitions, want its source's 2", n)
			}
			dead := w.read("t.dlq", 0)
			if len(dead) != 1 || string(dead[0].Key) != "key" || string(dead[0].Value) != "poison" {
				t.Fatalf("dead records %v", dead)
			}
			headers := slices.Collect(dead[0].Headers.All())
			want := []string{"trace=7", "__dlq.errors.topic=t", "__dlq.errors.partition=0", "__dlq.errors.offset=1", "__dlq.errors.group=g",
				"__dlq.errors.delivery.count=3", "__dlq.errors.message=boom 3", "__perigee.dlq.timestamp=1700000000123"}
			var names []string
			for _, h := range headers {
				names = append(names, h.Key+"="+string(h.Value))
			}
			if !slices.Equal(names, want) {
				t.Errorf("headers %q, want %q", names, want)
			}
			if got, err := w.nackAt("g", 0, 1, "again"); err != nil || got.Attempts != 1 {
				t.Errorf("the count was not cleared: %+v, %v", got, err)
			}
		})
	}
}

// The operator hears of a dead-letter topic after the group is unlocked again.
func TestADeadLetterTopicIsAnnouncedUnderNoLock(t *testing.T) {
	var w *moonWorld
	var announced []string
	events := Events{TopicCreated: func(c catalog.TopicCreated) {
		announced = append(announced, c.Topic.Name)
		answered := make(chan struct{})
		go func() { w.DescribeGroup("g"); close(answered) }()
		select {
		case <-answered:
		case <-time.After(10 * time.Second):
			t.Errorf("the group is locked while %s is announced", c.Topic.Name)
		}
	}}
	w, err := tryMoonWorld(t, vfs.NewMemory(), events)
	if err != nil {
		t.Fatal(err)
	}
	defer w.stop()
	if err := errors.Join(w.make("t", 1), w.put("t", 0, batch.None, batch.NewRecord{Value: []byte("poison")}), w.commitAt("g", 1)); err != nil {
		t.Fatal(err)
	}
	announced = nil
	for range 3 {
		if _, err := w.nackAt("g", 0, 0, "boom"); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(announced, []string{"t.dlq"}) {
		t.Errorf("announced %v", announced)
	}
}

func TestNackRefusals(t *testing.T) {
	w := newMoonWorld(t, vfs.NewMemory())
	defer w.stop()
	if err := errors.Join(w.make("t", 1), w.put("t", 0, batch.None, batch.NewRecord{Value: []byte("a")})); err != nil {
		t.Fatal(err)
	}
	p, err := w.InitProducer(txn.Init{ID: "x", Timeout: 1e9, Given: noIdentity}).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log, _ := w.Partition(w.topic("t"), 0)
	b := batch.NewBuilder(batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{ProducerIdentity: p.Producer}})
	b.Add(batch.NewRecord{Value: []byte("aborted")})
	view, _ := b.Build()
	pending, err := w.transactions.Produce(Produce{TransactionalID: "x", Owner: txn.Session, Batches: []ProduceBatch{{log, view}}})
	if err != nil || pending.Wait(t.Context()) != nil {
		t.Fatal(err)
	}
	open, err := w.NackRecord(Nack{Group: "g", Caller: group.Anonymous, Topic: w.topic("t"), Offset: 1, Isolation: model.ReadCommitted})(t.Context())
	if !errors.Is(err, ErrNoRecord) {
		t.Errorf("record of an open transaction: %+v, %v", open, err)
	}
	if _, err := w.EndTransaction(txn.End{ID: "x", Producer: p.Producer, Outcome: txn.Abort, Owner: txn.Session}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		offset model.Offset
		iso    model.Isolation
		want   error
	}{
		{-1, model.ReadUncommitted, ErrNoRecord},
		{0, model.ReadCommitted, nil},
		{1, model.ReadUncommitted, nil},
		{1, model.ReadCommitted, ErrAborted},
		{2, model.ReadUncommitted, ErrControlRecord},
		{3, model.ReadUncommitted, ErrNoRecord},
	} {
		_, err := w.NackRecord(Nack{Group: "g", Caller: group.Anonymous, Topic: w.topic("t"), Offset: tt.offset, Isolation: tt.iso})(t.Context())
		if !errors.Is(err, tt.want) {
			t.Errorf("offset %d, isolation %d: %v, want %v", tt.offset, tt.iso, err, tt.want)
		}
		var which *RecordError
		if tt.want != nil && (!errors.As(err, &which) || which.Topic != "t" || which.Offset != tt.offset) {
			t.Errorf("offset %d: the error does not name the record: %v", tt.offset, err)
		}
	}
}

// A topic whose name has no room for the suffix has no dead-letter topic: the
// record comes back for ever, and the refusal says why.
func TestNackOfATopicWithALongName(t *testing.T) {
	w := newMoonWorld(t, vfs.NewMemory())
	defer w.stop()
	name := strings.Repeat("n", 248)
	if err := errors.Join(w.make(name, 1), w.put(name, 0, batch.None, batch.NewRecord{Value: []byte("a")})); err != nil {
		t.Fatal(err)
	}
	for attempt := 1; attempt <= 4; attempt++ {
		_, err := w.NackRecord(Nack{Group: "g", Caller: group.Anonymous, Topic: w.topic(name)})(t.Context())
		if (err != nil) != (attempt >= 3) || err != nil && !errors.Is(err, deadletter.ErrTopicName) {
			t.Errorf("nack %d: %v", attempt, err)
		}
	}
}

// nackLife is what one life of the broker did with one poison record.
type nackLife struct{ create, put, nack1, nack2, nack3 step }

func liveNacks(w *moonWorld) *nackLife {
	var s nackLife
	stopped := false
	nack := func() error { _, err := w.nackAt("g", 0, 0, "boom"); return err }
	attempt(&stopped, &s.create, func() error { return w.make("t", 1) })
	attempt(&stopped, &s.put, func() error {
		return w.put("t", 0, batch.None, batch.NewRecord{Key: []byte("k"), Value: []byte("poison")})
	})
	attempt(&stopped, &s.nack1, nack)
	attempt(&stopped, &s.nack2, nack)
	attempt(&stopped, &s.nack3, nack)
	return &s
}

// verify judges a later life: the dead record exists exactly once and the group
// has passed it, or not at all and it is delivered again with its failures
// remembered; then the consumer goes on until the record is dead.
func (s *nackLife) verify(w *moonWorld) {
	w.t.Helper()
	if s.put != acked {
		return
	}
	dead, at := len(w.read("t.dlq", 0)), w.committed("g")
	if dead > 1 {
		w.t.Fatalf("%d dead records", dead)
	}
	if (dead == 1) != (at == 1) {
		w.t.Fatalf("%d dead records and the group at %d", dead, at)
	}
	if s.nack3 == acked && dead == 0 {
		w.t.Fatal("an acknowledged move is gone")
	}
	if s.nack3 == notTried && dead == 1 {
		w.t.Fatal("moved without the last NACK")
	}
	least := int32(0)
	for _, n := range []step{s.nack1, s.nack2} {
		if n == acked {
			least++
		}
	}
	for first := true; dead == 0; first = false {
		got, err := w.nackAt("g", 0, 0, "boom")
		if err != nil {
			w.t.Fatal(err)
		}
		if first && got.Attempts <= least {
			w.t.Errorf("attempt %d although %d were acknowledged", got.Attempts, least)
		}
		if got.Dead {
			dead = len(w.read("t.dlq", 0))
			break
		}
	}
	if dead != 1 || w.committed("g") != 1 {
		w.t.Errorf("in the end %d dead records and the group at %d", dead, w.committed("g"))
	}
}

// The disk is cut after every change around three NACKs; what was synced
// survives, what was not survives by chance.
func TestCrashAnywhereAroundNack(t *testing.T) {
	run := func(n int) (changes int, disk *vfs.Memory, s *nackLife) {
		disk = vfs.NewMemory()
		fault := vfs.NewFault(disk)
		fault.StopAfter(n)
		w, err := tryMoonWorld(t, fault)
		if err != nil {
			return fault.Changes(), disk, &nackLife{}
		}
		s = liveNacks(w)
		changes = fault.Changes()
		w.stop()
		return changes, disk, s
	}
	changes, _, _ := run(1 << 30)
	if changes < 5 {
		t.Fatalf("the script changed the disk %d times", changes)
	}
	step := 1
	if testing.Short() {
		step = 5
	}
	for n := 0; n <= changes; n += step {
		_, disk, s := run(n)
		for seed := range uint64(3) {
			var rng *rand.Rand
			if seed > 0 {
				rng = rand.New(rand.NewPCG(seed, uint64(n)))
			}
			w := newMoonWorld(t, disk.Crash(rng))
			s.verify(w)
			w.stop()
			if t.Failed() {
				t.Fatalf("cut after %d of %d changes, seed %d: %+v", n, changes, seed, *s)
			}
		}
	}
}
