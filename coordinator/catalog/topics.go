package catalog

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/model"
)

// MaxPartitions bounds the partitions of one topic and of one request, as
// Kafka's controller does: a mistyped count must not fill the disk with
// directories.
const MaxPartitions = 10_000

// NewTopic is what a client asks for.
type NewTopic struct {
	ID                model.TopicID // made by the caller; the machine draws no lots
	Name              string
	Partitions        int32             // -1: the broker's default
	ReplicationFactor int16             // -1: the broker's default
	Assignments       map[int32][]int32 // replicas by partition; nil: none given
	Settings          map[string]string
}

// CreateTopics makes topics. One bad topic does not stop the others.
type CreateTopics struct {
	Topics       []NewTopic
	ValidateOnly bool
	Auto         bool  // nobody asked for them in so many words; for the operator's log
	NodeID       int32 // the one broker a manual assignment may name
	To           *machine.Promise[[]CreatedTopic]
}

// CreatedTopic is what became of a [NewTopic].
type CreatedTopic struct {
	Topic *Topic // nil when Err is set
	Err   error
}

// Effects are what the façade does beside journaling the facts.
type (
	// OpenPartitions: make the handles of partitions From and above, before
	// anybody can see the topic.
	OpenPartitions struct {
		Topic *Topic
		From  int32
	}
	// TopicCreated is for the operator's log.
	TopicCreated struct {
		Topic   *Topic
		Auto    bool
		Clamped int16    // so many replicas were asked for; 0: as many as there are
		Dropped []string // settings of Kafka 3 that were accepted and forgotten
	}
	// DropTopic: delete the topic's partitions, when nobody can find it any more.
	DropTopic struct{ Topic *Topic }
	// Reconfigure: hand the engine the settings of the topic with this id; a zero
	// id is every topic.
	Reconfigure struct{ Topic model.TopicID }
)

