package kafka

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

const (
	acksNone int16 = 0
	acksOne  int16 = 1
	acksAll  int16 = -1

	// produceFloor is the first version that is served. Older ones carry message
	// formats 0 and 1; they are advertised all the same, because clients built on
	// librdkafka take the lowest version for a sign of an old broker (KAFKA-18659).
	produceFloor int16 = 3

	zstdFloor int16 = 7 // the first version whose clients may send zstd

	// implicitEnrolment is the first version whose transactional batches enrol
	// their partitions themselves (transactions v2, KIP-890).
	implicitEnrolment int16 = 12
)

// produce serves Produce 0 to 13, of which 0 to 2 are refused: 3 brings record
// batches and transactions, 5 answers with the log start, 7 allows zstd, 8 names
// bad records and a message, 9 is flexible, 10 has node endpoints, 11 and 12
// belong to transactions (new codes, implicit enrolment), 13 uses topic ids.
//
// The batches are appended here, on the read goroutine, which fixes their order;
// the reply waits until they are durable. Acks 1 and all mean the same, and the
// request's timeout nothing: it is for replicas, of which there are no others. Acks 0
// is waited for too, since the engine uses the frame's bytes until then, but not
// answered. A refused batch then closes the connection, which is the only way
// left to tell the client.
func produce(s *session, r *request) reply {
	req := r.body.(*kmsg.ProduceRequest)
	p := &production{session: s, request: r, req: req}
	p.fill()
	if code := p.refuse(); code != 0 {
		p.refuseAll(code)
	} else {
		p.acceptAll()
		p.append()
	}
	if req.Acks == acksNone {
		if p.refused != nil {
			r.hangup = fmt.Errorf("produce with acks=0: %w", p.refused)
		}
		return p.waitSilently
	}
	r.frame.ReadyWhen(p.ready)
	return p.answer
}

// production is one produce request on its way.
type production struct {
	session *session
	request *request
	req     *kmsg.ProduceRequest
	resp    kmsg.ProduceResponse
	items   []produced
	refused error // why some item was refused

	// Room for the usual request, which has one batch.
	room struct {
		topics     [1]kmsg.ProduceResponseTopic
		partitions [1]kmsg.ProduceResponseTopicPartition
		items      [1]produced
		batches    [1]coordinator.ProduceBatch
	}
}

// produced is the batch for one partition.
type produced struct {
	topic   *catalog.Topic
	answer  *kmsg.ProduceResponseTopicPartition
	batch   coordinator.ProduceBatch
	pending *storage.Pending // nil: refused
	index   int              // of the batch in pending
}

// fill makes an item and a place in the answer for every partition.
func (p *production) fill() {
	n := 0
	for i := range p.req.Topics {
		n += len(p.req.Topics[i].Partitions)
	}
	p.resp.Default()
	p.resp.Topics = sized(p.room.topics[:], len(p.req.Topics))
	p.items = sized(p.room.items[:], n)[:0]
	partitions := sized(p.room.partitions[:], n)
	for i := range p.req.Topics {
		from, to := &p.req.Topics[i], &p.resp.Topics[i]
		to.Topic, to.TopicID = from.Topic, from.TopicID
		n := len(from.Partitions)
		to.Partitions, partitions = partitions[:n:n], partitions[n:]
		for j := range from.Partitions {
			a := &to.Partitions[j]
			a.Default()
			a.Partition, a.BaseOffset, a.LogAppendTime, a.LogStartOffset = from.Partitions[j].Partition, -1, -1, -1
			p.items = append(p.items, produced{answer: a})
		}
	}
}

// sized is room, cut to n elements, or a new slice when it is too small.
func sized[T any](room []T, n int) []T {
	if n > len(room) {
		return make([]T, n)
	}
	return room[:n]
}

// refuse returns the code that answers every partition, or 0.
func (p *production) refuse() int16 {
	switch {
	case p.request.version < produceFloor:
		return kerr.UnsupportedVersion.Code
	case p.req.Acks < acksAll || p.req.Acks > acksOne:
		return kerr.InvalidRequiredAcks.Code
	}
	return 0
}

func (p *production) refuseAll(code int16) {
	for i := range p.items {
		p.items[i].answer.ErrorCode = code
	}
	p.refused = kerr.ErrorForCode(code)
}

// fail refuses one item.
func (p *production) fail(it *produced, code int16, err error) {
	it.answer.ErrorCode = code
	if err == nil {
		err = kerr.ErrorForCode(code)
	} else if p.request.version >= 8 {
		it.answer.ErrorMessage = kmsg.StringPtr(err.Error())
		it.answer.ErrorRecords = badRecords(err)
	}
	p.refused = err
}

