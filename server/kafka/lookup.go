package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// topic finds a topic by id where the request's version has ids (then name is
// ""), else by name. It answers from the catalog's current snapshot and never
// waits.
func (s *session) topic(id model.TopicID, name string) (*catalog.Topic, int16) {
	snapshot := s.coordinator.Catalog()
	if name == "" && !id.IsZero() {
		if t, ok := snapshot.TopicByID(id); ok {
			return t, 0
		}
		return nil, kerr.UnknownTopicID.Code
	}
	if t, ok := snapshot.Topic(name); ok {
		return t, 0
	}
	return nil, kerr.UnknownTopicOrPartition.Code
}

// leading finds a partition we lead and checks the leader epoch the client
// believes in (KIP-320): an older one has been fenced by a restart, a newer one
// nobody has announced.
func (s *session) leading(id model.TopicID, name string, partition int32, believed model.LeaderEpoch) (*storage.Partition, int16) {
	t, code := s.topic(id, name)
	if code != 0 {
		return nil, code
	}
	p, err := s.coordinator.Partition(t, partition)
	if err != nil {
		return nil, codeOf(err)
	}
	return p, epochCode(believed, s.coordinator.LeaderEpoch())
}

func epochCode(believed, current model.LeaderEpoch) int16 {
	switch {
	case believed < 0 || believed == current:
		return 0
	case believed < current:
		return kerr.FencedLeaderEpoch.Code
	}
	return kerr.UnknownLeaderEpoch.Code
}
