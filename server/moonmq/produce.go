package moonmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/txn"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// produced is one PRODUCE, PRODUCE_IDEMPOTENT or PRODUCE_BATCH, whatever it came
// in.
type produced struct {
	topic      string
	codec      wire.Codec
	records    []batch.NewRecord
	isBatch    bool
	idempotent bool
	base       uint32 // sequence number of the first record
}

// outcome is where the records went, to be told when pending is done.
type outcome struct {
	acks    []coordinator.Ack
	pending *storage.Pending // nil: durable already
}

func (s *session) produce(r request) (answer, error) {
	m := r.body.(*wire.Produce)
	p := produced{topic: m.Topic, codec: m.Codec, records: []batch.NewRecord{newRecord(m.KeyValue, m.Headers)}}
	if err := s.mayProduce(p); err != nil {
		return answer{}, err
	}
	o, err := s.append(p)
	if err != nil {
		return answer{}, err
	}
	return o.single(), nil
}

func (s *session) produceBatch(r request) (answer, error) {
	m := r.body.(*wire.ProduceBatch)
	p := produced{topic: m.Topic, codec: m.Codec, isBatch: true, idempotent: m.Idempotent(), base: m.BaseSeq}
	p.records = make([]batch.NewRecord, len(m.Records))
	for i, kv := range m.Records {
		p.records[i] = newRecord(kv, nil)
	}
	if err := s.mayProduce(p); err != nil {
		return answer{}, err
	}
	if !p.idempotent {
		o, err := s.append(p)
		if err != nil {
			return answer{}, err
		}
		s.front.metrics.batch(p.topic)
		return o.batch(), nil
	}
	switch {
	case !s.producer.ready:
		return answer{}, fail(wire.NoProducerID, "INIT_PRODUCER_ID required before an idempotent PRODUCE_BATCH")
	case m.PID != s.producer.pid():
		return answer{}, s.pidMismatch(m.PID)
	case len(p.records) > wire.MaxIdempotentBatch:
		return answer{}, fail(wire.BatchTooLarge,
			fmt.Sprintf("idempotent batch of %d exceeds the %d-record limit; split it", len(p.records), wire.MaxIdempotentBatch))
	}
	o, err := s.appendInSequence(p, m.Epoch, nil)
	if err != nil {
		return answer{}, err
	}
	s.front.metrics.batch(p.topic)
	return o.batch(), nil
}

// needProducer stands before the decoding of PRODUCE_IDEMPOTENT.
func (s *session) needProducer() error {
	if !s.producer.ready {
		return fail(wire.NoProducerID, "INIT_PRODUCER_ID required before PRODUCE_IDEMPOTENT")
	}
	return nil
}

func (s *session) pidMismatch(frame uint64) error {
	return fail(wire.BadProtocol, fmt.Sprintf("pid mismatch: frame=%d conn=%d", frame, s.producer.pid()))
}

func (s *session) produceIdempotent(r request) (answer, error) {
	m := r.body.(*wire.ProduceIdempotent)
	if m.PID != s.producer.pid() {
		return answer{}, s.pidMismatch(m.PID)
	}
	p := produced{
		topic: m.Topic, codec: m.Codec, idempotent: true, base: m.Seq,
		records: []batch.NewRecord{newRecord(m.KeyValue, m.Headers)},
	}
	if err := s.authorize(access.Write, access.Topic, p.topic); err != nil {
		return answer{}, err
	}
	if err := s.charge(p.topic, cost{Requests, 1}); err != nil {
		return answer{}, err
	}
	o, err := s.appendInSequence(p, m.Epoch, func() error { return s.charge(p.topic, p.costs()...) })
	if err != nil {
		return answer{}, err
	}
	s.front.metrics.idempotent(p.topic)
	return o.single(), nil
}

// mayProduce checks rights and quotas of the forms that check them together.
func (s *session) mayProduce(p produced) error {
	if err := s.authorize(access.Write, access.Topic, p.topic); err != nil {
		return err
	}
	return s.charge(p.topic, append(p.costs(), cost{Requests, 1})...)
}

func (p produced) costs() []cost {
	bytes := 0
	for _, r := range p.records {
		bytes += len(r.Key) + len(r.Value)
	}
	return []cost{{ProduceRecords, float64(len(p.records))}, {ProduceBytes, float64(bytes)}}
}

// charge takes from the quotas; where nobody is known there are none.
func (s *session) charge(topic string, costs ...cost) error {
	if s.front.access.Open() {
		return nil
	}
	return s.front.quotas.take(s.user, topic, s.front.now(), costs...)
}

// newRecord keeps an empty key as none, as Kafka's clients spell it. It aliases
// the frame; builders copy.
func newRecord(kv wire.KeyValue, headers wire.Headers) batch.NewRecord {
	r := batch.NewRecord{Key: kv.Key, Value: kv.Value}
	if len(r.Key) == 0 {
		r.Key = nil
	}
	for _, h := range headers {
		r.Headers = append(r.Headers, batch.RecordHeader{Key: h.Name, Value: h.Value})
	}
	return r
}

