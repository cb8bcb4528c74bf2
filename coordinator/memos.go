package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// memoPartitions is the number of partitions of __producer_state. A name's memos
// stand in the partition of its number in __transaction_state.
const memoPartitions = transactionShards

// Ack is where a record of a MoonMQ producer is.
type Ack struct {
	Partition int32
	Offset    model.Offset
}

// Memo is the last thing a MoonMQ producer was acknowledged on one topic: a
// record or a batch of them, by sequence number. A retry of exactly that gets
// the same acks again. Sequence numbers of this protocol run per topic, not per
// partition, so the producer tables of partitions cannot answer.
type Memo struct {
	Producer      model.ProducerIdentity // the session that sent it; zero for an unnamed producer
	Base, Last    uint32
	Batch         bool // sent as a batch; one of a single record is still a batch
	Transactional bool

	parts  []memoPart
	parted []uint16 // for each record the index of its part
	acks   []Ack    // nil after a restart, until somebody asks
}

// memoPart is the records of one partition: one batch of the log.
//
// A memo is appended in the same entry as its records, before their offsets are
// known. What is known is the batch's sequence number, which is unique within
// the producer's epoch, and a bound below its offset: enough to find it again.
type memoPart struct {
	partition int32
	from      model.Offset   // the batch is here or behind
	sequence  model.Sequence // its base sequence
}

// Retry says what a sequence number means against a memo.
type Retry int8

const (
	Fresh  Retry = iota // to be appended
	Replay              // answered with the memo's acks
	Gap                 // refused
)

// Judge compares a record, or a batch of count of them, with the memo of the
// producer and topic; m is nil if there is none. session is who sends it. aborted
// tells whether the memo's records were rolled back: then their numbers are used
// again by the client, which never saw an ack it could rely on. expected is the
// number that would be fresh.
func (m *Memo) Judge(session model.ProducerIdentity, base uint32, count int, isBatch bool, aborted func() bool) (r Retry, expected uint64) {
	if m == nil {
		return m.fresh(base, 0)
	}
	repeats := m.repeats(base, count, isBatch)
	if m.Producer == session {
		switch {
		case repeats && !(m.Transactional && aborted()):
			return Replay, 0
		case repeats:
			return Fresh, 0
		}
		return m.fresh(base, uint64(m.Last)+1)
	}
	// A new session counts from 0 again, so 0 is always new; another number can
	// only be a retry of what an older session sent last.
	switch {
	case base == 0 || repeats && m.Transactional && aborted():
		return Fresh, 0
	case repeats:
		return Replay, 0
	}
	return m.fresh(base, 0)
}

func (m *Memo) repeats(base uint32, count int, isBatch bool) bool {
	if isBatch {
		return m.Batch && base == m.Base && uint64(count) == uint64(m.Last-m.Base)+1
	}
	return base == m.Last
}

func (*Memo) fresh(base uint32, expected uint64) (Retry, uint64) {
	if uint64(base) == expected {
		return Fresh, expected
	}
	return Gap, expected
}

// Acks returns the answers to a retry: all of a batch, the last for a record.
func (m *Memo) Acks(isBatch bool) []Ack {
	if isBatch {
		return m.acks
	}
	return m.acks[len(m.acks)-1:]
}

// NewMemo is the memo of acknowledged records of a producer without a name; it
// lives in its session.
func NewMemo(base uint32, isBatch bool, acks []Ack) *Memo {
	return &Memo{Base: base, Last: base + uint32(len(acks)) - 1, Batch: isBatch, acks: acks}
}

// memoKey names a memo. A topic that is deleted and made again has another id.
type memoKey struct {
	name  string
	topic model.TopicID
}

// memos are the memos of all named producers, kept in __producer_state. A memo
// changes only under the shard lock of its producer's name; mu guards the map.
type memos struct {
	engine     *storage.Engine
	partitions [memoPartitions]*storage.Partition

	mu struct {
		sync.RWMutex
		all map[memoKey]*Memo
	}
}

