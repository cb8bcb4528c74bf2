package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// transactionShards is the number of partitions of __transaction_state. Kafka's
// default, which tools that look for an id's partition expect.
const transactionShards = 50

// transactions carries out what coordinator/txn decides: it finds the shard of
// a transactional id, puts a decision and everything that must be true together
// with it into one journal entry, and watches the clock.
//
//	            under the id's shard lock
//	┌──────────────────────────────────────────────────────────────────────┐
//	│ Consider ─► hold the group shards of __consumer_offsets participants  │
//	│             └► Engine.Append( COMMIT/ABORT on every participant,      │
//	│                               the id's record )      = one entry      │
//	│             └► settle the groups' pending offsets ─► apply the record  │
//	└──────────────────────────────────────────────────────────────────────┘
//
// Requests for one id that arrive meanwhile wait for the lock, in order, and
// are decided on the state after it; none is sent back to try again. Nothing
// waits for the disk under the lock.
type transactions struct {
	o      transactionsOptions
	shards [transactionShards]*transactionShard

	stop    chan struct{}
	stopped sync.WaitGroup
	closing sync.Once
}

// transactionsOptions connect the transactions to the rest of the coordinator.
type transactionsOptions struct {
	Engine *storage.Engine
	// State is the handle of a partition of __transaction_state.
	State func(partition int32) (*storage.Partition, error)
	// Now must not step backwards within a run of the process.
	Now func() time.Time
	// Level is the finalized transaction.version.
	Level func() txn.Version
	// NewProducerID returns an id that was never returned before, in no life of
	// the broker.
	NewProducerID func(context.Context) (model.ProducerID, error)
	// Settle holds the group shards of these partitions of __consumer_offsets
	// while sequence appends the markers, then lets each of them see its marker.
	Settle settleOffsets
	// CommitInTxn stores a group's offsets inside a transaction, with the others
	// in one entry; see groups.commitInTxn.
	CommitInTxn func(group.CommitOffsets, ...storage.Append) (machine.Future[[]error], machine.Joint, error)

	Machine txn.Options
	// How often transactions are looked at for their timeout, and ids for their
	// expiry. Kafka's names: transaction.abort.timed.out.transaction.cleanup.interval.ms
	// and transaction.remove.expired.transaction.cleanup.interval.ms.
	TimeoutScan, ExpiryScan time.Duration
	// Hangs is told of transactions that a start finds open and nobody to end
	// them; nil: nobody is.
	Hangs func(HangingTransaction)
	// Expired is called after every look for expired ids, under no lock, so that
	// what hangs on a forgotten id goes too; nil: nothing does.
	Expired func()
}

// settleOffsets is how the groups take part in the end of a transaction.
type settleOffsets func(partitions []int32, producer model.ProducerID, commit bool,
	sequence func() (*storage.Pending, error)) (*storage.Pending, error)

// transactionShard is one partition of __transaction_state with its machine.
type transactionShard struct {
	*machine.Shard[txn.Request, txn.Fact]
	log *stateLog
	ids *txn.Machine // set when the shard loads; only under its lock

	// live are MoonMQ's named producers with a connection, and which; only under
	// the lock. See HoldName.
	live map[string]any
}

func newTransactions(o transactionsOptions) *transactions {
	return &transactions{o: o, stop: make(chan struct{})}
}

// open loads every shard and finishes what the last life left unfinished.
// Nothing is served before it returns.
func (t *transactions) open(ctx context.Context) error {
	for i := range t.shards {
		if err := t.openShard(ctx, int32(i)); err != nil {
			return fmt.Errorf("open transactions: %w", err)
		}
	}
	return t.abortLeftOvers()
}

// start begins to watch the clock, once everything else is open.
func (t *transactions) start() { t.stopped.Go(t.watch) }

// close ends the watching. Twice is harmless.
func (t *transactions) close() {
	t.closing.Do(func() { close(t.stop) })
	t.stopped.Wait()
}

