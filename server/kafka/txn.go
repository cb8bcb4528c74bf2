package kafka

import (
	"context"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage/model"
)

// Versions from which the transactional requests mean transactions v2 (KIP-890).
const (
	endsWithBump         int16 = 5 // EndTxn: every end bumps the epoch
	commitsEnrol         int16 = 5 // TxnOffsetCommit: enrols the group itself
	partitionsOfManyTxns int16 = 4 // AddPartitionsToTxn: batched, between brokers
	commitsByMember      int16 = 3 // TxnOffsetCommit: has member data
)

// errClientGone ends a connection whose client has reset it.
var errClientGone = fmt.Errorf("client reset the connection: %w", net.ErrClosed)

func holder(id int64, epoch int16) model.ProducerIdentity {
	return model.ProducerIdentity{ID: model.ProducerID(id), Epoch: model.ProducerEpoch(epoch)}
}

// initProducerID serves InitProducerId 0 to 5: 2 is flexible, 3 lets a producer
// present the identity it has (KIP-360), 4 knows PRODUCER_FENCED, 5
// TRANSACTION_ABORTABLE. Without a transactional id it hands out a producer id.
func initProducerID(s *session, r *request) reply {
	req := r.body.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID == nil {
		return s.initIdempotent(req, resp)
	}
	owned := s.coordinator.InitProducer(txn.Init{
		ID:      *req.TransactionalID,
		Timeout: millis(req.TransactionTimeoutMillis),
		Given:   holder(req.ProducerID, req.ProducerEpoch),
		Owner:   txn.Client,
	})
	return func(ctx context.Context) kmsg.Response {
		a, err := owned.Wait(ctx)
		if err != nil {
			resp.ErrorCode = txnCode(kmsg.InitProducerID, req.Version, err)
			return resp
		}
		resp.ProducerID, resp.ProducerEpoch = int64(a.Producer.ID), int16(a.Producer.Epoch)
		return resp
	}
}

func (s *session) initIdempotent(req *kmsg.InitProducerIDRequest, resp *kmsg.InitProducerIDResponse) reply {
	if (req.ProducerID == -1) != (req.ProducerEpoch == -1) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return now(resp)
	}
	return func(ctx context.Context) kmsg.Response {
		p, err := s.coordinator.InitIdempotent(ctx)
		if err != nil {
			resp.ErrorCode = txnCode(kmsg.InitProducerID, req.Version, err)
			return resp
		}
		resp.ProducerID, resp.ProducerEpoch = int64(p.ID), int16(p.Epoch)
		return resp
	}
}

// participant finds a partition to be enrolled. Of the broker's own topics only the
// offsets can be part of a transaction, and a client enrols them with AddOffsetsToTxn:
// AddPartitionsToTxn lets only other brokers, which send version 4 and above, name them.
func (s *session) participant(topic string, partition int32, version int16) (txn.Participant, int16) {
	t, code := s.topic(model.TopicID{}, topic)
	switch {
	case code != 0:
		return txn.Participant{}, code
	case !t.Has(partition):
		return txn.Participant{}, kerr.UnknownTopicOrPartition.Code
	case t.Internal && version < partitionsOfManyTxns:
		return txn.Participant{}, kerr.TopicAuthorizationFailed.Code
	case t.Internal && t.Name != catalog.OffsetsTopic:
		return txn.Participant{}, kerr.InvalidTopicException.Code
	}
	return txn.Participant{TopicPartition: t.Partition(partition), Name: t.Name}, 0
}

// addPartitionsToTxn serves AddPartitionsToTxn 0 to 5: 2 knows PRODUCER_FENCED, 3
// is flexible, 4 carries many transactions and can ask without enrolling, 5 knows
// TRANSACTION_ABORTABLE. If one partition of a transaction cannot be enrolled
// none is, and the others are answered OPERATION_NOT_ATTEMPTED.
func addPartitionsToTxn(s *session, r *request) reply {
	req := r.body.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version >= partitionsOfManyTxns {
		return s.addPartitionsBatched(req, resp)
	}
	e := enrolment{version: req.Version, id: req.TransactionalID, producer: holder(req.ProducerID, req.ProducerEpoch)}
	for _, t := range req.Topics {
		e.add(s, t.Topic, t.Partitions)
	}
	e.start(s)
	return func(ctx context.Context) kmsg.Response {
		e.wait(ctx)
		resp.Topics = e.topics
		return resp
	}
}

