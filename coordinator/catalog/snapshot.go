package catalog

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

// Snapshot is the catalog at one moment. It is immutable and safe for any
// number of readers; what it returns must not be changed.
type Snapshot struct {
	names      index[string, *Topic]
	ids        index[model.TopicID, *Topic]
	collisions index[string, string] // collision key → one of the names

	values        config.Values
	broker        *config.Broker
	groups        map[string]map[string]string
	clientMetrics map[string]map[string]string
	features      Features

	credentials map[credentialKey]Credential
	acls        map[ACL]struct{}
	aclRevision int64
	quotas      map[string]Quota
}

// Topic finds a topic by name.
func (s *Snapshot) Topic(name string) (*Topic, bool) { return s.names.get(name) }

// TopicByID finds a topic by id.
func (s *Snapshot) TopicByID(id model.TopicID) (*Topic, bool) { return s.ids.get(id) }

// Len is the number of topics, internal ones included.
func (s *Snapshot) Len() int { return s.names.size }

// Topics returns all topics by name. It sorts: not for the produce path.
func (s *Snapshot) Topics() []*Topic {
	topics := make([]*Topic, 0, s.names.size)
	for _, t := range s.names.all() {
		topics = append(topics, t)
	}
	slices.SortFunc(topics, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
	return topics
}

// Broker returns the broker's effective settings.
func (s *Snapshot) Broker() *config.Broker { return s.broker }

// Values returns where the broker's settings come from.
func (s *Snapshot) Values() config.Values { return s.values }

// GroupSettings returns the settings of one group; nil if it has none.
func (s *Snapshot) GroupSettings(group string) map[string]string { return s.groups[group] }

// GroupsWithSettings returns the groups that have settings, sorted.
func (s *Snapshot) GroupsWithSettings() []string { return slices.Sorted(maps.Keys(s.groups)) }

// ClientMetrics returns the settings of a client metrics subscription.
func (s *Snapshot) ClientMetrics(name string) map[string]string { return s.clientMetrics[name] }

// ClientMetricsNames returns the subscriptions, sorted.
func (s *Snapshot) ClientMetricsNames() []string { return slices.Sorted(maps.Keys(s.clientMetrics)) }

// Features returns the finalized features.
func (s *Snapshot) Features() Features { return s.features }

// Credential finds what is kept of a user's password for a mechanism.
func (s *Snapshot) Credential(user string, m Mechanism) (Credential, bool) {
	c, ok := s.credentials[credentialKey{user, m}]
	return c, ok
}

// Credentials returns all credentials by user and mechanism.
func (s *Snapshot) Credentials() []Credential {
	return slices.SortedFunc(maps.Values(s.credentials), func(a, b Credential) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Mechanism, b.Mechanism))
	})
}

// ACLs returns all bindings in a fixed order.
func (s *Snapshot) ACLs() []ACL {
	return slices.SortedFunc(maps.Keys(s.acls), func(a, b ACL) int {
		return cmp.Or(cmp.Compare(a.ResourceType, b.ResourceType), cmp.Compare(a.ResourceName, b.ResourceName),
			cmp.Compare(a.PatternType, b.PatternType), cmp.Compare(a.Principal, b.Principal),
			cmp.Compare(a.Host, b.Host), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Permission, b.Permission))
	})
}

// ACLRevision changes with every change of the bindings, so that an authorizer
// knows when what it built from them is old.
func (s *Snapshot) ACLRevision() int64 { return s.aclRevision }

// Quotas returns all quotas in a fixed order.
func (s *Snapshot) Quotas() []Quota {
	quotas := make([]Quota, 0, len(s.quotas))
	for _, id := range slices.Sorted(maps.Keys(s.quotas)) {
		quotas = append(quotas, s.quotas[id])
	}
	return quotas
}

// Quota returns the limits of exactly this entity; nil if it has none.
func (s *Snapshot) Quota(e QuotaEntity) map[string]float64 { return s.quotas[e.id()].Limits }
