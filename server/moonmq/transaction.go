package moonmq

import (
	"context"
	"errors"
	"time"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/txn"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// producer is the connection's producer id and what is remembered for it.
type producer struct {
	ready         bool
	name          string // "" for one that lives as long as the connection
	identity      model.ProducerIdentity
	inTransaction bool
	toldTimeout   bool
	// offsets are the input offsets the open transaction commits: a NACK of such a
	// partition would contradict it.
	offsets map[groupPartition]bool

	// memos are an unnamed producer's; a named one's are facts.
	memos map[model.TopicID]*coordinator.Memo
	// sequences numbers a named producer's records for the log, by partition. A
	// session has an epoch of its own, so they start at 0 with it.
	sequences map[model.TopicPartition]model.Sequence
	// last is the newest append: a replayed ack waits for it, in case it is the
	// one that is repeated.
	last *storage.Pending
}

// groupPartition is a partition as a group reads it.
type groupPartition struct {
	group, topic string
	partition    int32
}

func (p *producer) pid() uint64 { return uint64(p.identity.ID) }

// initProducer starts a producer session. With a name, whoever held it is fenced
// and its open transaction aborted, durably, before this is answered.
func (s *session) initProducer(r request) (answer, error) {
	name := r.body.(*wire.InitProducerID).Name
	ctx := s.conn.Context()
	if s.producer.inTransaction && s.producer.name != name {
		s.abandonTransaction()
	}
	var identity model.ProducerIdentity
	var err error
	s.holdName(name)
	if name == "" {
		identity, err = s.front.coordinator.InitIdempotent(ctx)
	} else {
		var a txn.Answer
		a, err = s.front.coordinator.InitProducer(txn.Init{
			ID: name, Timeout: s.transactionTimeout(), Owner: txn.Session,
			Given: model.ProducerIdentity{ID: model.NoProducerID, Epoch: model.NoProducerEpoch},
		}).Wait(ctx)
		identity = a.Producer
	}
	if err != nil {
		return answer{}, err
	}
	if s.producer.inTransaction {
		s.restorePositions()
	}
	s.producer = producer{
		ready: true, name: name, identity: identity,
		memos: map[model.TopicID]*coordinator.Memo{}, sequences: map[model.TopicPartition]model.Sequence{},
	}
	return now(&wire.ProducerID{PID: uint64(identity.ID), Epoch: uint16(identity.Epoch)}), nil
}

// holdName keeps a producer's name from being forgotten while the connection
// lives; "" leaves the one held before.
func (s *session) holdName(name string) {
	if s.held != "" && s.held != name {
		s.front.coordinator.LeaveName(s.held, s)
	}
	if s.held = name; name != "" {
		s.front.coordinator.HoldName(name, s)
	}
}

func (s *session) transactionTimeout() time.Duration {
	t := s.front.coordinator.Catalog().Broker().Transactions
	if t.MoonMQTimeout <= 0 {
		return t.MaxTimeout
	}
	return min(t.MoonMQTimeout, t.MaxTimeout)
}

// beginTxn is a matter of the session alone: the coordinator hears of the
// transaction with its first record.
func (s *session) beginTxn(request) (answer, error) {
	switch {
	case s.producer.name == "":
		return answer{}, fail(wire.InvalidTxnState, "transactions require a durable producer (producer_name in INIT_PRODUCER_ID)")
	case s.producer.inTransaction:
		if err := s.checkOwner(nil); err != nil {
			return answer{}, err
		}
		return answer{}, fail(wire.InvalidTxnState, "transaction already in progress")
	}
	if err := s.checkOwner(nil); err != nil {
		return answer{}, err
	}
	s.producer.inTransaction = true
	s.producer.offsets = map[groupPartition]bool{}
	s.savePositions()
	s.front.metrics.transaction(txnBegun)
	return now(&wire.OK{}), nil
}

// needTransaction stands before the decoding of END_TXN and TXN_OFFSET_COMMIT.
func (s *session) needTransaction() error {
	if !s.producer.inTransaction {
		return fail(wire.InvalidTxnState, "no transaction in progress")
	}
	return nil
}

// endTxn waits for the end to be durable: what comes next on this connection may
// depend on it.
func (s *session) endTxn(r request) (answer, error) {
	outcome, counted := txn.Abort, txnAborted
	if r.body.(*wire.EndTxn).Commit {
		outcome, counted = txn.Commit, txnCommitted
	}
	if err := s.finish(s.conn.Context(), outcome); err != nil {
		return answer{}, s.ownerError(err, nil)
	}
	s.producer.inTransaction = false
	s.front.metrics.transaction(counted)
	if outcome == txn.Abort {
		s.restorePositions()
	} else {
		s.keepPositions()
	}
	return now(&wire.OK{}), nil
}

func (s *session) finish(ctx context.Context, outcome txn.Outcome) error {
	_, err := s.front.coordinator.EndTransaction(txn.End{
		ID: s.producer.name, Producer: s.producer.identity, Outcome: outcome, Owner: txn.Session,
	}).Wait(ctx)
	return err
}

// abandonTransaction aborts what the connection leaves behind. A session that was
// fenced has nothing to abort any more.
func (s *session) abandonTransaction() {
	if !s.producer.inTransaction {
		return
	}
	s.producer.inTransaction = false
	err := s.finish(context.Background(), txn.Abort)
	switch {
	case err == nil:
		s.front.metrics.transaction(txnAborted)
	case errors.Is(err, txn.ErrFenced), errors.Is(err, txn.ErrTimedOut), errors.Is(err, txn.ErrMapping):
	default:
		s.front.log.Warn().Str("producer", s.producer.name).Err(err).Msg("transaction of a closed connection not aborted")
	}
}

// txnOffsetCommit stores input offsets with the transaction. Topics are not
// checked for existence, as in the original.
func (s *session) txnOffsetCommit(r request) (answer, error) {
	m := r.body.(*wire.TxnOffsetCommit)
	if err := s.authorize(access.Read, access.Group, m.Group); err != nil {
		return answer{}, err
	}
	for _, o := range m.Offsets {
		if err := s.authorize(access.Read, access.Topic, o.Topic); err != nil {
			return answer{}, err
		}
	}
	if err := s.checkOwner(nil); err != nil {
		return answer{}, err
	}
	commits := s.lastCommits(m.Offsets)
	if len(commits) == 0 {
		return now(&wire.OK{}), nil
	}
	identity := s.producer.identity
	future := s.front.coordinator.CommitTransactionOffsets(coordinator.TransactionOffsets{
		TransactionalID: s.producer.name, Owner: txn.Session,
		Offsets: group.CommitOffsets{
			Group: m.Group, Caller: group.Caller{Generation: -1, Unchecked: true}, Retention: -1,
			Offsets: commits, Producer: &identity,
		},
	})
	errs, err := future.Wait(s.conn.Context())
	if err := errors.Join(append(errs, err)...); err != nil {
		return answer{}, s.ownerError(err, nil)
	}
	for _, c := range commits {
		s.producer.offsets[groupPartition{m.Group, c.Topic, c.Partition}] = true
	}
	return now(&wire.OK{}), nil
}

// lastCommits are the offsets by partition; of several for one the last wins.
func (s *session) lastCommits(offsets []wire.TxnOffset) []group.Commit {
	place := map[wire.TxnOffset]int{}
	var commits []group.Commit
	for _, o := range offsets {
		if o.Partition == 0 || o.Partition > wire.MaxPartitions {
			continue // no partition has this number; the original keeps such an offset and nobody ever reads it
		}
		c := group.Commit{
			Topic: o.Topic, Partition: int32(o.Partition) - 1, Offset: clampOffset(o.Offset), LeaderEpoch: model.NoLeaderEpoch,
		}
		if t, ok := s.front.coordinator.Catalog().Topic(o.Topic); ok {
			c.TopicID = t.ID
		}
		key := wire.TxnOffset{Topic: o.Topic, Partition: o.Partition}
		if at, again := place[key]; again {
			commits[at] = c
			continue
		}
		place[key] = len(commits)
		commits = append(commits, c)
	}
	return commits
}

// clampOffset fits the wire's 64 unsigned bits into the log's 63.
func clampOffset(o uint64) model.Offset { return model.Offset(min(o, 1<<63-1)) }