func (s *session) addPartitionsBatched(req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) reply {
	enrolments := make([]enrolment, len(req.Transactions))
	for i, t := range req.Transactions {
		e := &enrolments[i]
		*e = enrolment{
			version: req.Version, protocol: txn.V2, id: t.TransactionalID,
			producer: holder(t.ProducerID, t.ProducerEpoch), verifyOnly: t.VerifyOnly,
		}
		for _, topic := range t.Topics {
			e.add(s, topic.Topic, topic.Partitions)
		}
		e.start(s)
	}
	return func(ctx context.Context) kmsg.Response {
		for i := range enrolments {
			e := &enrolments[i]
			e.wait(ctx)
			t := kmsg.NewAddPartitionsToTxnResponseTransaction()
			t.TransactionalID = e.id
			for _, topic := range e.topics {
				var partitions []kmsg.AddPartitionsToTxnResponseTransactionTopicPartition
				for _, p := range topic.Partitions {
					partitions = append(partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition(p))
				}
				t.Topics = append(t.Topics, kmsg.AddPartitionsToTxnResponseTransactionTopic{Topic: topic.Topic, Partitions: partitions})
			}
			resp.Transactions = append(resp.Transactions, t)
		}
		return resp
	}
}

// enrolment is the partitions of one transaction in a request.
type enrolment struct {
	version    int16 // of the request
	protocol   txn.Version
	id         string
	producer   model.ProducerIdentity
	verifyOnly bool

	topics       []kmsg.AddPartitionsToTxnResponseTopic
	participants []txn.Participant // of the partitions without an error, in their order
	failed       bool
	answer       machine.Future[txn.Answer]
}

func (e *enrolment) add(s *session, topic string, partitions []int32) {
	t := kmsg.NewAddPartitionsToTxnResponseTopic()
	t.Topic = topic
	for _, n := range partitions {
		p := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
		p.Partition = n
		var participant txn.Participant
		if participant, p.ErrorCode = s.participant(topic, n, e.version); p.ErrorCode == 0 {
			e.participants = append(e.participants, participant)
		} else {
			e.failed = true
		}
		t.Partitions = append(t.Partitions, p)
	}
	e.topics = append(e.topics, t)
}

func (e *enrolment) start(s *session) {
	switch {
	case e.failed:
	case e.verifyOnly:
		e.answer = s.coordinator.Verify(txn.Verify{ID: e.id, Producer: e.producer, Partitions: e.participants})
	default:
		e.answer = s.coordinator.Enrol(txn.Enrol{ID: e.id, Producer: e.producer, Partitions: e.participants, Version: e.protocol})
	}
}

func (e *enrolment) wait(ctx context.Context) {
	if e.failed {
		e.fill(func(txn.Participant) int16 { return kerr.OperationNotAttempted.Code })
		return
	}
	a, err := e.answer.Wait(ctx)
	missing := map[txn.Participant]bool{}
	for _, p := range a.Missing {
		missing[p] = true
	}
	e.fill(func(p txn.Participant) int16 {
		if missing[p] {
			return txnCode(kmsg.AddPartitionsToTxn, e.version, txn.ErrNotEnrolled)
		}
		return txnCode(kmsg.AddPartitionsToTxn, e.version, err)
	})
}

// fill gives every partition without a code of its own the one for it.
func (e *enrolment) fill(code func(txn.Participant) int16) {
	rest := e.participants
	for _, t := range e.topics {
		for i := range t.Partitions {
			if t.Partitions[i].ErrorCode == 0 {
				t.Partitions[i].ErrorCode = code(rest[0])
				rest = rest[1:]
			}
		}
	}
}

// addOffsetsToTxn serves AddOffsetsToTxn 0 to 4: 2 knows PRODUCER_FENCED, 3 is
// flexible, 4 knows TRANSACTION_ABORTABLE. It enrols the partition that the
// group's offsets are written to; the group need not exist.
func addOffsetsToTxn(s *session, r *request) reply {
	req := r.body.(*kmsg.AddOffsetsToTxnRequest)
	enrolled := s.coordinator.Enrol(txn.Enrol{
		ID:         req.TransactionalID,
		Producer:   holder(req.ProducerID, req.ProducerEpoch),
		Partitions: []txn.Participant{s.coordinator.OffsetsParticipant(req.Group)},
	})
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
		_, err := enrolled.Wait(ctx)
		resp.ErrorCode = txnCode(kmsg.AddOffsetsToTxn, req.Version, err)
		return resp
	}
}

