package kafka

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// writeTxnMarkers serves WriteTxnMarkers 1 and 2: 2 says by which transaction
// version the marker's epoch is to be judged. Our own coordinator does not come
// this way; an operator does, to end a transaction that hangs (KIP-664).
func writeTxnMarkers(s *session, r *request) reply {
	req := r.body.(*kmsg.WriteTxnMarkersRequest)
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	type written struct {
		code    *int16
		pending *storage.Pending
	}
	var all []written
	for i := range req.Markers {
		m := &req.Markers[i]
		answer := kmsg.NewWriteTxnMarkersResponseMarker()
		answer.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic = t.Topic
			topic.Partitions = make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))
			for j, n := range t.Partitions {
				p := &topic.Partitions[j]
				p.Partition = n
				var pending *storage.Pending
				if pending, p.ErrorCode = s.writeMarker(m, t.Topic, n); pending != nil {
					all = append(all, written{&p.ErrorCode, pending})
				}
			}
			answer.Topics = append(answer.Topics, topic)
		}
		resp.Markers = append(resp.Markers, answer)
	}
	return func(ctx context.Context) kmsg.Response {
		for _, w := range all {
			*w.code = codeOf(w.pending.Wait(ctx))
		}
		return resp
	}
}

func (s *session) writeMarker(m *kmsg.WriteTxnMarkersRequestMarker, topic string, partition int32) (*storage.Pending, int16) {
	t, code := s.topic(model.TopicID{}, topic)
	if code != 0 {
		return nil, code
	}
	if m.ProducerID < 0 || m.ProducerEpoch < 0 {
		return nil, kerr.UnknownServerError.Code // Kafka's word for it
	}
	if t.Internal && t.Name != catalog.OffsetsTopic {
		return nil, kerr.InvalidTopicException.Code
	}
	p, err := s.coordinator.Partition(t, partition)
	if err != nil {
		return nil, codeOf(err)
	}
	w := coordinator.MarkerWrite{
		Partition: p, Producer: holder(m.ProducerID, m.ProducerEpoch), Outcome: txn.Abort,
		CoordinatorEpoch: m.CoordinatorEpoch, Version: txn.Version(m.TransactionVersion),
	}
	if m.Committed {
		w.Outcome = txn.Commit
	}
	pending, err := s.coordinator.WriteMarker(w)
	if err != nil {
		return nil, txnCodeOf(kmsg.WriteTxnMarkers, err)
	}
	return pending, 0
}

// describeProducers serves DescribeProducers 0: what partitions remember of
// their producers, open transactions included. A partition named often is described
// once.
func describeProducers(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	type place struct {
		topic     string
		partition int32
	}
	seen := map[place]bool{}
	for _, t := range req.Topics {
		topic := kmsg.NewDescribeProducersResponseTopic()
		topic.Topic = t.Topic
		for _, n := range t.Partitions {
			if seen[place{t.Topic, n}] {
				continue
			}
			seen[place{t.Topic, n}] = true
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = n
			var log *storage.Partition
			if catalog.CheckTopicName(t.Topic) != nil {
				p.ErrorCode = kerr.InvalidTopicException.Code
			} else if log, p.ErrorCode = s.leading(model.TopicID{}, t.Topic, n, model.NoLeaderEpoch); log != nil {
				p.ActiveProducers = activeProducers(log)
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return now(resp)
}

func activeProducers(p *storage.Partition) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	var active []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for _, known := range p.Producers() {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch = int64(known.ID), int32(known.Epoch)
		a.LastSequence, a.LastTimestamp = int32(known.LastSequence), int64(known.LastTimestamp)
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = known.CoordinatorEpoch, int64(known.TxnStart)
		active = append(active, a)
	}
	return active
}

// describeTransactions serves DescribeTransactions 0.
func describeTransactions(s *session, r *request) reply {
	req := r.body.(*kmsg.DescribeTransactionsRequest)
	ids := distinct(req.TransactionalIDs)
	answers := make([]machine.Future[txn.Answer], len(ids))
	for i, id := range ids {
		answers[i] = s.coordinator.DescribeTransaction(id)
	}
	return func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for i, id := range ids {
			state := kmsg.NewDescribeTransactionsResponseTransactionState()
			state.TransactionalID = id
			if a, err := answers[i].Wait(ctx); err != nil {
				state.ErrorCode = txnCode(kmsg.DescribeTransactions, req.Version, err)
			} else {
				describeRecord(&state, a.Records[0])
			}
			resp.TransactionStates = append(resp.TransactionStates, state)
		}
		return resp
	}
}

func describeRecord(state *kmsg.DescribeTransactionsResponseTransactionState, r txn.Record) {
	state.State = r.State.String()
	state.TimeoutMillis, state.StartTimestamp = int32(r.Timeout/time.Millisecond), int64(r.Start)
	state.ProducerID, state.ProducerEpoch = int64(r.Producer.ID), int16(r.Producer.Epoch)
	for _, p := range r.Partitions {
		if n := len(state.Topics); n == 0 || state.Topics[n-1].Topic != p.Name {
			topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			topic.Topic = p.Name
			state.Topics = append(state.Topics, topic)
		}
		last := &state.Topics[len(state.Topics)-1]
		last.Partitions = append(last.Partitions, p.Partition)
	}
}

// listTransactions serves ListTransactions 0 to 2: 1 filters by duration, 2 by a
// pattern of the id. Names of states nobody has are given back.
func listTransactions(s *session, r *request) reply {
	req := r.body.(*kmsg.ListTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	filter, code := listFilter(req, resp)
	if code != 0 {
		resp.ErrorCode = code
		return now(resp)
	}
	if len(req.StateFilters) > 0 && len(filter.States) == 0 {
		return now(resp) // only states that do not exist were asked for
	}
	list := s.coordinator.ListTransactions(filter)
	return func(ctx context.Context) kmsg.Response {
		records, err := list(ctx)
		if err != nil {
			resp.ErrorCode = txnCode(kmsg.ListTransactions, req.Version, err)
			return resp
		}
		for _, r := range records {
			state := kmsg.NewListTransactionsResponseTransactionState()
			state.TransactionalID, state.ProducerID, state.TransactionState = r.ID, int64(r.Producer.ID), r.State.String()
			resp.TransactionStates = append(resp.TransactionStates, state)
		}
		return resp
	}
}

func listFilter(req *kmsg.ListTransactionsRequest, resp *kmsg.ListTransactionsResponse) (f txn.List, code int16) {
	for _, name := range req.StateFilters {
		if state, ok := txn.ParseState(name); ok {
			f.States = append(f.States, state)
		} else if !slices.Contains(resp.UnknownStateFilters, name) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	for _, id := range req.ProducerIDFilters {
		f.Producers = append(f.Producers, model.ProducerID(id))
	}
	if req.Version >= 1 && req.DurationFilterMillis >= 0 {
		longer := millis(min(req.DurationFilterMillis, math.MaxInt64/int64(time.Millisecond)))
		f.Longer = &longer
	}
	if req.Version >= 2 && req.TransactionalIDPattern != nil && *req.TransactionalIDPattern != "" {
		pattern, err := txn.CompilePattern(*req.TransactionalIDPattern)
		if err != nil {
			return f, kerr.InvalidRegularExpression.Code
		}
		f.Pattern = pattern
	}
	return f, 0
}
