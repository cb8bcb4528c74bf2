package machine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// logs is an engine with the partitions of a few shards.
type logs struct {
	engine *storage.Engine
	t      *testing.T
}

func openLogs(t *testing.T, fs vfs.FS) logs {
	t.Helper()
	e, err := storage.Open(t.Context(), storage.Options{FS: fs, ReserveBytes: -1})
	if err != nil {
		t.Fatalf("open engine: %v", err)
	}
	t.Cleanup(func() { e.Close(t.Context()) })
	return logs{e, t}
}

func (l logs) partition(n int) *storage.Partition {
	l.t.Helper()
	tp := model.TopicPartition{Topic: model.TopicID{1, 15: byte(n)}}
	p, err := l.engine.OpenPartition(tp, fmt.Sprintf("facts-%d", n), storage.PartitionConfig{})
	if err != nil {
		l.t.Fatalf("open partition: %v", err)
	}
	return p
}

func sideways(key []byte) bool { return key[0] == '_' }

// replayed lists what a log replays, one line a record.
func replayed(t *testing.T, f Facts) (lines []string) {
	t.Helper()
	err := f.Replay(t.Context(), func(r Record) error {
		line := fmt.Sprintf("%d %s=%s", r.Offset, r.Key, r.Value)
		if r.Value == nil {
			line = fmt.Sprintf("%d %s deleted", r.Offset, r.Key)
		}
		if r.Transactional {
			line += fmt.Sprintf(" of %d/%d", r.Producer.ID, r.Producer.Epoch)
		}
		if r.Control != NotControl {
			line = fmt.Sprintf("%d ends %d: %t", r.Offset, r.Producer.ID, r.Control == Commit)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
	return lines
}

func mustAppend(t *testing.T, f Facts, b Batch) Sequenced {
	t.Helper()
	got, err := f.Append(b)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	if err := got.Pending.Wait(t.Context()); err != nil {
		t.Fatalf("wait: %v", err)
	}
	return got
}

func TestFactsInTheEngineSurviveARestart(t *testing.T) {
	fs := vfs.NewMemory()
	l := openLogs(t, fs)
	facts := NewLogFacts(l.engine, l.partition(1))
	producer := model.ProducerIdentity{ID: 7, Epoch: 2}
	mustAppend(t, facts, Batch{Records: []Record{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Value: []byte{}}}})
	got := mustAppend(t, facts, Batch{Producer: &producer, Records: []Record{{Key: []byte("a"), Value: []byte("2")}}})
	if got.Base != 2 {
		t.Fatalf("sequenced at %d, want 2", got.Base)
	}
	end := batch.NewMarker(batch.Marker{Type: batch.Commit, Producer: producer})
	if _, err := l.engine.Append(storage.Append{Partition: l.partition(1), Batch: end, Internal: true}); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, facts, Batch{Records: []Record{{Key: []byte("a")}}})
	// The same producer and epoch may go on: transactions of version 1 do.
	mustAppend(t, facts, Batch{Producer: &producer, Records: []Record{{Key: []byte("c"), Value: []byte("3")}}})

	want := []string{"0 a=1", "1 b=", "2 a=2 of 7/2", "3 ends 7: true", "4 a deleted", "5 c=3 of 7/2"}
	if diff := cmp.Diff(want, replayed(t, facts)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := l.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = openLogs(t, fs)
	if diff := cmp.Diff(want, replayed(t, NewLogFacts(l.engine, l.partition(1)))); diff != "" {
		t.Errorf("after a restart (-want +got)\n%s", diff)
	}
}

func TestOneEntryHoldsFactsOfTwoLogsAndOthersAppends(t *testing.T) {
	l := openLogs(t, vfs.NewMemory())
	facts := NewSplitLogFacts(l.engine, l.partition(1), l.partition(2), sideways)
	record := func(key string) Record { return Record{Key: []byte(key), Value: []byte("v")} }
	mustAppend(t, facts, Batch{Records: []Record{record("_x")}})
	got := mustAppend(t, facts, Batch{Records: []Record{record("a"), record("_y"), record("b"), record("_z")}})
	if diff := cmp.Diff([]model.Offset{0, 1, 1, 2}, got.At); diff != "" {
		t.Errorf("places (-want +got)\n%s", diff)
	}

	third := l.partition(3)
	other := func() storage.Append {
		b := batch.NewBuilder(batch.BuilderOptions{})
		b.Add(batch.NewRecord{Value: []byte("letter")})
		view, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return storage.Append{Partition: third, Batch: view}
	}
	joint, err := facts.AppendWith(Batch{Records: []Record{record("c"), record("_w")}}, other(), other())
	if err != nil {
		t.Fatal(err)
	}
	if at := joint.Other(1).Base; at != 1 || joint.offset(0) != 2 || joint.offset(1) != 3 {
		t.Errorf("other at %d, facts at %v", at, joint.At)
	}
	// Effects alone make an entry too.
	joint, err = facts.AppendWith(Batch{}, other())
	if err != nil || joint.Other(0).Base != 2 {
		t.Fatalf("other at %d, %v", joint.Other(0).Base, err)
	}
	if err := joint.Entry.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}

	// What refuses one of them refuses all.
	if err := l.engine.Delete(third.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := facts.AppendWith(Batch{Records: []Record{record("d")}}, other()); err == nil {
		t.Error("appended to a deleted partition")
	} else if !errors.Is(err, storage.ErrPartitionDeleted) {
		t.Errorf("refused with %v", err)
	}
	want := []string{"0 a=v", "1 b=v", "2 c=v", "0 _x=v", "1 _y=v", "2 _z=v", "3 _w=v"}
	if diff := cmp.Diff(want, replayed(t, facts)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
