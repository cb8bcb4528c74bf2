package catalog

import "strings"

// Names of the topics the broker keeps its own state in.
const (
	CatalogTopic       = "__perigee_catalog"
	OffsetsTopic       = "__consumer_offsets"
	TransactionsTopic  = "__transaction_state"
	ProducerStateTopic = "__producer_state"
	AttemptsTopic      = "__perigee_attempts"
)

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