// txnOffsetCommit serves TxnOffsetCommit 0 to 6: 2 has leader epochs, 3 is
// flexible and has member data (KIP-447), which a client may leave out, 4 knows
// TRANSACTION_ABORTABLE, 5 enrols the group itself (KIP-890), 6 has topic ids.
// Topics and partitions nobody knows are answered and dropped; the others are committed.
func txnOffsetCommit(s *session, r *request) reply {
	req := r.body.(*kmsg.TxnOffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	producer := holder(req.ProducerID, req.ProducerEpoch)
	c := coordinator.TransactionOffsets{
		TransactionalID: req.TransactionalID,
		Offsets:         group.CommitOffsets{Group: req.Group, Caller: txnCaller(req), Producer: &producer},
	}
	if req.Version >= commitsEnrol {
		c.Version = txn.V2
	}
	var asked []*int16 // the code of each offset that is committed
	for _, t := range req.Topics {
		topic := kmsg.NewTxnOffsetCommitResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		topic.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		known, code := s.topic(t.TopicID, t.Topic)
		for i, p := range t.Partitions {
			topic.Partitions[i].Partition, topic.Partitions[i].ErrorCode = p.Partition, partitionCode(known, code, p.Partition)
			if topic.Partitions[i].ErrorCode == 0 {
				asked = append(asked, &topic.Partitions[i].ErrorCode)
				c.Offsets.Offsets = append(c.Offsets.Offsets, group.Commit{
					Topic: known.Name, TopicID: known.ID, Partition: p.Partition, Offset: model.Offset(p.Offset),
					LeaderEpoch: model.LeaderEpoch(p.LeaderEpoch), Metadata: text(p.Metadata),
				})
			}
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if len(asked) == 0 {
		return now(resp)
	}
	committed := s.coordinator.CommitTransactionOffsets(c)
	return func(ctx context.Context) kmsg.Response {
		results, err := committed.Wait(ctx)
		for i, code := range asked {
			if err == nil {
				*code = txnCode(kmsg.TxnOffsetCommit, req.Version, results[i])
			} else {
				*code = txnCode(kmsg.TxnOffsetCommit, req.Version, err)
			}
		}
		return resp
	}
}

// txnCaller is the group member a commit speaks for, if it says so.
func txnCaller(req *kmsg.TxnOffsetCommitRequest) group.Caller {
	if req.Version < commitsByMember {
		return group.Anonymous
	}
	return group.Caller{Member: req.MemberID, Instance: text(req.InstanceID), Generation: req.Generation}
}

// endTxn serves EndTxn 0 to 5: 2 knows PRODUCER_FENCED, 3 is flexible, 4 knows
// TRANSACTION_ABORTABLE, 5 bumps the epoch and answers with what to use next
// (KIP-890). The answer leaves when the decision is durable and visible on every
// partition and in every group.
//
// Before 5 nothing in a request says which transaction of an epoch it is to end,
// so one that comes late ends another (KAFKA-17754). What can be done is done: a
// request that waited here while its client tore the connection down, and perhaps
// asked again on another, has no effect.
func endTxn(s *session, r *request) reply {
	req := r.body.(*kmsg.EndTxnRequest)
	if req.Version < endsWithBump && s.conn.Reset() {
		r.hangup = errClientGone
		return nil
	}
	end := txn.End{
		ID:       req.TransactionalID,
		Producer: holder(req.ProducerID, req.ProducerEpoch),
		Outcome:  txn.Abort,
		Owner:    txn.Client,
	}
	if req.Commit {
		end.Outcome = txn.Commit
	}
	if req.Version >= endsWithBump {
		end.Version = txn.V2
	}
	ended := s.coordinator.EndTransaction(end)
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ProducerID, resp.ProducerEpoch = -1, -1
		a, err := ended.Wait(ctx)
		if err != nil {
			resp.ErrorCode = txnCode(kmsg.EndTxn, req.Version, err)
			return resp
		}
		resp.ProducerID, resp.ProducerEpoch = int64(a.Producer.ID), int16(a.Producer.Epoch)
		return resp
	}
}