func (t *transactions) openShard(ctx context.Context, index int32) error {
	p, err := t.o.State(index)
	if err != nil {
		return err
	}
	s := &transactionShard{log: &stateLog{machine.NewLogFacts(t.o.Engine, p), p}, live: map[string]any{}}
	s.Shard = machine.NewShard(machine.Options[txn.Request, txn.Fact]{
		Name:  fmt.Sprintf("%s-%d", p.Name(), index),
		Index: index,
		New: func() machine.Machine[txn.Request, txn.Fact] {
			s.ids = txn.NewMachine(t.o.Machine)
			return s.ids
		},
		Codec: txn.Codec{},
		Facts: s.log,
		Now:   t.o.Now,
	})
	t.shards[index] = s
	if err := s.Load(ctx); err != nil {
		return err
	}
	return t.recoverShard(s)
}

func (t *transactions) recoverShard(s *transactionShard) error {
	s.ids.Loaded(t.o.Now())
	for _, id := range s.ids.Unfinished() {
		err := t.withProducerID(func() error {
			h, err := t.holdShard(s)
			if err != nil {
				return err
			}
			defer h.Release()
			return h.do(txn.Recover{ID: id})
		})
		if err != nil {
			return fmt.Errorf("finish transaction of %q: %w", id, err)
		}
	}
	return nil
}

// shard returns the shard of a transactional id.
func (t *transactions) shard(id string) *transactionShard {
	return t.shards[shardOf(id, transactionShards)]
}

// heldShard is a shard under its lock.
type heldShard struct {
	machine.Held[txn.Request, txn.Fact]
	t *transactions
	s *transactionShard
}

// hold locks the shard of a transactional id until Release.
func (t *transactions) hold(id string) (heldShard, error) { return t.holdShard(t.shard(id)) }

func (t *transactions) holdShard(s *transactionShard) (heldShard, error) {
	h, err := s.Hold()
	return heldShard{Held: h, t: t, s: s}, err
}

// errNoProducerID: a decision needs a producer id and none is at hand.
var errNoProducerID = errors.New("no producer id at hand")

// consider decides a command. The decision is good until the shard is released.
// A producer id that is not at hand is not waited for, because the shard is
// held: errNoProducerID, see withProducerID.
func (h heldShard) consider(c txn.Command) (txn.Decision, error) {
	now := h.t.o.Now()
	d := h.s.ids.Consider(now, c, model.NoProducerID)
	if !d.NeedsProducerID {
		return d, nil
	}
	id, err := h.t.o.NewProducerID(ended)
	if err != nil {
		return d, errNoProducerID
	}
	return h.s.ids.Consider(now, c, id), nil
}

// ended is a context in which nothing is waited for.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// withProducerID tries again when a producer id was missing, once there is one.
// That one is given up: another try may not need it.
func (t *transactions) withProducerID(try func() error) error {
	for {
		err := try()
		if !errors.Is(err, errNoProducerID) {
			return err
		}
		if _, err := t.o.NewProducerID(context.Background()); err != nil {
			return err
		}
	}
}

// carryOut sequences a decision together with others' appends and applies it.
// The answer is good when the entry is durable. An error says that nothing
// was done; the decision's own refusal is in the answer.
func (h heldShard) carryOut(d txn.Decision, sequence machine.Sequence) (machine.Future[txn.Answer], error) {
	reply := machine.NewPromise[txn.Answer]()
	err := h.RunWith(txn.Request{Decision: d, Reply: reply}, sequence)
	return reply.Future(), err
}

// end sequences a decision with the markers it asks for, if any.
func (h heldShard) end(d txn.Decision) (machine.Future[txn.Answer], error) {
	return h.carryOut(d, func(b machine.Batch) (machine.Sequenced, error) {
		return h.t.sequenceEnd(h.s, b)
	})
}

// do decides and carries out a command nobody waits for.
func (h heldShard) do(c txn.Command) error {
	d, err := h.consider(c)
	if err == nil {
		_, err = h.end(d)
	}
	return errors.Join(err, d.Err)
}

