package moonmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/storage/model"
)

// consumer is what a connection reads. The first FETCH or SUBSCRIBE binds it to
// a group and an isolation for good, and to one of the two modes if it succeeds.
//
// Positions are the connection's own: the group's committed offset counts when a
// partition is first tracked, and again when the member is given it.
type consumer struct {
	group     string
	isolation model.Isolation

	// mu guards what the delivery goroutine of a push connection shares with its
	// session. It is held while records are read, never while they are sent.
	mu      sync.Mutex
	mode    mode
	topics  []*tracked                            // in the order they were named
	saved   map[model.TopicPartition]model.Offset // positions at BEGIN; nil outside a transaction
	changed chan struct{}                         // capacity 1: a topic was added, the pusher looks again
	pusher  *pusher                               // nil unless subscribed
}

type mode int8

const (
	modeNone mode = iota
	modePull
	modePush
)

// tracked is a topic the connection named.
type tracked struct {
	id        model.TopicID
	name      string
	positions []model.Offset // next to read, by partition
	owned     []bool         // whether the last poll read the partition
}

// partitionAt is one partition of a tracked topic.
type partitionAt struct {
	*tracked
	topic     *catalog.Topic
	partition int32
}

// bind makes or checks the consumer, in the order the original does.
func (s *session) bind(ctx context.Context, groupID string, isolation wire.Isolation, want mode) error {
	iso := model.ReadUncommitted
	if isolation.Committed() {
		iso = model.ReadCommitted
	}
	if s.consumer == nil {
		if err := s.front.checkProtocol(ctx, groupID); err != nil {
			return err
		}
		s.consumer = &consumer{group: groupID, isolation: iso, changed: make(chan struct{}, 1)}
		if s.producer.inTransaction {
			s.savePositions()
		}
	}
	c := s.consumer
	switch {
	case c.group != groupID:
		return fail(wire.BadProtocol, fmt.Sprintf("group_id mismatch (already in group %s)", c.group))
	case c.isolation != iso:
		return fail(wire.BadProtocol, fmt.Sprintf("isolation mismatch (connection is %s)", isolationName(c.isolation)))
	case c.mode == modePush && want == modePull:
		return fail(wire.BadProtocol, "connection already in push mode (used SUBSCRIBE)")
	case c.mode == modePull && want == modePush:
		return fail(wire.BadProtocol, "connection already in pull mode (used FETCH)")
	}
	return nil
}

// checkProtocol keeps this protocol's consumers out of a group whose members
// speak another: they would move each other's offsets.
func (f *FrontEnd) checkProtocol(ctx context.Context, groupID string) error {
	d, err := f.coordinator.DescribeGroup(groupID).Wait(ctx)
	switch {
	case errors.Is(err, group.ErrGroupNotFound):
		return nil
	case err != nil:
		return err
	case len(d.Members) > 0 && d.ProtocolType != group.MoonProtocol:
		return group.ErrInconsistentProtocol
	}
	return nil
}

func isolationName(i model.Isolation) string {
	if i == model.ReadCommitted {
		return "read_committed"
	}
	return "read_uncommitted"
}

// readable finds a topic somebody wants to read.
func (s *session) readable(name string) (*catalog.Topic, error) {
	if err := checkTopicName(name); err != nil {
		return nil, fail(wire.TopicMissing, err.Error())
	}
	return s.existing(name)
}

// existing finds a topic; the broker's own are hidden.
func (s *session) existing(name string) (*catalog.Topic, error) {
	t, ok := s.front.coordinator.Catalog().Topic(name)
	if !ok || reserved(name) {
		return nil, missing(name)
	}
	return t, nil
}

// track adds a topic; one that was deleted and made again starts afresh.
func (s *session) track(ctx context.Context, t *catalog.Topic) error {
	c := s.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics = slices.DeleteFunc(c.topics, func(old *tracked) bool { return old.name == t.Name && old.id != t.ID })
	at := slices.IndexFunc(c.topics, func(old *tracked) bool { return old.id == t.ID })
	if at < 0 {
		c.topics = append(c.topics, &tracked{id: t.ID, name: t.Name})
		at = len(c.topics) - 1
	}
	return s.loadLocked(ctx, c.topics[at], t)
}

