package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// txnWorld is the real engine on a disk in memory with the real groups and
// transactions on it: everything but sockets.
type txnWorld struct {
	testing.TB
	engine *storage.Engine
	groups *groups
	*transactions
	clock  *testClock
	level  txn.Version
	topic  model.TopicID
	logs   []*storage.Partition // of topic t
	nextID atomic.Int64         // the last producer id given out; shards ask at the same time

	hanging []HangingTransaction // reported by the start
}

// testClock is moved by the test.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const worldPartitions = 3

// tryWorld opens the data directory on a disk. The transactions' own scans are
// so rare that only the test runs them.
func tryWorld(t testing.TB, fs vfs.FS, tune ...func(*storage.Options)) (*txnWorld, error) {
	w := &txnWorld{TB: t, clock: &testClock{now: time.UnixMilli(1_700_000_000_000)}, level: txn.V2, topic: model.TopicID{1, 15: 9}}
	o := storage.Options{FS: fs, ReserveBytes: -1, Now: w.clock.Now}
	for _, f := range tune {
		f(&o)
	}
	var err error
	if w.engine, err = storage.Open(t.Context(), o); err != nil {
		return nil, err
	}
	t.Cleanup(func() { w.stop() })
	w.nextID.Store(1_000 * (int64(w.engine.Identity().Incarnation) + 1))
	for i := range int32(worldPartitions) {
		p, err := w.engine.OpenPartition(model.TopicPartition{Topic: w.topic, Partition: i}, "t", storage.PartitionConfig{})
		if err != nil {
			return nil, err
		}
		w.logs = append(w.logs, p)
	}
	config := group.DefaultConfig
	w.groups = newGroups(groupsOptions{
		Engine: w.engine, Offsets: w.internal(catalog.OffsetsTopic), Attempts: w.internal(catalog.AttemptsTopic),
		Now: w.clock.Now, Timer: machine.NewTimer(w.clock.Now), Config: &config,
	})
	if err := w.groups.open(t.Context()); err != nil {
		return nil, err
	}
	w.transactions = newTransactions(transactionsOptions{
		Engine: w.engine, State: w.internal(catalog.TransactionsTopic), Now: w.clock.Now,
		Level: func() txn.Version { return w.level },
		NewProducerID: func(context.Context) (model.ProducerID, error) {
			return model.ProducerID(w.nextID.Add(1)), nil
		},
		Settle: w.groups.settle, CommitInTxn: w.groups.commitInTxn,
		TimeoutScan: time.Hour, ExpiryScan: time.Hour,
		Hangs: func(h HangingTransaction) { w.hanging = append(w.hanging, h) },
	})
	return w, w.transactions.open(t.Context())
}

func newTxnWorld(t testing.TB, fs vfs.FS, tune ...func(*storage.Options)) *txnWorld {
	t.Helper()
	w, err := tryWorld(t, fs, tune...)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return w
}

func (w *txnWorld) internal(topic string) func(int32) (*storage.Partition, error) {
	return func(p int32) (*storage.Partition, error) {
		return w.engine.OpenPartition(model.TopicPartition{Topic: catalog.InternalID(topic), Partition: p}, topic,
			storage.PartitionConfig{Compact: true})
	}
}

// stop ends the goroutines; twice is harmless.
func (w *txnWorld) stop() {
	if w.transactions != nil {
		w.transactions.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	w.engine.Close(ctx) // a broken disk is part of the tests
}

var noIdentity = model.ProducerIdentity{ID: model.NoProducerID, Epoch: model.NoProducerEpoch}

func (w *txnWorld) answer(f machine.Future[txn.Answer]) (model.ProducerIdentity, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	a, err := f.Wait(ctx)
	return a.Producer, err
}

func (w *txnWorld) tryInit(id string, given model.ProducerIdentity) (model.ProducerIdentity, error) {
	return w.answer(w.InitProducer(txn.Init{ID: id, Timeout: time.Minute, Given: given}))
}

func (w *txnWorld) init(id string) model.ProducerIdentity {
	w.Helper()
	p, err := w.tryInit(id, noIdentity)
	w.ok(err)
	return p
}

func (w *txnWorld) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// is fails unless err is the expected one.
func (w *txnWorld) is(err, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("got %v, want %v", err, want)
	}
}

func txnBatch(p model.ProducerIdentity, seq model.Sequence, values ...string) batch.View {
	b := batch.NewBuilder(batch.BuilderOptions{Transactional: true, Producer: &batch.Producer{ProducerIdentity: p, BaseSequence: seq}})
	for _, v := range values {
		b.Add(batch.NewRecord{Timestamp: 1, Value: []byte(v)})
	}
	view, err := b.Build()
	if err != nil {
		panic(err)
	}
	return view
}