// run decides and carries out a command for a client.
func (t *transactions) run(s *transactionShard, c txn.Command) (answer machine.Future[txn.Answer]) {
	err := t.withProducerID(func() error {
		h, err := t.holdShard(s)
		if err != nil {
			return err
		}
		defer h.Release()
		d, err := h.consider(c)
		if err != nil {
			return err
		}
		answer, err = h.end(d)
		return err
	})
	if err != nil {
		return machine.Ready(txn.Answer{}, err)
	}
	return answer
}

// InitProducer makes the caller the owner of a transactional id and answers
// with the identity to use. An ongoing transaction of the id is aborted first,
// in the same entry. Errors: those of txn.Init.
func (t *transactions) InitProducer(c txn.Init) machine.Future[txn.Answer] {
	c.Level = t.o.Level()
	return t.run(t.shard(c.ID), c)
}

// InitIdempotent returns a producer id that belongs to no transactional id.
func (t *transactions) InitIdempotent(ctx context.Context) (model.ProducerIdentity, error) {
	id, err := t.o.NewProducerID(ctx)
	return model.ProducerIdentity{ID: id}, err
}

// Enrol makes partitions part of the id's transaction. Success is answered at
// once: an enrolment promises nothing by itself, and whatever is later
// acknowledged inside the transaction stands behind it in the journal.
func (t *transactions) Enrol(c txn.Enrol) machine.Future[txn.Answer] {
	h, err := t.hold(c.ID)
	if err != nil {
		return machine.Ready(txn.Answer{}, err)
	}
	defer h.Release()
	d, err := h.consider(c)
	if err != nil {
		return machine.Ready(txn.Answer{}, err)
	}
	if err := t.usable(c.Partitions); err != nil && d.Err == nil {
		return machine.Ready(txn.Answer{}, err)
	}
	answer, err := h.carryOut(d, h.s.log.Append)
	if err != nil || d.Err == nil {
		return machine.Ready(d.Answer, err)
	}
	return answer
}

// usable refuses to enrol a partition that is offline: it could not be written,
// and it may hold what an abort passed over, which a later commit must not take
// for its own.
func (t *transactions) usable(partitions []txn.Participant) error {
	for _, participant := range partitions {
		if p, ok := t.o.Engine.Partition(participant.TopicPartition); ok && p.Err() != nil {
			return fmt.Errorf("enrol %s-%d: %w", participant.Name, participant.Partition, p.Err())
		}
	}
	return nil
}

// Verify answers which partitions are not part of the id's transaction.
func (t *transactions) Verify(c txn.Verify) machine.Future[txn.Answer] {
	return t.run(t.shard(c.ID), c)
}

// EndTransaction commits or aborts. When the answer is released, every marker,
// the last stable offsets, the aborted lists and the groups' offsets are
// durable and visible. Errors: those of txn.End, and the engine's.
func (t *transactions) EndTransaction(c txn.End) machine.Future[txn.Answer] {
	return t.run(t.shard(c.ID), c)
}

// DescribeTransaction answers with the record of an id, or txn.ErrNotFound.
func (t *transactions) DescribeTransaction(id string) machine.Future[txn.Answer] {
	return t.run(t.shard(id), txn.Describe{ID: id})
}

// ListTransactions asks every shard; the function returned waits until what
// they answered is durable, and sorts by id.
func (t *transactions) ListTransactions(c txn.List) func(context.Context) ([]txn.Record, error) {
	var answers []machine.Future[txn.Answer]
	for _, s := range t.shards {
		answers = append(answers, t.run(s, c))
	}
	return func(ctx context.Context) ([]txn.Record, error) {
		var all []txn.Record
		for _, f := range answers {
			a, err := f.Wait(ctx)
			if err != nil {
				return nil, err
			}
			all = append(all, a.Records...)
		}
		slices.SortFunc(all, func(a, b txn.Record) int { return cmp.Compare(a.ID, b.ID) })
		return all, nil
	}
}
