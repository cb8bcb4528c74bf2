package storage

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
	"github.com/perigeemq/perigee/storage/vfs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares bytes with a file that later versions must still read.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(path, []byte(hex.Dump(got)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if hex.Dump(got) != string(want) {
		t.Errorf("%s is\n%swant\n%s", name, hex.Dump(got), want)
	}
}

// captured is an engine's state with something of everything in it.
func captured(t testing.TB) []byte {
	clock := newClock()
	e := open(t, vfs.NewMemory(), clock.use)
	p := part(t, e, 1, func(c *PartitionConfig) { c.SegmentBytes = 200 })
	for i := range model.Sequence(3) {
		put(t, e, Append{Partition: p, Batch: idempotent(7, 2, 2*i, "a", "b")})
	}
	put(t, e, Append{Partition: p, Batch: transactional(8, 0, 0, "c"), Txn: TxnOpen})
	put(t, e, Append{Partition: p, Batch: transactional(9, 1, 0, "d"), Txn: TxnOpen})
	put(t, e, Append{Partition: p, Batch: marker(8, 1, batch.Abort), Internal: true})
	pending, _, err := p.DeleteRecords(1)
	if err != nil || pending.Wait(t.Context()) != nil {
		t.Fatal(err)
	}
	p.cleaned.Store(2)
	put(t, e, Append{Partition: part(t, e, 2), Batch: plain("x")})
	payload, _, _ := e.capture()
	return payload
}

func TestTheCheckpointsPayloadIsTheGoldenOne(t *testing.T) {
	golden(t, "checkpoint_payload", captured(t))
}

func TestThePayloadIsTheState(t *testing.T) {
	var states []*partitionState
	if err := decodePayload(captured(t), func(s *partitionState) error { states = append(states, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(states) != 2 {
		t.Fatalf("%d partitions", len(states))
	}
	s := states[0]
	if s.tp != key(1) || s.start != 1 || s.end != 9 || s.cleaned != 2 || len(s.segments) < 2 {
		t.Errorf("state %+v", s)
	}
	if diff := cmp.Diff(epochs{{Epoch: 0, Start: 0}}, s.epochs); diff != "" {
		t.Error(diff)
	}
	if got, want := s.producers.Aborted(), []producer.Aborted{{ProducerID: 8, First: 6, Last: 8, Stable: 7}}; !cmp.Equal(got, want) || s.producers.FirstOpen() != 7 {
		t.Errorf("aborted %+v, first open %d", got, s.producers.FirstOpen())
	}
	if m := s.segments[0]; m.ID != (segment.ID{}) || m.MaxTimestamp != 1001 || m.Created != newClock().now().UnixMilli() {
		t.Errorf("first segment %+v", m)
	}
}

func FuzzDecodePayload(f *testing.F) {
	f.Add(captured(f))
	f.Add(finishPayload(beginPayload(nil), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = decodePayload(b, func(s *partitionState) error {
			if s.start > s.end {
				t.Errorf("from %d to %d", s.start, s.end)
			}
			return nil
		})
	})
}