// produceV appends one batch by the rules of a transaction version and waits.
func (w *txnWorld) produceV(v txn.Version, id string, p model.ProducerIdentity, seq model.Sequence, partition int, values ...string) (storage.Appended, error) {
	pending, err := w.Produce(Produce{
		TransactionalID: id, Version: v,
		Batches: []ProduceBatch{{w.logs[partition], txnBatch(p, seq, values...)}},
	})
	if err != nil {
		return storage.Appended{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return pending.At(0), pending.Wait(ctx)
}

func (w *txnWorld) produce(id string, p model.ProducerIdentity, seq model.Sequence, partition int, values ...string) {
	w.Helper()
	_, err := w.produceV(txn.V2, id, p, seq, partition, values...)
	w.ok(err)
}

func (w *txnWorld) tryEnd(v txn.Version, id string, p model.ProducerIdentity, o txn.Outcome) (model.ProducerIdentity, error) {
	return w.answer(w.EndTransaction(txn.End{ID: id, Producer: p, Outcome: o, Version: v}))
}

func (w *txnWorld) end(id string, p model.ProducerIdentity, o txn.Outcome) model.ProducerIdentity {
	w.Helper()
	next, err := w.tryEnd(txn.V2, id, p, o)
	w.ok(err)
	return next
}

// commitOffset commits a group's offset of input/0 inside a transaction.
func (w *txnWorld) commitOffset(v txn.Version, id string, p model.ProducerIdentity, groupID string, offset model.Offset) error {
	f := w.CommitTransactionOffsets(TransactionOffsets{
		TransactionalID: id, Version: v,
		Offsets: group.CommitOffsets{
			Group: groupID, Caller: group.Anonymous, Producer: &p,
			Offsets: []group.Commit{{Topic: "input", Partition: 0, Offset: offset, LeaderEpoch: -1}},
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	errs, err := f.Wait(ctx)
	return errors.Join(append(errs, err)...)
}

// groupOffset is what a group fetches with require_stable.
func (w *txnWorld) groupOffset(groupID string) (model.Offset, error) {
	w.Helper()
	c, err := w.groups.FetchOffsets(group.FetchOffsets{
		Group: groupID, Partitions: []group.PartitionOf{{Topic: "input"}}, Stable: true,
	}).Wait(w.Context())
	w.ok(err)
	return c[0].Offset, c[0].Err
}

func (w *txnWorld) state(id string) txn.State {
	w.Helper()
	a, err := w.DescribeTransaction(id).Wait(w.Context())
	if errors.Is(err, txn.ErrNotFound) {
		return txn.Dead
	}
	w.ok(err)
	return a.Records[0].State
}

// committed reads a partition as a read_committed client does.
func (w *txnWorld) committed(partition int) []string {
	w.Helper()
	var values []string
	w.scan(partition, model.ReadCommitted, func(v batch.View, hidden bool) {
		if !v.IsControl() && !hidden {
			values = append(values, batchValues(v)...)
		}
	})
	return values
}

// all reads a partition's data as a read_uncommitted client does.
func (w *txnWorld) all(partition int) []string {
	w.Helper()
	var values []string
	w.scan(partition, model.ReadUncommitted, func(v batch.View, _ bool) {
		if !v.IsControl() {
			values = append(values, batchValues(v)...)
		}
	})
	return values
}

func (w *txnWorld) scan(partition int, iso model.Isolation, visit func(v batch.View, hidden bool)) {
	w.Helper()
	p := w.logs[partition]
	hidden := map[model.ProducerID]bool{}
	for from := p.Bounds().Start; from < p.Bounds().Visible(iso); {
		r, err := p.Read(storage.ReadRequest{From: from, MaxBytes: 1 << 20, MinOneBatch: true, Isolation: iso})
		w.ok(err)
		b, err := r.Slice.Bytes()
		w.ok(err)
		aborted := r.Aborted
		for len(b) > 0 {
			v, rest, err := batch.Parse(b)
			w.ok(err)
			for len(aborted) > 0 && aborted[0].First <= v.LastOffset() {
				hidden[aborted[0].ProducerID] = true
				aborted = aborted[1:]
			}
			visit(v, hidden[v.ProducerID()])
			if m, err := v.Marker(); err == nil && m.Type == batch.Abort {
				delete(hidden, v.ProducerID())
			}
			b = rest
		}
		r.Slice.Release()
		from = r.Next
	}
}

func batchValues(v batch.View) []string {
	var values []string
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			panic(err)
		}
		values = append(values, string(r.Value))
	}
	return values
}

// sees fails unless read_committed readers get exactly these values.
func (w *txnWorld) sees(partition int, want ...string) {
	w.Helper()
	if got := w.committed(partition); !slices.Equal(got, want) {
		w.Errorf("partition %d: committed %v, want %v", partition, got, want)
	}
}

// quiet fails if anything is left open.
func (w *txnWorld) quiet() {
	w.Helper()
	for i, p := range w.logs {
		if b := p.Bounds(); b.Stable != b.High || b.High != b.End {
			w.Errorf("partition %d: %+v", i, b)
		}
		for _, s := range p.Producers() {
			if s.TxnStart != model.NoOffset {
				w.Errorf("partition %d: producer %d has a transaction open since %d", i, s.ID, s.TxnStart)
			}
		}
	}
	open, err := w.ListTransactions(txn.List{States: []txn.State{txn.Ongoing, txn.PrepareAbort, txn.PrepareCommit}})(w.Context())
	w.ok(err)
	if len(open) > 0 {
		w.Errorf("open transactions: %v", fmt.Sprint(open))
	}
}

// tick runs the scan for timeouts as the timer does, and waits for the disk.
func (w *txnWorld) tick() {
	w.eachShard(heldShard.abortOverdue)
	w.ok(w.engine.Barrier().Wait(w.Context()))
}
