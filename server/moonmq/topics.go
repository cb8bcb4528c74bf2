package moonmq

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeemq/perigee/coordinator/catalog"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/config"
)

func (s *session) createTopic(r request) (answer, error) {
	m := r.body.(*wire.CreateTopic)
	if m.Partitions < 1 || m.Partitions > wire.MaxPartitions {
		return answer{}, fail(wire.BadFrame, fmt.Sprintf("num_partitions out of range (1..%d)", wire.MaxPartitions))
	}
	if !s.allowed(access.Create, access.Cluster, access.ClusterName) {
		if err := s.authorize(access.Create, access.Topic, m.Name); err != nil {
			return answer{}, err
		}
	}
	if err := s.charge(m.Name, cost{Requests, 1}); err != nil {
		return answer{}, err
	}
	if reserved(m.Name) {
		return answer{}, fail(wire.BadFrame, "topic names starting with '__' are reserved for internal use")
	}
	if limit := s.front.limits.MaxTopics; len(s.front.userTopics()) >= limit {
		return answer{}, fail(wire.RateLimited, fmt.Sprintf("topic limit reached (%d)", limit))
	}
	if err := checkTopicName(m.Name); err != nil {
		return answer{}, err
	}
	created, err := s.front.coordinator.CreateTopics([]catalog.NewTopic{{
		Name: m.Name, Partitions: int32(m.Partitions), ReplicationFactor: -1,
	}}, false).Wait(s.conn.Context())
	if err == nil {
		err = created[0].Err
	}
	switch {
	case errors.Is(err, catalog.ErrTopicExists):
		return answer{}, fail(wire.Internal, fmt.Sprintf("topic '%s' already exists", m.Name))
	case err != nil:
		return answer{}, fail(wire.Internal, err.Error())
	}
	return now(&wire.OK{}), nil
}

// userTopics are the topics this protocol shows, by name.
func (f *FrontEnd) userTopics() []*catalog.Topic {
	return slices.DeleteFunc(f.coordinator.Catalog().Topics(), func(t *catalog.Topic) bool { return t.Internal || reserved(t.Name) })
}

func (s *session) listTopics(request) (answer, error) {
	snapshot, err := s.front.coordinator.ReadCatalog().Wait(s.conn.Context())
	if err != nil {
		return answer{}, err
	}
	m := &wire.TopicList{}
	for _, t := range snapshot.Topics() {
		if len(m.Names) == wire.MaxListedTopics {
			break
		}
		if !t.Internal && !reserved(t.Name) && s.allowed(access.Describe, access.Topic, t.Name) {
			m.Names = append(m.Names, t.Name)
		}
	}
	return now(m), nil
}

// administered finds a topic that an administrator's request names, internal ones
// refused in its words.
func (s *session) administered(op access.Operation, name, forbidden string) (*catalog.Topic, error) {
	if err := s.authorize(op, access.Topic, name); err != nil {
		return nil, err
	}
	if reserved(name) {
		return nil, fail(wire.TopicForbidden, fmt.Sprintf("%s '%s'", forbidden, name))
	}
	return s.existing(name)
}

func (s *session) deleteTopic(r request) (answer, error) {
	name := r.body.(*wire.DeleteTopic).Name
	if _, err := s.administered(access.Delete, name, "cannot delete internal topic"); err != nil {
		return answer{}, err
	}
	deleted, err := s.front.coordinator.DeleteTopics([]catalog.TopicRef{{Name: name}})(s.conn.Context())
	if err == nil {
		err = deleted[0].Err
	}
	switch {
	case errors.Is(err, catalog.ErrUnknownTopic):
		return answer{}, missing(name)
	case err != nil:
		return answer{}, err
	}
	return now(&wire.OK{}), nil
}

// setting is one of the protocol's topic settings and what it is called in the
// catalog. Numbers are whole; unit is what one of them is there.
type setting struct {
	key, name string
	unit      int64 // 0: text
}

// settings by key, which is the order they are described in.
var settings = []setting{
	{"cleaner_interval", "max.compaction.lag.ms", 1000},
	{"cleanup_policy", "cleanup.policy", 0},
	{"max_log_bytes", "retention.bytes", 1},
	{"max_segment_size", "segment.bytes", 1},
	{"retention", "retention.ms", 1000},
}

