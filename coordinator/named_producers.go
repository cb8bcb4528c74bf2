package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// namedProducers append for MoonMQ producers with a name, which is a
// transactional id: what their session writes and the memo of it are one entry,
// made under the name's shard lock. So a session that was fenced cannot write
// behind its successor's Init, and the successor sees every memo.
type namedProducers struct {
	transactions *transactions
	memos        *memos
	sweepAt      atomic.Int64 // how many memos make the next sweep worth its while
}

// openNamedProducers replays the memos.
func (c *Coordinator) openNamedProducers(ctx context.Context) error {
	c.namedProducers = &namedProducers{transactions: c.transactions, memos: &memos{}}
	if err := c.namedProducers.memos.open(ctx, c.engine, c.internal(catalog.ProducerStateTopic)); err != nil {
		return err
	}
	return c.sweep()
}

// sweepLeast is how few memos are not worth a sweep.
const sweepLeast = 1000

// sweep forgets the memos of names the transactions have forgotten, and those of
// deleted topics. It runs at start, after ids were looked at for their expiry, and
// whenever the number of memos has doubled, so that they stay in proportion to
// what lives.
func (n *namedProducers) sweep() error {
	for name, keys := range n.memos.names() {
		if err := n.sweepName(name, keys); err != nil {
			return fmt.Errorf("forget memos of %q: %w", name, err)
		}
	}
	n.sweepAt.Store(int64(2*n.memos.len() + sweepLeast))
	return nil
}

func (n *namedProducers) sweepName(name string, keys []memoKey) error {
	h, err := n.transactions.hold(name)
	if err != nil {
		return err
	}
	defer h.Release()
	if _, known := h.s.ids.Lookup(name); known {
		keys = slices.DeleteFunc(keys, func(k memoKey) bool { return !n.memos.gone(k) })
	}
	if len(keys) == 0 {
		return nil
	}
	at := model.Timestamp(n.transactions.o.Now().UnixMilli())
	var appends []storage.Append
	for _, key := range keys {
		tombstone, err := n.memos.append(key, nil, at)
		if err != nil {
			return err
		}
		appends = append(appends, tombstone)
	}
	if _, err := n.transactions.o.Engine.Append(appends...); err != nil {
		return err
	}
	n.memos.forget(keys)
	return nil
}

// NamedProduce is a record or a batch of them for one topic.
type NamedProduce struct {
	Name          string
	Session       model.ProducerIdentity // from Init
	Topic         model.TopicID
	Base          uint32 // sequence number of the first record
	Batch         bool   // sent as a batch
	Transactional bool   // between BEGIN and END of its session
	Timestamp     model.Timestamp

	// Parts are the records by partition, each a batch with the session's identity
	// and a base sequence that is unique within it. Parted says for each record, in
	// the order of the request, in which part it is.
	Parts  []ProduceBatch
	Parted []uint16
}

// CheckNamed refuses a session that no longer owns its name. Errors: txn.ErrFenced,
// txn.ErrTimedOut, txn.ErrMapping. current is the name's owner.
func (n *namedProducers) CheckNamed(name string, session model.ProducerIdentity) (current model.ProducerIdentity, err error) {
	h, err := n.transactions.hold(name)
	if err != nil {
		return current, err
	}
	defer h.Release()
	d, err := h.consider(txn.Verify{ID: name, Producer: session})
	if record, ok := h.s.ids.Lookup(name); ok {
		current = record.Producer
	}
	if errors.Is(d.Err, txn.ErrConcurrent) {
		d.Err = nil // an end is being carried out; the session is still the owner
	}
	return current, errors.Join(err, d.Err)
}

// JudgeNamed compares a sequence number with what the name was acknowledged last on
// the topic. With Replay, acks are the answer. Errors: ErrMemoLost, the engine's.
func (n *namedProducers) JudgeNamed(p NamedProduce, count int) (r Retry, acks []Ack, expected uint64, err error) {
	key := memoKey{p.Name, p.Topic}
	memo := n.memos.get(key)
	r, expected = memo.Judge(p.Session, p.Base, count, p.Batch, func() bool { return n.memos.aborted(p.Topic, memo) })
	if r != Replay {
		return r, nil, expected, nil
	}
	found, err := n.memos.resolve(p.Topic, memo)
	if err != nil {
		return r, nil, expected, err
	}
	return r, found.Acks(p.Batch), expected, nil
}

