package server

import (
	"cmp"
	"strconv"
	"time"

	"github.com/perigeemq/perigee/server/metrics"
)

// snapshot is what one scrape of /metrics sees. Before the broker is ready it
// has only what exists by then.
func (b *Broker) snapshot() metrics.Snapshot {
	s := metrics.Snapshot{
		Build:         b.options.Build,
		NodeID:        strconv.Itoa(int(b.config.NodeID)),
		Node:          b.config.NodeID,
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
	for _, l := range b.listeners {
		m := metrics.Listener{Name: l.Name, Open: b.sockets.ConnectionsOf(l)}
		if i := b.identities[l.Name]; i != nil {
			m.Expires = i.expires()
		}
		s.Listeners = append(s.Listeners, m)
	}
	first := b.listeners[0]
	s.Address = cmp.Or(first.Advertised, first.Addr().String())
	b.addPartitions(&s)
	s.Groups = b.lags()
	c := &b.counts
	s.Disk.Full = c.full.Load()
	s.Disk.Free, s.Disk.Total, _ = b.volume() // unknown is shown as 0
	e := b.engine.Stats()
	s.Journal = metrics.Journal{
		Syncs: e.Journal.Syncs, Groups: e.Journal.Groups, Entries: e.Journal.Entries, Bytes: e.Journal.Bytes,
		Queued: e.Journal.Queued, Files: e.Journal.Files,
	}
	s.Storage = metrics.Storage{
		Checkpoints: c.checkpoints.Load(), Compactions: c.compactions.Load(),
		SegmentsRolled: c.rolled.Load(), SegmentsDropped: c.dropped.Load(), ProducersExpired: c.expired.Load(),
		CheckpointAge: b.checkpointAge(), SegmentFiles: e.OpenFiles, Obsolete: e.Obsolete,
	}
	return s
}

func (b *Broker) checkpointAge() time.Duration {
	if at := b.counts.checkpoint.Load(); at != 0 {
		return time.Since(time.Unix(0, at))
	}
	return time.Since(b.started)
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