// badRecords lists the records a batch was refused for (KIP-467).
func badRecords(err error) []kmsg.ProduceResponseTopicPartitionErrorRecord {
	bad, ok := errors.AsType[*batch.RecordsError](err)
	if !ok {
		return nil
	}
	list := make([]kmsg.ProduceResponseTopicPartitionErrorRecord, 0, len(bad.Records))
	for _, r := range bad.Records {
		e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		e.RelativeOffset, e.ErrorMessage = r.Index, kmsg.StringPtr(r.Message)
		list = append(list, e)
	}
	return list
}

// acceptAll finds every partition and checks its batch against its topic.
func (p *production) acceptAll() {
	at := 0
	for i := range p.req.Topics {
		t := &p.req.Topics[i]
		topic, code := p.topic(t)
		for j := range t.Partitions {
			it := &p.items[at]
			at++
			if code != 0 {
				p.fail(it, code, nil)
				continue
			}
			it.topic = topic
			p.accept(it, t.Partitions[j].Partition, t.Partitions[j].Records)
		}
	}
}

// topic finds the topic a client wants to write to.
func (p *production) topic(t *kmsg.ProduceRequestTopic) (*catalog.Topic, int16) {
	topic, code := p.session.topic(t.TopicID, t.Topic)
	switch {
	case code == kerr.UnknownTopicOrPartition.Code && catalog.CheckTopicName(t.Topic) != nil:
		return nil, kerr.InvalidTopicException.Code
	case code != 0:
		return nil, code
	case topic.Internal:
		return nil, kerr.InvalidTopicException.Code
	}
	return topic, 0
}

func (p *production) accept(it *produced, partition int32, records []byte) {
	log, err := p.session.coordinator.Partition(it.topic, partition)
	if err != nil {
		p.fail(it, codeOf(err), nil)
		return
	}
	view, err := batch.Accept(records, it.topic.Rules(model.Timestamp(p.request.arrived.UnixMilli())))
	if err != nil {
		p.fail(it, codeOf(err), err)
		return
	}
	if p.request.version < zstdFloor && view.Compression() == batch.Zstd {
		p.fail(it, kerr.UnsupportedCompressionType.Code, nil)
		return
	}
	it.batch = coordinator.ProduceBatch{Partition: log, Batch: view}
	p.session.metrics.ProduceBatches.Add(1)
	p.session.metrics.ProduceRecords.Add(int64(view.Count()))
	p.session.metrics.ProduceBytes.Add(int64(view.Len()))
}

// jointBytes is up to which size batches share a journal entry: the entry's share of
// the work is felt with batches of a few hundred bytes and not with large ones, which
// the flusher may begin to write while the next ones are being checked.
const jointBytes = 128 << 10

// append puts the accepted batches into the log: those of a transaction together, so
// that a partition's enrolment costs no entry of its own, the others as far as they
// are small, and large ones side by side.
func (p *production) append() {
	if len(p.items) == 1 && !p.items[0].transactional() {
		if !p.items[0].batch.Batch.IsZero() {
			p.appendOne(&p.items[0])
		}
		return
	}
	var transactional, joint, large []*produced
	var size int
	repeats := sync.OnceValue(p.repeats)
	for i := range p.items {
		it := &p.items[i]
		switch {
		case it.batch.Batch.IsZero():
		case it.transactional():
			transactional = append(transactional, it)
		case it.batch.Batch.Len() >= jointBytes && !repeats():
			large = append(large, it)
		default:
			if n := it.batch.Batch.Len(); size+n > jointBytes {
				p.appendTogether(joint)
				joint, size = joint[:0], 0
			}
			joint, size = append(joint, it), size+it.batch.Batch.Len()
		}
	}
	p.appendTogether(joint)
	if len(large) > 0 {
		p.appendLarge(large)
	}
	if len(transactional) == 0 {
		return
	}
	if code := p.refuseTransactional(transactional); code != 0 {
		for _, it := range transactional {
			p.fail(it, code, nil)
		}
		return
	}
	p.appendTogether(transactional)
}

func (it *produced) transactional() bool {
	return !it.batch.Batch.IsZero() && it.batch.Batch.IsTransactional()
}

// refuseTransactional returns the code that answers all transactional batches:
// they need an id to belong to, and are one producer's, of one epoch.
func (p *production) refuseTransactional(items []*produced) int16 {
	if p.req.TransactionID == nil {
		return kerr.TransactionalIDAuthorizationFailed.Code
	}
	for _, it := range items {
		if producerOf(it) != producerOf(items[0]) {
			return kerr.InvalidProducerIDMapping.Code
		}
	}
	return 0
}

