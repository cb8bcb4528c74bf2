package catalog

import (
	"crypto/sha256"
	"strings"

	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

// Names of the topics the broker keeps its own state in.
const (
	CatalogTopic       = "__perigee_catalog"
	OffsetsTopic       = "__consumer_offsets"
	TransactionsTopic  = "__transaction_state"
	ProducerStateTopic = "__producer_state"
	AttemptsTopic      = "__perigee_attempts"
)

// internalTopics and their partitions. They exist from the first start on and
// are not facts: the catalog's own log is one of them. The counts are part of
// the on-disk format, since keys are placed by them.
var internalTopics = []struct {
	name       string
	partitions int32
}{
	{CatalogTopic, 1},
	{OffsetsTopic, 50},
	{TransactionsTopic, 50},
	{ProducerStateTopic, 50},
	{AttemptsTopic, 50},
}

// internalSettings are those Kafka gives its offsets topic.
var internalSettings = map[string]string{"cleanup.policy": "compact", "segment.bytes": "104857600"}

// InternalID is the id of an internal topic: made from its name, so that its
// data is found before there is a catalog to ask. It is a UUID of version 8.
func InternalID(name string) model.TopicID {
	sum := sha256.Sum256([]byte("perigee internal topic " + name))
	id := model.TopicID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

// builtIn puts the internal topics into an empty catalog.
func (s *Snapshot) builtIn(v config.Values) {
	for _, b := range internalTopics {
		f := topicFact{ID: InternalID(b.name), Name: b.name, Partitions: b.partitions, Internal: true, Overrides: internalSettings}
		s.add(f.topic(v))
	}
}

// IsInternal reports whether a name belongs to the broker: the topics above,
// Kafka's own of other releases, and everything that starts with "__perigee_".
// Other names with two underscores are used by tools and are theirs.
func IsInternal(name string) bool {
	switch name {
	case OffsetsTopic, TransactionsTopic, ProducerStateTopic, "__cluster_metadata", "__share_group_state":
		return true
	}
	return strings.HasPrefix(name, "__perigee_")
}

// Reserved reports whether a name is never created because a client happened
// to ask for it.
func Reserved(name string) bool { return strings.HasPrefix(name, "__") }
