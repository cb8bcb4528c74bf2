package coordinator

import (
	"fmt"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// internal returns a function that opens partitions of an internal topic.
func (c *Coordinator) internal(topic string) func(partition int32) (*storage.Partition, error) {
	return func(partition int32) (*storage.Partition, error) { return c.openInternal(topic, partition) }
}

// openInternal returns the handle of a partition of an internal topic, which
// exists from the first start on.
func (c *Coordinator) openInternal(topic string, partition int32) (*storage.Partition, error) {
	t, ok := c.Catalog().Topic(topic)
	if !ok || !t.Has(partition) {
		return nil, fmt.Errorf("open %s-%d: no such internal partition", topic, partition)
	}
	p, err := c.engine.OpenPartition(t.Partition(partition), t.Name, t.Log)
	if err != nil {
		return nil, fmt.Errorf("open %s-%d: %w", topic, partition, err)
	}
	return p, nil
}

// Listed reports whether a topic appears when a client asks for all topics. An
// internal one does when something was written to it, as in Kafka, where it is
// created then; asked for by name it is always found.
func (c *Coordinator) Listed(t *catalog.Topic) bool {
	if !t.Internal {
		return true
	}
	for i := range t.Partitions {
		if p, ok := c.engine.Partition(model.TopicPartition{Topic: t.ID, Partition: i}); ok && p.Bounds().End > 0 {
			return true
		}
	}
	return false
}
