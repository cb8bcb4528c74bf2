package storage

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// open opens an engine over a file system; it is closed at the end of the test
// unless the test does so itself.
func open(t testing.TB, fs vfs.FS, change ...func(*Options)) *Engine {
	t.Helper()
	e, err := tryOpen(t, fs, change...)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return e
}

func tryOpen(t testing.TB, fs vfs.FS, change ...func(*Options)) (*Engine, error) {
	t.Helper()
	o := Options{FS: fs, JournalFileBytes: 1 << 20, ReserveBytes: -1}
	for _, c := range change {
		c(&o)
	}
	e, err := Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { e.Close(t.Context()) })
	}
	return e, err
}

func shut(t testing.TB, e *Engine) {
	t.Helper()
	if err := e.Close(t.Context()); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// partition is a partition's key made from a number.
func key(n int) model.TopicPartition {
	return model.TopicPartition{Topic: model.TopicID{15: byte(n), 0: 1, 14: byte(n >> 8)}, Partition: int32(n % 3)}
}

func part(t testing.TB, e *Engine, n int, change ...func(*PartitionConfig)) *Partition {
	t.Helper()
	var c PartitionConfig
	for _, f := range change {
		f(&c)
	}
	p, err := e.OpenPartition(key(n), fmt.Sprintf("topic-%d", n), c)
	if err != nil {
		t.Fatalf("open partition: %v", err)
	}
	return p
}

// plain is a batch without producer.
func plain(values ...string) batch.View { return idempotent(model.NoProducerID, 0, 0, values...) }

func idempotent(id model.ProducerID, epoch model.ProducerEpoch, seq model.Sequence, values ...string) batch.View {
	return build(id, epoch, seq, false, values...)
}

func transactional(id model.ProducerID, epoch model.ProducerEpoch, seq model.Sequence, values ...string) batch.View {
	return build(id, epoch, seq, true, values...)
}

func build(id model.ProducerID, epoch model.ProducerEpoch, seq model.Sequence, txn bool, values ...string) batch.View {
	o := batch.BuilderOptions{Transactional: txn}
	if id != model.NoProducerID {
		o.Producer = &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: id, Epoch: epoch}, BaseSequence: seq}
	}
	b := batch.NewBuilder(o)
	for i, v := range values {
		b.Add(batch.NewRecord{Timestamp: model.Timestamp(1000 + i), Value: []byte(v)})
	}
	view, err := b.Build()
	if err != nil {
		panic(err)
	}
	return view
}

func marker(id model.ProducerID, epoch model.ProducerEpoch, kind batch.MarkerType) batch.View {
	return batch.NewMarker(batch.Marker{Type: kind, Producer: model.ProducerIdentity{ID: id, Epoch: epoch}, CoordinatorEpoch: 1, Timestamp: 5000})
}

// put appends and waits until it is durable.
func put(t testing.TB, e *Engine, appends ...Append) *Pending {
	t.Helper()
	pending, err := e.Append(appends...)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	if err := pending.Wait(t.Context()); err != nil {
		t.Fatalf("append: %v", err)
	}
	return pending
}

// values reads everything visible, as "offset:value", markers as "offset:commit".
func values(t testing.TB, p *Partition) (got []string) {
	t.Helper()
	err := p.Scan(t.Context(), 0, func(v batch.View) error {
		if v.IsControl() {
			m, err := v.Marker()
			got = append(got, fmt.Sprintf("%d:%s", v.BaseOffset(), m.Type))
			return err
		}
		for r, err := range v.Records(1 << 30) {
			if err != nil {
				return err
			}
			got = append(got, fmt.Sprintf("%d:%s", r.Offset, r.Value))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	return got
}

func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestAppendedBatchesAreReadBackUnchanged(t *testing.T) {
	for name, fs := range map[string]func() vfs.FS{
		"memory": func() vfs.FS { return vfs.NewMemory() },
		"disk": func() vfs.FS {
			d, err := vfs.OpenDisk(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, fs())
			p := part(t, e, 1)
			var want []byte
			for i := range 100 {
				b := plain(fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i))
				at := put(t, e, Append{Partition: p, Batch: b}).At(0)
				if at.Base != model.Offset(2*i) || at.Last != at.Base+1 {
					t.Fatalf("append %d went to %d..%d", i, at.Base, at.Last)
				}
				want = append(want, b.Bytes()...)
			}
			if b := p.Bounds(); b != (model.Bounds{Stable: 200, High: 200, End: 200}) {
				t.Fatalf("bounds %+v", b)
			}
			r, err := p.Read(ReadRequest{MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Slice.Release()
			got, err := r.Slice.Bytes()
			if err != nil || !bytes.Equal(got, want) || r.Next != 200 {
				t.Fatalf("read %d bytes, want %d, next %d: %v", len(got), len(want), r.Next, err)
			}
		})
	}
}
