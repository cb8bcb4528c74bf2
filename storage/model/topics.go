package model

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// TopicID identifies a topic for ever. A topic deleted and created again under
// the same name has another id (KIP-516). Data is keyed by id, never by name.
type TopicID [16]byte

// NewTopicID returns a random version 4 UUID.
func NewTopicID() TopicID {
	var id TopicID
	rand.Read(id[:]) // never fails, see crypto/rand
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IsZero reports whether the id is absent, which is how the wire spells "no id".
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String prints the id as Kafka does: 22 characters of URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID reads what String prints.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %q is not 16 bytes of URL-safe base64", s)
	}
	copy(id[:], b)
	return id, nil
}

// TopicPartition names one log.
type TopicPartition struct {
	Topic     TopicID
	Partition int32 // from 0
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition) }