// writable finds the topic of a produce and its codec.
func (s *session) writable(p produced) (*catalog.Topic, batch.Codec, error) {
	if err := checkTopicName(p.topic); err != nil {
		return nil, batch.Codec{}, err
	}
	t, ok := s.front.coordinator.Catalog().Topic(p.topic)
	if !ok || reserved(p.topic) {
		return nil, batch.Codec{}, fail(wire.TopicMissing, fmt.Sprintf("failed to get topic: topic %s does not exist", p.topic))
	}
	codec, err := storedCodec(p.codec)
	if err == nil && t.Rules(0).Recompress != nil {
		codec = *t.Rules(0).Recompress
	}
	return t, codec, err
}

func storedCodec(c wire.Codec) (batch.Codec, error) {
	switch c {
	case wire.CodecNone:
		return batch.Codec{}, nil
	case wire.CodecGzip:
		return batch.DefaultCodec(batch.Gzip), nil
	case wire.CodecSnappy:
		return batch.DefaultCodec(batch.Snappy), nil
	}
	return batch.Codec{}, fail(wire.Internal, fmt.Sprintf("compression codec %s unavailable on this broker", c))
}

// append writes records without sequence numbers.
func (s *session) append(p produced) (outcome, error) {
	t, codec, err := s.writable(p)
	if err != nil {
		return outcome{}, err
	}
	parts, parted, err := s.split(t, p, func(int32) batch.BuilderOptions { return batch.BuilderOptions{Codec: codec} })
	if err != nil {
		return outcome{}, err
	}
	pending, err := s.front.coordinator.Produce(coordinator.Produce{Batches: parts})
	if err != nil {
		return outcome{}, writeFailed(err)
	}
	s.appended = pending
	s.front.metrics.produced(p.topic, len(p.records))
	return outcome{coordinator.Acks(parts, parted, pending), pending}, nil
}

// split partitions the records and makes a batch for each partition.
func (s *session) split(t *catalog.Topic, p produced, options func(int32) batch.BuilderOptions) ([]coordinator.ProduceBatch, []uint16, error) {
	at := s.front.now()
	for i := range p.records {
		p.records[i].Timestamp = model.Timestamp(at.UnixMilli())
		if p.records[i].Key == nil && t.Settings.Compact {
			p.records[i].Key = []byte{} // compaction goes by key; the empty one is a key
		}
	}
	choose := func(r batch.NewRecord) int32 {
		if len(r.Key) > 0 {
			return partitionOf(r.Key, t.Partitions)
		}
		return s.front.sticky.choose(t.ID, t.Partitions, at)
	}
	open := func(partition int32) (*storage.Partition, error) { return s.front.coordinator.Partition(t, partition) }
	parts, parted, err := coordinator.SplitRecords(p.records, choose, open, options)
	if err != nil {
		return nil, nil, writeFailed(err)
	}
	if t.Settings.LogAppendTime {
		for _, part := range parts {
			part.Batch.StampAppendTime(model.Timestamp(at.UnixMilli()))
		}
	}
	return parts, parted, nil
}

// appendInSequence writes records with sequence numbers, or finds the acks they
// had. charge, when set, stands between the judgement and the append.
func (s *session) appendInSequence(p produced, epoch uint16, charge func() error) (outcome, error) {
	if s.producer.name != "" {
		if err := s.checkOwner(&epoch); err != nil {
			return outcome{}, err
		}
	}
	t, codec, err := s.writable(p)
	if err != nil {
		return outcome{}, err
	}
	retry, acks, expected, err := s.judge(p, t)
	switch {
	case err != nil:
		return outcome{}, err
	case retry == coordinator.Replay:
		return outcome{acks, s.producer.last}, nil
	case retry == coordinator.Gap:
		return outcome{}, fail(wire.OutOfOrderSequence, p.gap(expected, s.producer.pid()))
	}
	if charge != nil {
		if err := charge(); err != nil {
			return outcome{}, err
		}
	}
	o, err := s.appendFresh(p, t, codec)
	if err != nil {
		return outcome{}, err
	}
	s.producer.last, s.appended = o.pending, o.pending
	if s.producer.name != "" { // an unnamed one's append has counted itself
		s.front.metrics.produced(p.topic, len(p.records))
	}
	return o, nil
}

func (p produced) gap(expected, pid uint64) string {
	if p.isBatch {
		last := uint64(p.base) + uint64(len(p.records)) - 1
		return fmt.Sprintf("expected base seq %d, got %d..%d (pid=%d %s)", expected, p.base, last, pid, p.topic)
	}
	return fmt.Sprintf("expected seq %d, got %d (pid=%d %s)", expected, p.base, pid, p.topic)
}

