package coordinator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// Options describe a coordinator.
type Options struct {
	Static *config.Static // what the broker was started with; nil: every default
	Broker *config.Broker // the same, parsed; nil: parsed from Static
	Events Events
	// Volume says how many bytes may still be written and how large the volume is,
	// as vfs.FS.Free does; nil: unknown.
	Volume func() (free, total int64, err error)
}

// Events are called when something happened that an operator wants to know. Any
// of them may be nil. They run on the caller's goroutine, under no lock, and
// must not block.
type Events struct {
	TopicCreated func(catalog.TopicCreated)
	TopicDeleted func(*catalog.Topic)
	// TransactionHangs: this start found one open and nobody to end it.
	TransactionHangs func(HangingTransaction)
	// SettingsChanged: a client changed broker settings at run time.
	SettingsChanged func(*config.Broker)
}

// Coordinator is the broker behind the front ends. Its methods are safe for
// concurrent use. See the package page for what waits for what.
type Coordinator struct {
	*groups
	*transactions
	*deadLetters
	*namedProducers

	engine    *storage.Engine
	identity  storage.Identity
	events    Events
	volume    func() (free, total int64, err error)
	catalog   *machine.Shard[catalog.Command, catalog.Fact]
	log       *machine.LogFacts // of the catalog
	snapshots atomic.Pointer[catalog.Snapshot]
	ids       producerIDs
	timer     *machine.Timer
}

// Open replays the catalog, the groups and the transactions, finishes what a
// crash interrupted and starts to keep time. The engine must be open and is the
// caller's to close, after the coordinator.
func Open(ctx context.Context, e *storage.Engine, o Options) (*Coordinator, error) {
	if o.Broker == nil {
		b, err := config.NewBroker(config.Values{Static: o.Static})
		if err != nil {
			return nil, fmt.Errorf("read settings: %w", err)
		}
		o.Broker = b
	}
	now := steadyClock()
	c := &Coordinator{engine: e, identity: e.Identity(), events: o.Events, volume: o.Volume, timer: machine.NewTimer(now)}
	c.ids.take = func(count int64) machine.Future[model.ProducerID] {
		return change(c, func(p *machine.Promise[model.ProducerID]) catalog.Command {
			return catalog.AllocateProducerIDs{Count: count, To: p}
		})
	}
	if err := c.openCatalog(ctx, o, now); err != nil {
		return nil, err
	}
	if err := c.openPartitions(); err != nil {
		return nil, err
	}
	if err := c.openGroups(ctx, o.Broker.Groups, now); err != nil {
		return nil, err
	}
	if err := c.openTransactions(ctx, o.Broker.Transactions, now); err != nil {
		return nil, err
	}
	if err := c.openNamedProducers(ctx); err != nil {
		return nil, err
	}
	c.openDeadLetters()
	c.ids.prepare()
	c.timer.Start()
	c.transactions.start()
	return c, nil
}

// Close stops keeping time. Requests that still run are answered by the engine's
// state; it is closed next. Twice is harmless.
func (c *Coordinator) Close() {
	c.timer.Close()
	c.transactions.close()
}

// steadyClock follows the wall clock of the start without its later jumps: a
// corrected clock must not end a session or a transaction.
func steadyClock() func() time.Time {
	start := time.Now()
	return func() time.Time { return start.Add(time.Since(start)) }
}

// openCatalog replays what exists.
func (c *Coordinator) openCatalog(ctx context.Context, o Options, now func() time.Time) error {
	// The machine publishes the internal topics before there is anything to replay.
	catalog.New(o.Static, o.Broker, &c.snapshots)
	p, err := c.openInternal(catalog.CatalogTopic, 0)
	if err != nil {
		return err
	}
	c.log = machine.NewLogFacts(c.engine, p)
	c.catalog = machine.NewShard(machine.Options[catalog.Command, catalog.Fact]{
		Name: catalog.CatalogTopic,
		New: func() machine.Machine[catalog.Command, catalog.Fact] {
			return catalog.New(o.Static, o.Broker, &c.snapshots)
		},
		Codec: catalog.Codec{},
		Facts: c.log,
		Now:   now,
	})
	if err := c.catalog.Load(ctx); err != nil {
		return err
	}
	begin := change(c, func(p *machine.Promise[struct{}]) catalog.Command {
		return catalog.Begin{TransactionVersion: o.Broker.Storage.FinalTransactionLevel, To: p}
	})
	if _, err := begin.Wait(ctx); err != nil {
		return fmt.Errorf("begin catalog: %w", err)
	}
	return nil
}

// openPartitions makes the handles of everything that exists and deletes what a
// crash left of what does not.
func (c *Coordinator) openPartitions() error {
	snapshot := c.Catalog()
	for _, t := range snapshot.Topics() {
		if err := c.openTopic(t, 0); err != nil {
			return err
		}
	}
	err := c.engine.Retain(func(tp model.TopicPartition) bool {
		t, ok := snapshot.TopicByID(tp.Topic)
		return ok && t.Has(tp.Partition)
	})
	if err != nil {
		return fmt.Errorf("delete data of deleted topics: %w", err)
	}
	return nil
}

func (c *Coordinator) openTopic(t *catalog.Topic, from int32) error {
	for p := from; p < t.Partitions; p++ {
		if _, err := c.engine.OpenPartition(t.Partition(p), t.Name, t.Log); err != nil {
			return fmt.Errorf("open %s-%d: %w", t.Name, p, err)
		}
	}
	return nil
}

func (c *Coordinator) openGroups(ctx context.Context, s config.Groups, now func() time.Time) error {
	c.groups = newGroups(groupsOptions{
		Engine:   c.engine,
		Offsets:  c.internal(catalog.OffsetsTopic),
		Attempts: c.internal(catalog.AttemptsTopic),
		Now:      now,
		Timer:    c.timer,
		Config: &group.Config{
			MinSession:            s.MinSessionTimeout,
			MaxSession:            s.MaxSessionTimeout,
			InitialRebalanceDelay: s.InitialRebalanceDelay,
			MaxMembers:            s.MaxSize,
			MetadataBytes:         s.MetadataMaxBytes,
			OffsetRetention:       s.OffsetsRetention,
			RetentionCheck:        s.OffsetsCheckInterval,
		},
	})
	return c.groups.open(ctx)
}

// sessionExpiration is how long MoonMQ's named producers are kept: 0 is for ever
// to MoonMQ.
func sessionExpiration(s config.Transactions) time.Duration {
	if s.MoonMQProducerID == 0 {
		return -1
	}
	return s.MoonMQProducerID
}

func (c *Coordinator) openTransactions(ctx context.Context, s config.Transactions, now func() time.Time) error {
	c.transactions = newTransactions(transactionsOptions{
		Engine:        c.engine,
		State:         c.internal(catalog.TransactionsTopic),
		Now:           now,
		Level:         func() txn.Version { return txn.Version(c.Catalog().Features().Level(catalog.TransactionVersion)) },
		NewProducerID: c.ids.get,
		Settle:        c.settle,
		CommitInTxn:   c.commitInTxn,
		Machine:       txn.Options{MaxTimeout: s.MaxTimeout, IDExpiration: s.IDExpiration, SessionExpiration: sessionExpiration(s)},
		TimeoutScan:   s.TimeoutCheck,
		ExpiryScan:    s.ExpirationCheck,
		Hangs:         c.events.TransactionHangs,
		Expired:       func() { _ = c.sweep() }, // what fails is tried again with the next look
	})
	return c.transactions.open(ctx)
}
