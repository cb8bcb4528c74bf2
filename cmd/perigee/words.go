package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// parsePairs reads key=value arguments of a flag.
func parsePairs(flag string, pairs []string) (map[string]*string, error) {
	all := make(map[string]*string, len(pairs))
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("%s %s: want key=value", flag, pair)
		}
		all[key] = &value
	}
	return all, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// inOrder returns the answers in the order the names were given, each once.
func inOrder[R any](names []string, answers map[string]R) []R {
	var all []R
	seen := map[string]bool{}
	for _, name := range names {
		if answer, ok := answers[name]; ok && !seen[name] {
			seen[name] = true
			all = append(all, answer)
		}
	}
	return all
}

func isCode(err error, code *kerr.Error) bool { return errors.Is(err, code) }

// wrap adds what was being done to an error, if there is one.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// topicID prints a topic's id as Kafka's own tools do.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// parseTime reads a point in time: RFC 3339, a date, Unix seconds or milliseconds,
// or a distance from now such as -90m or -7d.
func parseTime(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	if s == "now" {
		return now, nil
	}
	if isRelativeTime(s) {
		if d, err := parseDuration(s); err == nil {
			return now.Add(d), nil
		}
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		if len(s) <= 10 {
			return time.Unix(n, 0), nil
		}
		return time.UnixMilli(n), nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time: want RFC 3339, a date, Unix seconds or milliseconds, or -1h", s)
}

// isRelativeTime reports whether a time is counted from now.
func isRelativeTime(s string) bool {
	return strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") || s == "now"
}

// parseDuration is Go's, with d for days and w for weeks as whole numbers before it.
func parseDuration(s string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			if n, err := strconv.ParseInt(digits, 10, 32); err == nil {
				return time.Duration(n) * unit, nil
			}
		}
	}
	return time.ParseDuration(s)
}

// topicPartition names a partition as users do.
type topicPartition struct {
	topic     string
	partition int32
}

func (tp topicPartition) String() string { return fmt.Sprintf("%s/%d", tp.topic, tp.partition) }