// judge compares sequence numbers with the producer's memo of the topic.
func (s *session) judge(p produced, t *catalog.Topic) (coordinator.Retry, []coordinator.Ack, uint64, error) {
	if s.producer.name != "" {
		return s.front.coordinator.JudgeNamed(coordinator.NamedProduce{
			Name: s.producer.name, Session: s.producer.identity, Topic: t.ID, Base: p.base, Batch: p.isBatch,
		}, len(p.records))
	}
	memo := s.producer.memos[t.ID]
	retry, expected := memo.Judge(model.ProducerIdentity{}, p.base, len(p.records), p.isBatch, nil)
	if retry == coordinator.Replay {
		return retry, memo.Acks(p.isBatch), expected, nil
	}
	return retry, nil, expected, nil
}

func (s *session) appendFresh(p produced, t *catalog.Topic, codec batch.Codec) (outcome, error) {
	if s.producer.name == "" {
		o, err := s.append(p)
		if err == nil {
			s.producer.memos[t.ID] = coordinator.NewMemo(p.base, p.isBatch, o.acks)
		}
		return o, err
	}
	inTransaction := s.producer.inTransaction
	parts, parted, err := s.split(t, p, func(partition int32) batch.BuilderOptions {
		return batch.BuilderOptions{Codec: codec, Transactional: inTransaction, Producer: &batch.Producer{
			ProducerIdentity: s.producer.identity, BaseSequence: s.producer.sequences[t.Partition(partition)],
		}}
	})
	if err != nil {
		return outcome{}, err
	}
	acks, pending, err := s.front.coordinator.ProduceNamed(coordinator.NamedProduce{
		Name: s.producer.name, Session: s.producer.identity, Topic: t.ID, Base: p.base, Batch: p.isBatch,
		Transactional: inTransaction, Timestamp: model.Timestamp(s.front.now().UnixMilli()), Parts: parts, Parted: parted,
	})
	if err != nil {
		return outcome{}, s.ownerError(err, nil)
	}
	for _, part := range parts {
		s.producer.sequences[part.Partition.ID()] = part.Batch.BaseSequence().Add(part.Batch.Count())
	}
	return outcome{acks, pending}, nil
}

// checkOwner asks whether the session still owns its name, in the words of
// produce when frame is set and of transactions when it is not.
func (s *session) checkOwner(frame *uint16) error {
	current, err := s.front.coordinator.CheckNamed(s.producer.name, s.producer.identity)
	if err == nil && frame != nil && model.ProducerEpoch(*frame) != current.Epoch {
		err = txn.ErrFenced
	}
	return s.ownerError(err, frame)
}

// ownerError words what a session is told that no longer owns its name. A
// timed out transaction is told once; then the session is fenced like any other.
func (s *session) ownerError(err error, frame *uint16) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, txn.ErrTimedOut) && !s.producer.toldTimeout:
		s.producer.toldTimeout = true
		s.loseTransaction(txnTimedOut)
		return err
	case errors.Is(err, txn.ErrTimedOut), errors.Is(err, txn.ErrFenced), errors.Is(err, txn.ErrMapping), errors.Is(err, storage.ErrStaleProducerEpoch):
		s.loseTransaction(txnFenced)
		return s.fenced(frame)
	}
	return writeFailed(err)
}

// loseTransaction follows what somebody else ended.
func (s *session) loseTransaction(why txnEvent) {
	s.front.metrics.transaction(why)
	if s.producer.inTransaction {
		s.producer.inTransaction = false
		s.restorePositions()
	}
}

func (s *session) fenced(frame *uint16) error {
	current, _ := s.front.coordinator.CheckNamed(s.producer.name, s.producer.identity)
	if frame != nil {
		return fail(wire.ProducerFenced, fmt.Sprintf("producer fenced: frame epoch %d != current %d", *frame, current.Epoch))
	}
	return fail(wire.ProducerFenced, fmt.Sprintf("producer fenced: epoch %d != current %d", s.producer.identity.Epoch, current.Epoch))
}

// wait is done when the records are durable.
func (o outcome) wait(ctx context.Context) error {
	if o.pending == nil {
		return nil
	}
	if err := o.pending.Wait(ctx); err != nil {
		return writeFailed(err)
	}
	return nil
}

func (o outcome) ready() bool {
	if o.pending == nil {
		return true
	}
	select {
	case <-o.pending.Done():
		return true
	default:
		return false
	}
}

func (o outcome) single() answer {
	return answer{ready: o.ready, later: func(ctx context.Context) (wire.Message, error) {
		if err := o.wait(ctx); err != nil {
			return nil, err
		}
		ack := wireAck(o.acks[0])
		return &ack, nil
	}}
}

func (o outcome) batch() answer {
	return answer{ready: o.ready, later: func(ctx context.Context) (wire.Message, error) {
		if err := o.wait(ctx); err != nil {
			return nil, err
		}
		m := &wire.ProduceBatchAck{Acks: make([]wire.ProduceAck, len(o.acks))}
		for i, a := range o.acks {
			m.Acks[i] = wireAck(a)
		}
		return m, nil
	}}
}

func wireAck(a coordinator.Ack) wire.ProduceAck {
	return wire.ProduceAck{Partition: wirePartition(a.Partition), Offset: uint64(a.Offset)}
}

// wirePartition numbers from 1.
func wirePartition(p int32) uint32 { return uint32(p) + 1 }
