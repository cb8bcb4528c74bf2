package moonmq

import (
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/deadletter"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/storage/model"
)

// giving are the words of COMMIT or NACK.
type giving struct{ unbound, lapsed string }

// give makes the checks that COMMIT and NACK share, in their order.
func (s *session) give(topic string, partition uint32, words giving) (partitionAt, error) {
	var at partitionAt
	if s.consumer == nil {
		return at, fail(wire.BadProtocol, words.unbound)
	}
	if err := s.mayRead(topic, s.consumer.group); err != nil {
		return at, err
	}
	t, err := s.existing(topic)
	if err != nil {
		return at, err
	}
	if partition == 0 || partition > uint32(t.Partitions) {
		return at, fail(wire.BadFrame, fmt.Sprintf("partition %d out of range (1..%d)", partition, t.Partitions))
	}
	lapsed, err := s.evicted(s.conn.Context())
	if err != nil {
		return at, err
	}
	if lapsed {
		return at, fail(wire.GroupMemberUnknown, words.lapsed)
	}
	return partitionAt{&tracked{id: t.ID, name: t.Name}, t, int32(partition) - 1}, nil
}

// nack serves NACK. The decision and the connection's own position change under
// one lock, so that a delivery that is on its way cannot commit past the record.
func (s *session) nack(r request) (answer, error) {
	m := r.body.(*wire.Nack)
	at, err := s.give(m.Topic, m.Partition, giving{
		unbound: "nack requires prior subscribe/fetch", lapsed: "group membership lapsed; rejoin before nacking",
	})
	if err != nil {
		return answer{}, err
	}
	c := s.consumer
	if s.producer.inTransaction && s.producer.offsets[groupPartition{c.group, at.name, at.partition}] {
		return answer{}, fail(wire.InvalidTxnState, "the open transaction commits this partition's offset; end it before nacking")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	offset := clampOffset(m.Offset)
	result, err := s.front.coordinator.NackRecord(coordinator.Nack{
		Group: c.group, Caller: unchecked, Topic: at.topic, Partition: at.partition, Offset: offset,
		Reason: m.Reason, Isolation: c.isolation,
	})(s.conn.Context())
	if err != nil {
		return answer{}, nackFailed(err, m)
	}
	s.moveLocked(at, offset, result.Dead)
	s.front.metrics.nacked(at.name)
	if result.Dead {
		s.front.metrics.dead(at.name)
	}
	attempts := uint16(min(result.Attempts, 65535))
	return now(&wire.NackAck{DeadLettered: result.Dead, Attempts: attempts, Topic: result.Topic}), nil
}

// moveLocked takes the connection back to a record that is delivered again, or
// past one that is dead.
func (s *session) moveLocked(at partitionAt, offset model.Offset, dead bool) {
	position := s.consumer.findLocked(at.topic.ID, at.partition)
	if position == nil {
		return
	}
	if dead {
		*position = max(*position, offset+1)
	} else {
		*position = min(*position, offset)
	}
	s.consumer.wake()
}

// nackFailed words the refusals of a record.
func nackFailed(err error, m *wire.Nack) error {
	var bad *coordinator.RecordError
	switch {
	case errors.Is(err, coordinator.ErrControlRecord):
		return fail(wire.Internal, "cannot nack a control record")
	case errors.Is(err, catalog.ErrUnknownTopic):
		return missing(m.Topic)
	case errors.As(err, &bad):
		cause := bad.Err.Error()
		if errors.Is(err, coordinator.ErrNoRecord) {
			cause = fmt.Sprintf("offset %d out of range", m.Offset)
		}
		return fail(wire.Internal, fmt.Sprintf("cannot nack %s/partition-%d offset %d: %s", m.Topic, m.Partition, m.Offset, cause))
	case errors.Is(err, deadletter.ErrTopicName):
		return fail(wire.Internal, err.Error())
	}
	return err
}