// open replays the memos. handle returns the partitions of __producer_state.
func (m *memos) open(ctx context.Context, engine *storage.Engine, handle func(partition int32) (*storage.Partition, error)) error {
	m.engine = engine
	m.mu.all = map[memoKey]*Memo{}
	for i := range m.partitions {
		p, err := handle(int32(i))
		if err != nil {
			return fmt.Errorf("open producer memos: %w", err)
		}
		m.partitions[i] = p
		if err := p.Scan(ctx, p.Bounds().Start, m.replay); err != nil {
			return fmt.Errorf("read producer memos: %w", err)
		}
	}
	return nil
}

func (m *memos) replay(v batch.View) error {
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			return fmt.Errorf("read memo at offset %d: %w", v.BaseOffset(), err)
		}
		key, memo, err := decodeMemo(r.Key, r.Value)
		switch {
		case errors.Is(err, machine.ErrUnknownFact):
		case err != nil:
			return fmt.Errorf("decode memo at offset %d: %w", r.Offset, err)
		case memo == nil:
			delete(m.mu.all, key)
		default:
			m.mu.all[key] = memo
		}
	}
	return nil
}

func (m *memos) get(key memoKey) *Memo {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.all[key]
}

func (m *memos) set(key memoKey, memo *Memo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.all[key] = memo
}

// names lists everybody who has memos.
func (m *memos) names() map[string][]memoKey {
	m.mu.RLock()
	defer m.mu.RUnlock()
	names := map[string][]memoKey{}
	for key := range m.mu.all {
		names[key.name] = append(names[key.name], key)
	}
	return names
}

func (m *memos) len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.mu.all)
}

func (m *memos) forget(keys []memoKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.mu.all, key)
	}
}

// gone reports whether the topic of a memo was deleted.
func (m *memos) gone(key memoKey) bool {
	memo := m.get(key)
	if memo == nil || len(memo.parts) == 0 {
		return true
	}
	p, ok := m.engine.Partition(model.TopicPartition{Topic: key.topic, Partition: memo.parts[0].partition})
	return !ok || errors.Is(p.Err(), storage.ErrPartitionDeleted)
}

// append is the memo as an item of an entry; nil is a tombstone.
func (m *memos) append(key memoKey, memo *Memo, at model.Timestamp) (storage.Append, error) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	k, v := encodeMemo(key, memo)
	b.Add(batch.NewRecord{Timestamp: at, Key: k, Value: v})
	view, err := b.Build()
	if err != nil {
		return storage.Append{}, fmt.Errorf("build memo: %w", err)
	}
	return storage.Append{Partition: m.partitions[shardOf(key.name, memoPartitions)], Batch: view, Internal: true}, nil
}

// memoVersion is the version of key and value.
const memoVersion = 0

// encodeMemo builds the record of __producer_state:
//
//	key    ┌ i16 version ┬ str name ┬ 16 topic id ┐
//	value  ┌ i16 version ┬ i64 pid ┬ i16 epoch ┬ i32 base ┬ i32 last ┬ bool batch ┬ bool transactional ┬
//	       i32 parts ┬ parts × (i32 partition ┬ i64 from ┬ i32 sequence) ┬ i32 records ┬ records × i16 part ┐
func encodeMemo(key memoKey, memo *Memo) (k, v []byte) {
	var kw, vw machine.Writer
	kw.Int16(memoVersion)
	kw.String(key.name)
	kw.Raw(key.topic[:])
	if memo == nil {
		return kw.Bytes(), nil
	}
	vw.Int16(memoVersion)
	vw.Int64(int64(memo.Producer.ID))
	vw.Int16(int16(memo.Producer.Epoch))
	vw.Int32(int32(memo.Base))
	vw.Int32(int32(memo.Last))
	vw.Bool(memo.Batch)
	vw.Bool(memo.Transactional)
	vw.Int32(int32(len(memo.parts)))
	for _, p := range memo.parts {
		vw.Int32(p.partition)
		vw.Int64(int64(p.from))
		vw.Int32(int32(p.sequence))
	}
	vw.Int32(int32(len(memo.parted)))
	for _, part := range memo.parted {
		vw.Int16(int16(part))
	}
	return kw.Bytes(), vw.Bytes()
}