// loadLocked gives new partitions of a tracked topic their positions.
func (s *session) loadLocked(ctx context.Context, tr *tracked, t *catalog.Topic) error {
	from := int32(len(tr.positions))
	if from >= t.Partitions {
		return nil
	}
	var all []int32
	for p := from; p < t.Partitions; p++ {
		all = append(all, p)
	}
	offsets, err := s.committed(ctx, t, all)
	if err != nil {
		return err
	}
	tr.positions = append(tr.positions, offsets...)
	tr.owned = append(tr.owned, make([]bool, len(offsets))...)
	for p := range offsets {
		tr.owned[int(from)+p] = true // just loaded: nothing is gained by the first poll
	}
	return nil
}

// committed reads the group's offsets; a missing one is 0.
func (s *session) committed(ctx context.Context, t *catalog.Topic, partitions []int32) ([]model.Offset, error) {
	asked := make([]group.PartitionOf, len(partitions))
	for i, p := range partitions {
		asked[i] = group.PartitionOf{Topic: t.Name, TopicID: t.ID, Partition: p}
	}
	got, err := s.front.coordinator.FetchOffsets(group.FetchOffsets{Group: s.consumer.group, Partitions: asked}).Wait(ctx)
	if err != nil {
		return nil, err
	}
	offsets := make([]model.Offset, len(got))
	for i, o := range got {
		offsets[i] = max(o.Offset, 0)
	}
	return offsets, nil
}

// pollLocked lists the partitions this connection may read now: all of its
// topics', or those assigned to it if it is a member of a group, or none if it
// was evicted. Topics that are gone are forgotten. Partitions that are new to it
// continue where their group is.
func (s *session) pollLocked(ctx context.Context) ([]partitionAt, error) {
	c := s.consumer
	snapshot := s.front.coordinator.Catalog()
	c.topics = slices.DeleteFunc(c.topics, func(tr *tracked) bool {
		_, exists := snapshot.TopicByID(tr.id)
		return !exists
	})
	assigned, err := s.assignment(ctx)
	if err != nil {
		return nil, err
	}
	var all []partitionAt
	for _, tr := range c.topics {
		t, _ := snapshot.TopicByID(tr.id)
		if err := s.loadLocked(ctx, tr, t); err != nil {
			return nil, err
		}
		var gained []int32
		for p := range t.Partitions {
			owned := assigned.has(tr.name, p)
			if owned && !tr.owned[p] {
				gained = append(gained, p)
			}
			tr.owned[p] = owned
			if owned {
				all = append(all, partitionAt{tr, t, p})
			}
		}
		if gained != nil {
			offsets, err := s.committed(ctx, t, gained)
			if err != nil {
				return nil, err
			}
			for i, p := range gained {
				tr.positions[p] = offsets[i]
			}
		}
	}
	return all, nil
}

// The positions of a connection in a transaction: what it reads is not committed
// by delivery, and an abort gives it all back.

func (s *session) savePositions() {
	c := s.consumer
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = map[model.TopicPartition]model.Offset{}
	for _, tr := range c.topics {
		for p, at := range tr.positions {
			if !tr.owned[p] {
				continue // stale: the next poll loads the committed offset, and an abort goes back to that
			}
			c.saved[model.TopicPartition{Topic: tr.id, Partition: int32(p)}] = at
		}
	}
}

func (s *session) keepPositions() {
	if c := s.consumer; c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.saved = nil
	}
}

// restorePositions goes back to where BEGIN was. A topic named since then goes
// back to what its group had committed.
func (s *session) restorePositions() {
	c := s.consumer
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, tr := range c.topics {
		for p := range tr.positions {
			at, known := c.saved[model.TopicPartition{Topic: tr.id, Partition: int32(p)}]
			if known {
				tr.positions[p] = min(tr.positions[p], at)
				continue
			}
			tr.owned[p] = false // the next poll loads the committed offset
		}
	}
	c.saved = nil
	c.wake()
}

// wake makes the delivery goroutine look again.
func (c *consumer) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// findLocked returns a tracked topic's position of a partition, nil for another.
func (c *consumer) findLocked(id model.TopicID, partition int32) *model.Offset {
	for _, tr := range c.topics {
		if tr.id == id && int(partition) < len(tr.positions) {
			return &tr.positions[partition]
		}
	}
	return nil
}
