package deadletter

import (
	"errors"
	"fmt"
	"strings"
)

// maxTopicName is the longest name a topic may have, in bytes.
const maxTopicName = 249

// ErrTopicName says that a topic's name has no room for the suffix. The record
// stays where it is and comes back.
var ErrTopicName = errors.New("topic name must be at most 249 characters")

// Policy is the broker's rule for all topics.
type Policy struct {
	MaxDeliveries int    // the NACK with this number moves the record; at least 1
	Suffix        string // of the dead-letter topic's name
}

// Dead reports whether a record is given up after this many NACKs.
func (p Policy) Dead(attempts int) bool { return attempts >= p.MaxDeliveries }

// TopicFor names the dead-letter topic of a topic. Dead-letter topics are
// ordinary topics and may have one themselves.
func (p Policy) TopicFor(topic string) (string, error) {
	name := topic + p.Suffix
	if len(name) > maxTopicName {
		return "", fmt.Errorf("invalid dead-letter topic name \"%s\": %w", name, ErrTopicName)
	}
	return name, nil
}

// SourceOf is the inverse of TopicFor: the topic that a dead-letter topic's name
// belongs to, false for another topic.
func (p Policy) SourceOf(name string) (string, bool) {
	source, found := strings.CutSuffix(name, p.Suffix)
	return source, found && source != ""
}

// PartitionFor chooses the dead-letter partition: the source's, or the number
// wrapped around where that topic has fewer.
func PartitionFor(source, partitions int32) int32 { return source % partitions }
