package coordinator

import (
	"context"
	"errors"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

// Catalog returns what exists now, sequenced but perhaps not yet durable. For
// data paths, whose own entries stand behind it in the journal.
func (c *Coordinator) Catalog() *catalog.Snapshot { return c.snapshots.Load() }

// ReadCatalog returns what exists now once all of it is durable. For answers
// about the catalog itself.
func (c *Coordinator) ReadCatalog() machine.Future[*catalog.Snapshot] {
	return change(c, func(p *machine.Promise[*catalog.Snapshot]) catalog.Command { return catalog.Read{To: p} })
}

// change runs a command of the catalog with its effects: handles are opened
// before anybody can see a topic, and settings and deletions reach the engine
// before the next command is decided.
func change[T any](c *Coordinator, build func(*machine.Promise[T]) catalog.Command) machine.Future[T] {
	p := machine.NewPromise[T]()
	effects, err := c.decide(build(p))
	if err != nil {
		var zero T
		return machine.Ready(zero, err)
	}
	c.announce(effects)
	return p.Future()
}

func (c *Coordinator) decide(command catalog.Command) (effects []machine.Effect, err error) {
	h, err := c.catalog.Hold()
	if err != nil {
		return nil, err
	}
	defer h.Release()
	err = h.RunWith(command, func(b machine.Batch) (machine.Sequenced, error) {
		effects = b.Effects
		return c.sequence(b)
	})
	if err != nil {
		return nil, err
	}
	return effects, c.follow(effects)
}

// announce tells the operator what happened.
func (c *Coordinator) announce(effects []machine.Effect) {
	for _, effect := range effects {
		switch effect := effect.(type) {
		case catalog.TopicCreated:
			if c.events.TopicCreated != nil {
				c.events.TopicCreated(effect)
			}
		case catalog.DropTopic:
			if c.events.TopicDeleted != nil {
				c.events.TopicDeleted(effect.Topic)
			}
		case catalog.Reconfigure:
			if effect.Topic.IsZero() && c.events.SettingsChanged != nil {
				c.events.SettingsChanged(c.Catalog().Broker())
			}
		}
	}
}

// sequence opens the handles of new partitions and appends the facts. If the
// log refuses, the handles go again.
func (c *Coordinator) sequence(b machine.Batch) (machine.Sequenced, error) {
	var opened []model.TopicPartition
	undo := func(err error) (machine.Sequenced, error) {
		return machine.Sequenced{}, errors.Join(err, c.engine.Delete(opened...))
	}
	for _, effect := range b.Effects {
		if _, drop := effect.(catalog.DropTopic); drop {
			b.Frees = true
		}
		open, ok := effect.(catalog.OpenPartitions)
		if !ok {
			continue
		}
		if err := c.openTopic(open.Topic, open.From); err != nil {
			return undo(err)
		}
		for p := open.From; p < open.Topic.Partitions; p++ {
			opened = append(opened, open.Topic.Partition(p))
		}
	}
	at, err := c.log.Append(b)
	if err != nil {
		return undo(err)
	}
	return at, nil
}

// follow does what comes after the facts were applied.
func (c *Coordinator) follow(effects []machine.Effect) error {
	var errs []error
	for _, effect := range effects {
		switch effect := effect.(type) {
		case catalog.DropTopic:
			errs = append(errs, c.engine.Delete(partitions(effect.Topic)...))
		case catalog.Reconfigure:
			c.reconfigure(effect.Topic)
		}
	}
	return errors.Join(errs...)
}

func partitions(t *catalog.Topic) []model.TopicPartition {
	tps := make([]model.TopicPartition, t.Partitions)
	for p := range t.Partitions {
		tps[p] = t.Partition(p)
	}
	return tps
}

// reconfigure hands the engine the settings of one topic, or of all for a zero id.
func (c *Coordinator) reconfigure(id model.TopicID) {
	snapshot := c.Catalog()
	topics := snapshot.Topics
	if t, ok := snapshot.TopicByID(id); ok {
		topics = func() []*catalog.Topic { return []*catalog.Topic{t} }
	}
	for _, t := range topics() {
		for _, tp := range partitions(t) {
			if p, ok := c.engine.Partition(tp); ok {
				p.SetConfig(t.Log)
			}
		}
	}
}

// Reload takes over what the broker is started with, read anew; see
// catalog.Reload.
func (c *Coordinator) Reload(static *config.Static) machine.Future[struct{}] {
	return change(c, func(p *machine.Promise[struct{}]) catalog.Command { return catalog.Reload{Static: static, To: p} })
}

// CreateTopics makes topics; their ids are chosen here. The answer has one entry
// per topic, and topics without an error can be found before it is released.
func (c *Coordinator) CreateTopics(topics []catalog.NewTopic, validateOnly bool) machine.Future[[]catalog.CreatedTopic] {
	return c.createTopics(topics, validateOnly, false)
}

func (c *Coordinator) createTopics(topics []catalog.NewTopic, validateOnly, auto bool) machine.Future[[]catalog.CreatedTopic] {
	return change(c, func(p *machine.Promise[[]catalog.CreatedTopic]) catalog.Command {
		return c.creation(topics, validateOnly, auto, p)
	})
}

// creation is the command that makes topics, with ids chosen here.
func (c *Coordinator) creation(topics []catalog.NewTopic, validateOnly, auto bool, to *machine.Promise[[]catalog.CreatedTopic]) catalog.Command {
	for i := range topics {
		topics[i].ID = model.NewTopicID()
	}
	return catalog.CreateTopics{Topics: topics, ValidateOnly: validateOnly, Auto: auto, NodeID: c.Here().Node, To: to}
}

// AutoCreate makes topics because a client asked about them: with the broker's
// defaults, and only where auto.create.topics.enable and the name allow it. It
// answers for each name, in order: with the topic, or why there is none. A topic
// that somebody made in the meantime is a success.
func (c *Coordinator) AutoCreate(names []string) func(context.Context) ([]catalog.CreatedTopic, error) {
	results := make([]catalog.CreatedTopic, len(names))
	var topics []catalog.NewTopic
	var places []int
	for i, name := range names {
		if results[i].Err = c.mayAutoCreate(name); results[i].Err == nil {
			topics = append(topics, catalog.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1})
			places = append(places, i)
		}
	}
	if topics == nil {
		return func(context.Context) ([]catalog.CreatedTopic, error) { return results, nil }
	}
	made := c.createTopics(topics, false, true)
	return func(ctx context.Context) ([]catalog.CreatedTopic, error) {
		created, err := made.Wait(ctx)
		if err != nil {
			return nil, err
		}
		for i, r := range created {
			if errors.Is(r.Err, catalog.ErrTopicExists) {
				if t, ok := c.Catalog().Topic(topics[i].Name); ok {
					r = catalog.CreatedTopic{Topic: t}
				}
			}
			results[places[i]] = r
		}
		return results, nil
	}
}