func producerOf(it *produced) model.ProducerIdentity {
	b := it.batch.Batch
	return model.ProducerIdentity{ID: b.ProducerID(), Epoch: b.ProducerEpoch()}
}

// appendTogether appends in one entry; if one batch is refused, each is tried
// alone, so that a refusal concerns its own partition only.
func (p *production) appendTogether(items []*produced) {
	if len(items) > 1 {
		call := p.call()
		call.Batches = make([]coordinator.ProduceBatch, 0, len(items))
		for _, it := range items {
			call.Batches = append(call.Batches, it.batch)
		}
		if pending, err := p.session.coordinator.Produce(call); err == nil {
			for i, it := range items {
				it.pending, it.index = pending, i
			}
			return
		}
	}
	for _, it := range items {
		p.appendOne(it)
	}
}

// atOnce is how many large batches of one request are written side by side.
const atOnce = 4

// appendLarge appends each batch in an entry of its own. What one connection sends is
// served by one goroutine, which would spend its time on copying to the page cache.
func (p *production) appendLarge(items []*produced) {
	if len(items) == 1 {
		p.appendOne(items[0])
		return
	}
	errs := make([]error, len(items))
	var crash atomic.Pointer[string]
	var writers sync.WaitGroup
	for first := range min(atOnce, len(items)) {
		writers.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					report := fmt.Sprintf("%v\n\n%s", v, debug.Stack())
					crash.Store(&report)
				}
			}()
			for i := first; i < len(items); i += atOnce {
				call := p.call()
				call.Batches = []coordinator.ProduceBatch{items[i].batch}
				items[i].pending, errs[i] = p.session.coordinator.Produce(call)
			}
		})
	}
	writers.Wait()
	if report := crash.Load(); report != nil {
		panic(*report) // where it costs this connection only
	}
	for i, err := range errs {
		if err != nil {
			p.refuseOne(items[i], err)
		}
	}
}

// repeats reports whether a partition occurs twice: then the order matters.
func (p *production) repeats() bool {
	seen := make(map[*storage.Partition]bool, len(p.items))
	for i := range p.items {
		log := p.items[i].batch.Partition
		if log != nil && seen[log] {
			return true
		}
		seen[log] = true
	}
	return false
}

func (p *production) refuseOne(it *produced, err error) {
	it.pending = nil
	code := txnCode(kmsg.Produce, p.request.version, err)
	p.complain(it, code, err)
	p.fail(it, code, err)
}

func (p *production) appendOne(it *produced) {
	call := p.call()
	p.room.batches[0] = it.batch
	call.Batches = p.room.batches[:]
	pending, err := p.session.coordinator.Produce(call)
	if err != nil {
		p.refuseOne(it, err)
		return
	}
	it.pending = pending
}

// call is a coordinator call without batches.
func (p *production) call() coordinator.Produce {
	c := coordinator.Produce{Owner: txn.Client}
	if p.req.TransactionID != nil {
		c.TransactionalID = *p.req.TransactionID
	}
	if p.request.version >= implicitEnrolment {
		c.Version = txn.V2
	}
	return c
}

// ready reports whether every batch is durable, so that the answer would not
// block.
func (p *production) ready() bool {
	for i := range p.items {
		if pending := p.items[i].pending; pending != nil {
			select {
			case <-pending.Done():
			default:
				return false
			}
		}
	}
	return true
}

// answer is the reply: it waits for every batch.
func (p *production) answer(ctx context.Context) kmsg.Response {
	for i := range p.items {
		p.settle(ctx, &p.items[i])
	}
	return &p.resp
}

// settle waits for one batch and fills in its answer.
func (p *production) settle(ctx context.Context, it *produced) {
	if it.pending == nil {
		return
	}
	if err := p.await(ctx, it.pending); err != nil {
		it.answer.ErrorCode = codeOf(err)
		return
	}
	at := it.pending.At(it.index)
	it.answer.BaseOffset, it.answer.LogStartOffset = int64(at.Base), int64(at.LogStart)
	if it.topic.Settings.LogAppendTime {
		it.answer.LogAppendTime = int64(at.LogAppendTime)
	}
}

// await waits for one batch, or for the connection's end.
func (p *production) await(ctx context.Context, pending *storage.Pending) error {
	select {
	case <-pending.Done():
		return pending.Err()
	default:
	}
	select {
	case <-pending.Done():
		return pending.Err()
	case <-ctx.Done():
		p.request.frame.Abandon() // the journal may still read it
		return ctx.Err()
	}
}

// waitSilently is the reply to acks=0.
func (p *production) waitSilently(ctx context.Context) kmsg.Response {
	for i := range p.items {
		p.settle(ctx, &p.items[i])
	}
	return nil
}
