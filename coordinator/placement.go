package coordinator

import (
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// Placement says who serves something, and at which epoch. Whoever routes asks
// for it and never assumes "me": with several brokers the answers differ.
type Placement struct {
	Node  int32
	Epoch model.LeaderEpoch
}

// Here is this broker in its current life.
func (c *Coordinator) Here() Placement {
	return Placement{Node: c.Catalog().Broker().NodeID, Epoch: c.identity.Incarnation}
}

// Leader is who leads a partition.
func (c *Coordinator) Leader(model.TopicPartition) Placement { return c.Here() }

// GroupCoordinator is who coordinates a group.
func (c *Coordinator) GroupCoordinator(string) Placement { return c.Here() }

// TransactionCoordinator is who coordinates a transactional id.
func (c *Coordinator) TransactionCoordinator(string) Placement { return c.Here() }

// LeaderEpoch is the epoch of everything this broker leads: one per start.
func (c *Coordinator) LeaderEpoch() model.LeaderEpoch { return c.identity.Incarnation }

// ClusterID never changes.
func (c *Coordinator) ClusterID() string { return c.identity.ClusterID }

// Partition returns the handle of a partition of a topic, or
// catalog.ErrUnknownTopic when it has no such partition or was just deleted.
func (c *Coordinator) Partition(t *catalog.Topic, partition int32) (*storage.Partition, error) {
	if p, ok := c.engine.Partition(t.Partition(partition)); ok {
		return p, nil
	}
	return nil, &catalog.Error{Kind: catalog.ErrUnknownTopic, Text: "This server does not host this topic-partition."}
}

// Volume says how many bytes may still be written where the data is, and how
// large that volume is; -1 for what is not known.
func (c *Coordinator) Volume() (free, total int64) {
	if c.volume == nil {
		return -1, -1
	}
	free, total, err := c.volume()
	if err != nil {
		return -1, -1
	}
	return free, total
}