// ProduceNamed appends records judged Fresh. The acks are good when the Pending is
// done. Errors: those of CheckNamed and the engine's; nothing was appended then.
func (n *namedProducers) ProduceNamed(p NamedProduce) ([]Ack, *storage.Pending, error) {
	if int64(n.memos.len()) > n.sweepAt.Load() {
		if err := n.sweep(); err != nil {
			return nil, nil, err
		}
	}
	t := n.transactions
	h, err := t.hold(p.Name)
	if err != nil {
		return nil, nil, err
	}
	defer h.Release()
	memo := p.memo()
	with, err := n.memos.append(memoKey{p.Name, p.Topic}, memo, p.Timestamp)
	if err != nil {
		return nil, nil, err
	}
	pending, err := p.append(h, with)
	if err != nil {
		return nil, nil, err
	}
	memo.acks = Acks(p.Parts, p.Parted, pending)
	n.memos.set(memoKey{p.Name, p.Topic}, memo)
	return memo.acks, pending, nil
}

// append decides and appends, under the shard's lock.
func (p NamedProduce) append(h heldShard, with storage.Append) (*storage.Pending, error) {
	request := Produce{TransactionalID: p.Name, Owner: txn.Session, Batches: p.Parts, With: []storage.Append{with}}
	if !p.Transactional {
		d, err := h.consider(txn.Verify{ID: p.Name, Producer: p.Session})
		if err := errors.Join(err, d.Err); err != nil {
			return nil, err
		}
		appends, err := request.appends(nil, storage.TxnNone)
		if err != nil {
			return nil, err
		}
		return h.t.o.Engine.Append(appends...)
	}
	producer, partitions := request.transactional()
	d, err := h.admit(request, producer, partitions)
	if err != nil {
		return nil, err
	}
	appends, err := request.appends(nil, storage.TxnOpen)
	switch {
	case err != nil:
		return nil, err
	case len(d.Facts) == 0:
		return h.t.o.Engine.Append(appends...)
	}
	return h.appendWith(d, appends)
}

// memo is what will be remembered, its acks still missing.
func (p NamedProduce) memo() *Memo {
	m := &Memo{
		Producer: p.Session, Base: p.Base, Last: p.Base + uint32(len(p.Parted)) - 1,
		Batch: p.Batch, Transactional: p.Transactional, parted: slices.Clone(p.Parted),
	}
	for _, part := range p.Parts {
		m.parts = append(m.parts, memoPart{
			partition: part.Partition.ID().Partition, from: part.Partition.Bounds().End, sequence: part.Batch.BaseSequence(),
		})
	}
	return m
}

// Acks says where each record of split batches went.
func Acks(parts []ProduceBatch, parted []uint16, pending *storage.Pending) []Ack {
	next := make([]model.Offset, len(parts))
	for i := range parts {
		next[i] = pending.At(i).Base
	}
	acks := make([]Ack, len(parted))
	for i, part := range parted {
		acks[i] = Ack{parts[part].Partition.ID().Partition, next[part]}
		next[part]++
	}
	return acks
}

// SplitRecords makes the batches of a NamedProduce, or of a producer without a
// name when producer is nil: the records of each partition become one batch.
// choose gives a record's partition, next the partition's sequence number.
func SplitRecords(records []batch.NewRecord, choose func(batch.NewRecord) int32, open func(int32) (*storage.Partition, error),
	options func(partition int32) batch.BuilderOptions) ([]ProduceBatch, []uint16, error) {
	var parts []ProduceBatch
	var builders []*batch.Builder
	index := map[int32]uint16{}
	parted := make([]uint16, len(records))
	for i, r := range records {
		partition := choose(r)
		part, known := index[partition]
		if !known {
			handle, err := open(partition)
			if err != nil {
				return nil, nil, err
			}
			part = uint16(len(parts))
			index[partition] = part
			parts = append(parts, ProduceBatch{Partition: handle})
			builders = append(builders, batch.NewBuilder(options(partition)))
		}
		builders[part].Add(r)
		parted[i] = part
	}
	for i, b := range builders {
		view, err := b.Build()
		if err != nil {
			return nil, nil, fmt.Errorf("build batch: %w", err)
		}
		parts[i].Batch = view
	}
	return parts, parted, nil
}
