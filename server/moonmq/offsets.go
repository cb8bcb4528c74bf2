package moonmq

import (
	"fmt"

	"github.com/perigeemq/perigee/coordinator/catalog"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// listOffsets shows the bounds of every partition, and with a timestamp where to
// begin reading from it. What is not durable yet is not shown.
func (s *session) listOffsets(r request) (answer, error) {
	m := r.body.(*wire.ListOffsets)
	if err := s.authorize(access.Describe, access.Topic, m.Topic); err != nil {
		return answer{}, err
	}
	if err := s.charge(m.Topic, cost{Requests, 1}); err != nil {
		return answer{}, err
	}
	t, ok := s.front.coordinator.Catalog().Topic(m.Topic)
	if !ok {
		return answer{}, missing(m.Topic)
	}
	reply := &wire.Offsets{Bounds: []wire.PartitionOffsets{}, WithTimes: m.Mode == wire.OffsetsForTime}
	for n := range min(t.Partitions, wire.MaxPartitions) {
		p, err := s.front.coordinator.Partition(t, n)
		if err != nil {
			return answer{}, missing(m.Topic)
		}
		b := p.Bounds()
		reply.Bounds = append(reply.Bounds, wire.PartitionOffsets{
			Partition: wirePartition(n), Earliest: uint64(b.Start), Latest: uint64(b.High), HighWatermark: uint64(b.High), LSO: uint64(b.Stable),
			Flags: wire.OffsetsHighKnown | wire.OffsetsLSOKnown | wire.OffsetsServed,
		})
		if reply.WithTimes {
			at, err := offsetForTime(t, p, n, m.Timestamp, b)
			if err != nil {
				return answer{}, err
			}
			reply.ForTimes = append(reply.ForTimes, at)
		}
	}
	return now(reply), nil
}

func offsetForTime(t *catalog.Topic, p *storage.Partition, n int32, timestamp uint64, b model.Bounds) (wire.TimeOffset, error) {
	found, ok, err := p.OffsetForTimestamp(model.Timestamp(clampOffset(timestamp)), model.ReadUncommitted)
	if err != nil {
		return wire.TimeOffset{}, fail(wire.Internal, fmt.Sprintf("failed to read message: %s/partition-%d: %v", t.Name, wirePartition(n), err))
	}
	if !ok {
		return wire.TimeOffset{Partition: wirePartition(n), Offset: uint64(b.High)}, nil
	}
	return wire.TimeOffset{Partition: wirePartition(n), Offset: uint64(found.Offset), Found: true}, nil
}
