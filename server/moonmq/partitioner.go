package moonmq

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// partitionOf chooses the partition of a keyed record, from 0: 32-bit FNV-1a of
// the key, modulo the partitions. Kafka's clients hash with murmur2, so the two
// families put one key into different partitions.
func partitionOf(key []byte, partitions int32) int32 {
	h := uint32(2166136261)
	for _, b := range key {
		h = (h ^ uint32(b)) * 16777619
	}
	return int32(h % uint32(partitions))
}

// A sticky choice lasts this many records, or this long.
const (
	stickyRecords = 16
	stickyTime    = 10 * time.Millisecond
)

// stickyTopics bounds the table; beyond it a topic starts afresh, which nobody
// can observe but as another random choice.
const stickyTopics = 4096

// sticky chooses partitions for records without a key. A topic stays with one
// partition for a while, for all connections, so that records of many producers
// share batches and syncs. Safe for concurrent use.
type sticky struct {
	mu     sync.Mutex
	topics map[model.TopicID]*stickyChoice
}

type stickyChoice struct {
	partition int32
	left      int
	until     time.Time
}

func (s *sticky) choose(topic model.TopicID, partitions int32, now time.Time) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.topics[topic]
	if c == nil {
		if s.topics == nil || len(s.topics) >= stickyTopics {
			s.topics = map[model.TopicID]*stickyChoice{}
		}
		c = &stickyChoice{partition: -1}
		s.topics[topic] = c
	}
	if c.left == 0 || !now.Before(c.until) || c.partition >= partitions {
		next := rand.Int32N(partitions)
		if next == c.partition { // a repeated pick moves on by one
			next = (next + 1) % partitions
		}
		*c = stickyChoice{partition: next, left: stickyRecords, until: now.Add(stickyTime)}
	}
	c.left--
	return c.partition
}