func (c CreateTopics) decide(m *Machine, now time.Time) machine.Decision[Fact] {
	var d machine.Decision[Fact]
	results := make([]CreatedTopic, len(c.Topics))
	times := map[string]int{}
	for _, t := range c.Topics {
		times[t.Name]++
	}
	collisions := map[string]string{} // of the topics accepted so far
	total := int32(0)
	for i, t := range c.Topics {
		if times[t.Name] > 1 {
			results[i].Err = &Error{ErrInvalidRequest, "Duplicate topic name."}
			continue
		}
		n, err := m.newTopic(t, c.NodeID, now)
		if err == nil {
			err = m.checkCollision(t.Name, collisions)
		}
		if err == nil && total+n.Partitions > MaxPartitions {
			err = &Error{ErrPolicy, "Excessively large number of partitions per request."}
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		total += n.Partitions
		collisions[collisionKey(t.Name)] = t.Name
		topic := n.topic(m.snapshot.values)
		results[i].Topic = topic
		if !c.ValidateOnly {
			d.Facts = append(d.Facts, n.topicFact)
			d.Effects = append(d.Effects, OpenPartitions{Topic: topic},
				TopicCreated{Topic: topic, Auto: c.Auto, Clamped: n.clamped, Dropped: n.dropped})
		}
	}
	d.Replies = []machine.Reply{machine.Answer(c.To, results)}
	return d
}

// checkedTopic is a new topic that may be created, and what is worth a word.
type checkedTopic struct {
	topicFact
	clamped int16
	dropped []string
}

// newTopic checks a topic on its own.
func (m *Machine) newTopic(t NewTopic, node int32, now time.Time) (n checkedTopic, err error) {
	n.topicFact = topicFact{ID: t.ID, Name: t.Name, Created: model.Timestamp(now.UnixMilli())}
	if err = CheckTopicName(t.Name); err != nil {
		return n, err
	}
	if _, exists := m.snapshot.Topic(t.Name); exists {
		return n, &Error{ErrTopicExists, fmt.Sprintf("Topic '%s' already exists.", t.Name)}
	}
	if IsInternal(t.Name) {
		return n, &Error{ErrInternalTopic, fmt.Sprintf("Creation of internal topic %s is prohibited.", t.Name)}
	}
	if n.clamped, err = m.checkReplication(t); err != nil {
		return n, err
	}
	if n.Partitions, err = m.countPartitions(t, node); err != nil {
		return n, err
	}
	n.Overrides, n.dropped, err = m.topicSettings(t.Settings)
	return n, err
}

// countPartitions settles how many partitions a new topic has.
func (m *Machine) countPartitions(t NewTopic, node int32) (int32, error) {
	if t.Assignments != nil {
		switch {
		case t.ReplicationFactor != -1:
			return 0, &Error{ErrInvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1."}
		case t.Partitions != -1:
			return 0, &Error{ErrInvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1."}
		}
		for p := range int32(len(t.Assignments)) {
			replicas, ok := t.Assignments[p]
			if !ok {
				return 0, &Error{ErrInvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence"}
			}
			if err := checkReplicas(replicas, node); err != nil {
				return 0, err
			}
		}
		t.Partitions = int32(len(t.Assignments))
	}
	if t.Partitions == -1 {
		return m.snapshot.broker.Topics.Partitions, nil
	}
	if t.Partitions <= 0 {
		return 0, &Error{ErrInvalidPartitions, "Number of partitions was set to an invalid non-positive value."}
	}
	if t.Partitions > MaxPartitions {
		return 0, &Error{ErrInvalidPartitions, fmt.Sprintf("A topic can have at most %d partitions.", MaxPartitions)}
	}
	return t.Partitions, nil
}

// checkReplicas accepts exactly this broker.
func checkReplicas(replicas []int32, node int32) error {
	if len(replicas) == 0 {
		return &Error{ErrInvalidReplicaAssignment, "The manual partition assignment includes an empty replica list."}
	}
	for i, r := range replicas {
		if r != node {
			return &Error{ErrInvalidReplicaAssignment, fmt.Sprintf("The manual partition assignment includes broker %d, but no such broker is registered.", r)}
		}
		if i > 0 {
			return &Error{ErrInvalidReplicaAssignment, fmt.Sprintf("The manual partition assignment includes the broker %d more than once.", r)}
		}
	}
	return nil
}

// checkReplication accepts more replicas than there are brokers unless strict:
// copied set-ups ask for 3, and one broker keeps one copy whatever they ask.
func (m *Machine) checkReplication(t NewTopic) (clamped int16, err error) {
	factor := t.ReplicationFactor
	if t.Assignments != nil {
		return 0, nil
	}
	if factor == -1 {
		factor = m.snapshot.broker.Topics.ReplicationFactor
	}
	switch {
	case factor <= 0:
		return 0, &Error{ErrInvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value."}
	case factor > 1 && m.snapshot.broker.Strict:
		return 0, &Error{ErrInvalidReplicationFactor, fmt.Sprintf("Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only 1 broker(s) are registered.", factor, factor)}
	}
	if factor > 1 {
		clamped = factor
	}
	return clamped, nil
}

// topicSettings checks the settings of a new topic.
func (m *Machine) topicSettings(asked map[string]string) (settings map[string]string, dropped []string, err error) {
	settings = maps.Clone(asked)
	if !m.snapshot.broker.Strict {
		for _, name := range slices.Sorted(maps.Keys(asked)) {
			if config.Gone(name) {
				dropped = append(dropped, name)
				delete(settings, name)
			}
		}
	}
	if settings, err = config.CheckTopic(m.snapshot.values, settings); err != nil {
		return nil, nil, &Error{ErrInvalidConfig, err.Error()}
	}
	return settings, dropped, nil
}

// checkCollision refuses a name that differs from another only in dots and
// underscores.
func (m *Machine) checkCollision(name string, alsoNew map[string]string) error {
	key := collisionKey(name)
	other, ok := m.snapshot.collisions.get(key)
	if !ok {
		other, ok = alsoNew[key]
	}
	if ok {
		return &Error{ErrInvalidTopicName, fmt.Sprintf("Topic '%s' collides with existing topic: %s", name, other)}
	}
	return nil
}

// TopicRef names a topic by id, or by name when the id is zero.
type TopicRef struct {
	Name string
	ID   model.TopicID
}

func (m *Machine) find(ref TopicRef) (*Topic, error) {
	if ref.ID.IsZero() {
		if t, ok := m.snapshot.Topic(ref.Name); ok {
			return t, nil
		}
		return nil, &Error{ErrUnknownTopic, "This server does not host this topic-partition."}
	}
	if t, ok := m.snapshot.TopicByID(ref.ID); ok {
		return t, nil
	}
	return nil, &Error{ErrUnknownTopicID, "This server does not host this topic ID."}
}

// DeleteTopics removes topics and everything in them.
type DeleteTopics struct {
	Topics []TopicRef
	To     *machine.Promise[[]DeletedTopic]
}

// DeletedTopic is what became of a [TopicRef].
type DeletedTopic struct {
	Topic *Topic // set if the reference was understood, also when it is refused
	Err   error
}

func (c DeleteTopics) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	var d machine.Decision[Fact]
	results := make([]DeletedTopic, len(c.Topics))
	times := map[model.TopicID]int{}
	for i, ref := range c.Topics {
		r := &results[i]
		if !m.snapshot.broker.Topics.DeleteEnabled {
			r.Err = &Error{ErrDeletionDisabled, "Topic deletion is disabled."}
			continue
		}
		if r.Topic, r.Err = m.find(ref); r.Err == nil {
			times[r.Topic.ID]++
		}
	}
	for i := range results {
		r := &results[i]
		switch {
		case r.Err != nil:
		case times[r.Topic.ID] > 1:
			r.Err = &Error{ErrInvalidRequest, "Duplicate topic name."}
		case r.Topic.Internal:
			r.Err = &Error{ErrInternalTopic, fmt.Sprintf("Deletion of internal topic %s is prohibited.", r.Topic.Name)}
		default:
			d.Facts = append(d.Facts, topicFact{ID: r.Topic.ID})
			d.Effects = append(d.Effects, DropTopic{r.Topic})
		}
	}
	d.Replies = []machine.Reply{machine.Answer(c.To, results)}
	return d
}

// Growth asks for more partitions of a topic.
type Growth struct {
	Name        string
	Count       int32     // the new total
	Assignments [][]int32 // replicas of each new partition; nil: none given
}

// CreatePartitions grows topics. One bad topic does not stop the others.
type CreatePartitions struct {
	Topics       []Growth
	ValidateOnly bool
	NodeID       int32
	To           *machine.Promise[[]error]
}

func (c CreatePartitions) decide(m *Machine, _ time.Time) machine.Decision[Fact] {
	var d machine.Decision[Fact]
	results := make([]error, len(c.Topics))
	times := map[string]int{}
	for _, g := range c.Topics {
		times[g.Name]++
	}
	total := int32(0)
	for i, g := range c.Topics {
		if times[g.Name] > 1 {
			results[i] = &Error{ErrInvalidRequest, "Duplicate topic name."}
			continue
		}
		t, err := m.checkGrowth(g, c.NodeID)
		if err == nil && total+g.Count-t.Partitions > MaxPartitions {
			err = &Error{ErrPolicy, "Excessively large number of additional partitions per request."}
		}
		if results[i] = err; err != nil {
			continue
		}
		if total += g.Count - t.Partitions; c.ValidateOnly {
			continue
		}
		f := t.fact()
		f.Partitions = g.Count
		d.Facts = append(d.Facts, f)
		d.Effects = append(d.Effects, OpenPartitions{Topic: f.topic(m.snapshot.values), From: t.Partitions})
	}
	d.Replies = []machine.Reply{machine.Answer(c.To, results)}
	return d
}

func (m *Machine) checkGrowth(g Growth, node int32) (*Topic, error) {
	t, ok := m.snapshot.Topic(g.Name)
	switch {
	case !ok:
		return nil, ErrUnknownTopic
	case t.Internal:
		return nil, &Error{ErrInternalTopic, fmt.Sprintf("Changing internal topic %s is prohibited.", t.Name)}
	case g.Count == t.Partitions:
		return nil, &Error{ErrInvalidPartitions, fmt.Sprintf("Topic already has %d partition(s).", t.Partitions)}
	case g.Count < t.Partitions:
		return nil, &Error{ErrInvalidPartitions, fmt.Sprintf("The topic %s currently has %d partition(s); %d would not be an increase.", t.Name, t.Partitions, g.Count)}
	case g.Count > MaxPartitions:
		return nil, &Error{ErrInvalidPartitions, fmt.Sprintf("A topic can have at most %d partitions.", MaxPartitions)}
	case g.Assignments != nil && int32(len(g.Assignments)) != g.Count-t.Partitions:
		return nil, &Error{ErrInvalidReplicaAssignment, fmt.Sprintf("Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", g.Count-t.Partitions, len(g.Assignments))}
	}
	for _, replicas := range g.Assignments {
		if err := checkReplicas(replicas, node); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// topic is the fact as readers see it.
func (f topicFact) topic(v config.Values) *Topic {
	t := &Topic{ID: f.ID, Name: f.Name, Partitions: f.Partitions, Internal: f.Internal, Created: f.Created, Overrides: config.TopicTable.Usable(f.Overrides)}
	t.resolve(v)
	return t
}

// fact is the topic as it is journaled.
func (t *Topic) fact() topicFact {
	return topicFact{ID: t.ID, Name: t.Name, Partitions: t.Partitions, Internal: t.Internal, Created: t.Created, Overrides: t.Overrides}
}

func (f topicFact) apply(m *Machine) {
	old, had := m.snapshot.TopicByID(f.ID)
	m.edit(func(s *Snapshot) {
		if f.Partitions == 0 {
			if had {
				s.ids, s.names = s.ids.without(f.ID), s.names.without(old.Name)
				s.collisions = s.collisions.without(collisionKey(old.Name))
			}
			return
		}
		s.add(f.topic(s.values))
	})
}

// add puts a topic into a snapshot that nobody else sees yet.
func (s *Snapshot) add(t *Topic) {
	s.ids, s.names = s.ids.with(t.ID, t), s.names.with(t.Name, t)
	s.collisions = s.collisions.with(collisionKey(t.Name), t.Name)
}