// describeTopic shows the settings a topic has of its own. The broker's topics
// may be looked at.
func (s *session) describeTopic(r request) (answer, error) {
	name := r.body.(*wire.DescribeTopic).Name
	if err := s.authorize(access.Describe, access.Topic, name); err != nil {
		return answer{}, err
	}
	if err := s.charge(name, cost{Requests, 1}); err != nil {
		return answer{}, err
	}
	t, ok := s.front.coordinator.Catalog().Topic(name)
	if !ok {
		return answer{}, missing(name)
	}
	m := &wire.TopicDescription{Name: name, Partitions: uint32(t.Partitions), Config: []wire.ConfigEntry{}}
	for _, x := range settings {
		if value, ok := x.shown(t.Overrides[x.name]); ok {
			m.Config = append(m.Config, wire.ConfigEntry{Key: x.key, Value: value})
		}
	}
	return now(m), nil
}

// shown is a setting's value in the protocol's unit; false if there is none, or
// it means "no limit", which the protocol cannot say.
func (x setting) shown(value string) (string, bool) {
	if x.unit == 0 {
		return value, value != ""
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return "", false
	}
	return strconv.FormatInt(n/x.unit, 10), true
}

func (s *session) alterTopic(r request) (answer, error) {
	m := r.body.(*wire.AlterTopicConfig)
	t, err := s.administered(access.Alter, m.Name, "cannot reconfigure internal topic")
	if err != nil {
		return answer{}, err
	}
	var changes []catalog.Alteration
	for _, e := range m.Config {
		at := slices.IndexFunc(settings, func(x setting) bool { return x.key == e.Key })
		if at < 0 {
			return answer{}, fail(wire.InvalidConfig, fmt.Sprintf("unknown or immutable config key '%s'", e.Key))
		}
		value, err := settings[at].stored(e.Value)
		if err != nil {
			return answer{}, err
		}
		changes = append(changes, catalog.Alteration{Op: catalog.OpSet, Name: settings[at].name, Value: &value})
	}
	if changes == nil {
		return now(&wire.OK{}), nil
	}
	errs, err := s.front.coordinator.AlterConfigs([]catalog.ConfigChange{{
		Type: config.ResourceTopic, Name: t.Name, Changes: changes,
	}}, false).Wait(s.conn.Context())
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return answer{}, err
	}
	return now(&wire.OK{}), nil
}

// stored is a value as the catalog takes it.
func (x setting) stored(value string) (string, error) {
	if x.unit == 0 {
		return strings.TrimSpace(value), nil
	}
	n, ok := parseNumber(value)
	if !ok {
		return "", fail(wire.InvalidConfig, fmt.Sprintf("config key '%s' needs a number, got \"%s\"", x.key, value))
	}
	if n = math.Floor(n); n <= 0 {
		return "", fail(wire.InvalidConfig, fmt.Sprintf("config key '%s' must be positive, got %d", x.key, int64(max(n, math.MinInt64))))
	}
	if n >= float64(math.MaxInt64/x.unit) {
		return strconv.FormatInt(math.MaxInt64, 10), nil
	}
	return strconv.FormatInt(int64(n)*x.unit, 10), nil
}

func (s *session) createPartitions(r request) (answer, error) {
	m := r.body.(*wire.CreatePartitions)
	if err := s.authorize(access.Alter, access.Topic, m.Name); err != nil {
		return answer{}, err
	}
	if err := s.charge(m.Name, cost{Requests, 1}); err != nil {
		return answer{}, err
	}
	t, err := s.administered(access.Alter, m.Name, "cannot add partitions to internal topic")
	if err != nil {
		return answer{}, err
	}
	if m.Total <= uint32(t.Partitions) || m.Total > wire.MaxPartitions {
		return answer{}, fail(wire.InvalidPartitions, fmt.Sprintf("topic '%s' has %d partition(s); the new count must be in %d..%d, got %d",
			t.Name, t.Partitions, t.Partitions+1, wire.MaxPartitions, m.Total))
	}
	errs, err := s.front.coordinator.CreatePartitions([]catalog.Growth{{Name: t.Name, Count: int32(m.Total)}}, false).Wait(s.conn.Context())
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return answer{}, err
	}
	return now(&wire.OK{}), nil
}