func (c *Coordinator) mayAutoCreate(name string) error {
	if err := catalog.CheckTopicName(name); err != nil {
		return err
	}
	if catalog.Reserved(name) || !c.Catalog().Broker().Topics.AutoCreate {
		return &catalog.Error{Kind: catalog.ErrUnknownTopic, Text: "This server does not host this topic-partition."}
	}
	return nil
}

// DeleteTopics removes topics, their data and the offsets that groups committed
// for them. The answer has one entry per reference.
func (c *Coordinator) DeleteTopics(refs []catalog.TopicRef) func(context.Context) ([]catalog.DeletedTopic, error) {
	p := machine.NewPromise[[]catalog.DeletedTopic]()
	effects, err := c.decide(catalog.DeleteTopics{Topics: refs, To: p})
	if err != nil {
		return func(context.Context) ([]catalog.DeletedTopic, error) { return nil, err }
	}
	c.announce(effects)
	for _, effect := range effects {
		if drop, ok := effect.(catalog.DropTopic); ok {
			// Not under the catalog's lock, which comes after the groups'. Offsets that
			// stay because the log refuses carry the old topic's id and are not shown.
			_ = c.dropTopic(drop.Topic.Name, drop.Topic.ID)
		}
	}
	forgotten := c.engine.Barrier()
	return func(ctx context.Context) ([]catalog.DeletedTopic, error) {
		if err := forgotten.Wait(ctx); err != nil {
			return nil, err
		}
		return p.Future().Wait(ctx)
	}
}

// CreatePartitions grows topics. The answer has an error for each of them.
func (c *Coordinator) CreatePartitions(topics []catalog.Growth, validateOnly bool) machine.Future[[]error] {
	return change(c, func(p *machine.Promise[[]error]) catalog.Command {
		return catalog.CreatePartitions{Topics: topics, ValidateOnly: validateOnly, NodeID: c.Here().Node, To: p}
	})
}

// AlterConfigs changes settings of topics, brokers, groups and client metrics
// subscriptions. The answer has an error for each resource.
func (c *Coordinator) AlterConfigs(changes []catalog.ConfigChange, validateOnly bool) machine.Future[[]error] {
	return change(c, func(p *machine.Promise[[]error]) catalog.Command {
		return catalog.AlterConfigs{Resources: changes, ValidateOnly: validateOnly, NodeID: c.Here().Node, To: p}
	})
}

// UpdateFeatures changes finalized feature levels, all or none. The answer has
// an error for each update.
func (c *Coordinator) UpdateFeatures(updates []catalog.FeatureUpdate, validateOnly bool) machine.Future[[]error] {
	return change(c, func(p *machine.Promise[[]error]) catalog.Command {
		return catalog.UpdateFeatures{Updates: updates, ValidateOnly: validateOnly, NodeID: c.Here().Node, To: p}
	})
}