// decodeMemo reads what encodeMemo built; the memo of a tombstone is nil.
func decodeMemo(k, v []byte) (memoKey, *Memo, error) {
	var key memoKey
	kr := machine.NewReader(k)
	if version := kr.Int16(); kr.Err() == nil && version != memoVersion {
		return key, nil, machine.ErrUnknownFact
	}
	key.name = kr.String()
	kr.Raw(key.topic[:])
	if v == nil || kr.Err() != nil {
		return key, nil, kr.Err()
	}
	r := machine.NewReader(v)
	if version := r.Int16(); r.Err() == nil && version != memoVersion {
		return key, nil, machine.ErrUnknownFact
	}
	memo := &Memo{
		Producer: model.ProducerIdentity{ID: model.ProducerID(r.Int64()), Epoch: model.ProducerEpoch(r.Int16())},
		Base:     uint32(r.Int32()), Last: uint32(r.Int32()),
		Batch: r.Bool(), Transactional: r.Bool(),
	}
	memo.parts = make([]memoPart, r.Count(16))
	for i := range memo.parts {
		memo.parts[i] = memoPart{r.Int32(), model.Offset(r.Int64()), model.Sequence(r.Int32())}
	}
	memo.parted = make([]uint16, r.Count(2))
	for i := range memo.parted {
		memo.parted[i] = uint16(r.Int16())
		if int(memo.parted[i]) >= len(memo.parts) {
			r.Fail("record of part %d of %d", memo.parted[i], len(memo.parts))
		}
	}
	if len(memo.parted) == 0 {
		r.Fail("memo of no records")
	}
	return key, memo, r.Err()
}

// ErrMemoLost: the records of a memo are gone, so a retry of them cannot be
// answered.
var ErrMemoLost = errors.New("the records to be acknowledged again no longer exist")

// resolve finds the acks of a memo that was read at start.
func (m *memos) resolve(topic model.TopicID, memo *Memo) (*Memo, error) {
	if memo.acks != nil {
		return memo, nil
	}
	next := make([]model.Offset, len(memo.parts))
	for i, part := range memo.parts {
		p, ok := m.engine.Partition(model.TopicPartition{Topic: topic, Partition: part.partition})
		if !ok {
			return nil, ErrMemoLost
		}
		base, err := part.find(p, memo.Producer)
		if err != nil {
			return nil, err
		}
		next[i] = base
	}
	found := *memo
	found.acks = make([]Ack, len(memo.parted))
	for i, part := range memo.parted {
		found.acks[i] = Ack{memo.parts[part].partition, next[part]}
		next[part]++
	}
	return &found, nil
}

// errFound ends a scan.
var errFound = errors.New("found")

// find returns the base offset of the part's batch.
func (p memoPart) find(log *storage.Partition, producer model.ProducerIdentity) (base model.Offset, err error) {
	from := max(p.from, log.Bounds().Start)
	err = log.Scan(context.Background(), from, func(v batch.View) error {
		if v.ProducerID() == producer.ID && v.ProducerEpoch() == producer.Epoch && v.BaseSequence() == p.sequence && !v.IsControl() {
			base = v.BaseOffset()
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return base, nil
	case err != nil:
		return 0, fmt.Errorf("look for the records of a memo: %w", err)
	}
	return 0, ErrMemoLost
}

// aborted reports whether the transaction of a memo was rolled back. The log
// says so: the abort hides the records from readers of committed data.
func (m *memos) aborted(topic model.TopicID, memo *Memo) bool {
	found, err := m.resolve(topic, memo)
	if err != nil {
		return false
	}
	ack := found.acks[0]
	p, ok := m.engine.Partition(model.TopicPartition{Topic: topic, Partition: ack.Partition})
	if !ok {
		return false
	}
	read, err := p.Read(storage.ReadRequest{From: ack.Offset, MaxBytes: 1, MinOneBatch: true, Isolation: model.ReadCommitted})
	if err != nil {
		return false
	}
	if read.Slice != nil {
		read.Slice.Release()
	}
	return slices.ContainsFunc(read.Aborted, func(a storage.AbortedTxn) bool {
		return a.ProducerID == memo.Producer.ID && a.First <= ack.Offset && ack.Offset <= a.Last
	})
}
