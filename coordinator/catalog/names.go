package catalog

import (
	"fmt"
	"strings"
)

// MaxTopicName is Kafka's limit: a directory is a file name of at most 255
// bytes, less a dash and a partition number.
const MaxTopicName = 249

// CheckTopicName refuses names that Kafka refuses, in its words.
func CheckTopicName(name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "the empty string is not allowed"
	case name == "." || name == "..":
		reason = fmt.Sprintf("'%s' is not allowed", name)
	case len(name) > MaxTopicName:
		reason = fmt.Sprintf("the length of '%s' is longer than the max allowed length %d", name, MaxTopicName)
	case strings.ContainsFunc(name, func(r rune) bool { return !topicLetter(r) }):
		reason = fmt.Sprintf("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	}
	if reason != "" {
		return &Error{ErrInvalidTopicName, "Topic name is invalid: " + reason}
	}
	return nil
}

func topicLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

// collisionKey is equal for names that would be one name in a metric, where
// dots are written as underscores.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }
