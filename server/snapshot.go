package server

import (
	"strconv"

	"github.com/perigeemq/perigee/server/metrics"
)

// snapshot is what one scrape of /metrics sees. Before the broker is ready it
// has only what exists by then.
func (b *Broker) snapshot() metrics.Snapshot {
	s := metrics.Snapshot{
		Build:         b.options.Build,
		NodeID:        strconv.Itoa(int(b.config.NodeID)),
		RequestMemory: b.memory.Used(),
		Sockets:       map[string]metrics.Sockets{},
	}
	if b.Ready() != nil {
		return s
	}
	id := b.engine.Identity()
	s.ClusterID, s.CleanStart, s.Started = id.ClusterID, id.CleanStart, b.started
	s.FetchSessions = b.kafka.FetchSessions()
	n := b.sockets.Stats()
	s.Sockets[b.kafka.Name()] = metrics.Sockets{
		Open: b.sockets.Connections(), Accepted: n.Accepted.Load(), Refused: n.Refused.Load(), Closed: n.Closed.Load(),
		BytesIn: n.BytesIn.Load(), BytesOut: n.BytesOut.Load(),
	}
	b.addPartitions(&s)
	c := &b.counts
	s.Disk.Full = c.full.Load()
	s.Disk.Free, s.Disk.Total, _ = b.volume() // unknown is shown as 0
	s.Storage = metrics.Storage{
		Checkpoints: c.checkpoints.Load(), Compactions: c.compactions.Load(),
		SegmentsRolled: c.rolled.Load(), SegmentsDropped: c.dropped.Load(), ProducersExpired: c.expired.Load(),
	}
	return s
}

func (b *Broker) addPartitions(s *metrics.Snapshot) {
	topics := b.coordinator.Catalog().Topics()
	s.Topics = len(topics)
	for _, t := range topics {
		for n := range t.Partitions {
			p, err := b.coordinator.Partition(t, n)
			if err != nil {
				continue // deleted meanwhile
			}
			m := metrics.Partition{Topic: t.Name, Partition: strconv.Itoa(int(n)), Offline: p.Err() != nil}
			if !m.Offline {
				bounds := p.Bounds()
				m.Start, m.Stable, m.High = int64(bounds.Start), int64(bounds.Stable), int64(bounds.High)
				m.Bytes = p.Stats().Bytes
			}
			s.Partitions = append(s.Partitions, m)
		}
	}
}
