package config

import (
	"fmt"
	"slices"
	"time"
)

// Topic is a topic's effective settings, parsed. Times and sizes mean what the
// keys of the same name say; no limit is [Forever] for times and -1 for
// retention.
type Topic struct {
	Compact, Delete      bool
	CleanerOff           bool   // log.cleaner.enable is false: nothing is compacted
	Compression          string // a codec's name, "uncompressed" or "producer"
	GzipLevel            int
	LZ4Level             int
	ZstdLevel            int
	DeleteRetention      time.Duration
	FileDeleteDelay      time.Duration
	FlushMessages        int64
	FlushInterval        time.Duration
	IndexIntervalBytes   int64
	MaxCompactionLag     time.Duration
	MinCompactionLag     time.Duration
	MinDirtyRatio        float64
	MaxDecompressedBytes int
	MaxMessageBytes      int
	TimestampAfterMax    time.Duration
	TimestampBeforeMax   time.Duration
	LogAppendTime        bool
	RetentionBytes       int64         // negative: no limit
	RetentionAge         time.Duration // negative: no limit
	SegmentBytes         int64
	SegmentIndexBytes    int64
	SegmentAge           time.Duration
	SegmentJitter        time.Duration
}

// NewTopic parses a topic's effective settings. overrides must have passed
// [Table.Check] of [TopicTable].
func NewTopic(v Values, overrides map[string]string) Topic {
	r := v.topic(overrides)
	policy := r.list("cleanup.policy")
	t := Topic{
		Compact:              slices.Contains(policy, "compact"),
		CleanerOff:           !v.broker().flag("log.cleaner.enable"),
		Delete:               slices.Contains(policy, "delete"),
		Compression:          r.text("compression.type"),
		GzipLevel:            r.int("compression.gzip.level"),
		LZ4Level:             r.int("compression.lz4.level"),
		ZstdLevel:            r.int("compression.zstd.level"),
		DeleteRetention:      r.time("delete.retention.ms"),
		FileDeleteDelay:      r.time("file.delete.delay.ms"),
		FlushMessages:        r.int64("flush.messages"),
		FlushInterval:        r.time("flush.ms"),
		IndexIntervalBytes:   r.int64("index.interval.bytes"),
		MaxCompactionLag:     r.time("max.compaction.lag.ms"),
		MinCompactionLag:     r.time("min.compaction.lag.ms"),
		MinDirtyRatio:        r.float("min.cleanable.dirty.ratio"),
		MaxDecompressedBytes: r.int("max.decompressed.message.bytes"),
		MaxMessageBytes:      r.int("max.message.bytes"),
		TimestampAfterMax:    r.time("message.timestamp.after.max.ms"),
		TimestampBeforeMax:   r.time("message.timestamp.before.max.ms"),
		LogAppendTime:        r.text("message.timestamp.type") == "LogAppendTime",
		RetentionBytes:       r.int64("retention.bytes"),
		RetentionAge:         r.time("retention.ms"),
		SegmentBytes:         r.int64("segment.bytes"),
		SegmentIndexBytes:    r.int64("segment.index.bytes"),
		SegmentAge:           r.time("segment.ms"),
		SegmentJitter:        r.time("segment.jitter.ms"),
	}
	if n := r.optional("internal.segment.bytes"); n > 0 {
		t.SegmentBytes = n
	}
	return t
}

// CheckTopic is [Table.Check] for a topic's values, together with the
// conditions between settings, which see the effective values.
func CheckTopic(v Values, overrides map[string]string) (map[string]string, error) {
	checked, err := TopicTable.Check(overrides)
	if err != nil {
		return nil, err
	}
	t := NewTopic(v, checked)
	if t.MinCompactionLag > t.MaxCompactionLag {
		return nil, &ConflictError{fmt.Sprintf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)",
			t.MinCompactionLag.Milliseconds(), t.MaxCompactionLag.Milliseconds())}
	}
	return checked, nil
}

// ConflictError is settings that contradict each other.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// groupRanges are group settings that brokers bound.
var groupRanges = []struct{ name, low, high string }{
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
}

// CheckGroup is [Table.Check] for a group's values, within the broker's bounds.
func CheckGroup(v Values, values map[string]string) (map[string]string, error) {
	checked, err := GroupTable.Check(values)
	if err != nil {
		return nil, err
	}
	r := v.broker()
	for _, bound := range groupRanges {
		text, ok := checked[bound.name]
		if low, high := r.int64(bound.low), r.int64(bound.high); ok && (mustInt(text) < low || mustInt(text) > high) {
			return nil, &ConflictError{fmt.Sprintf("%s must be in the range %d to %d inclusive.", bound.name, low, high)}
		}
	}
	return checked, nil
}
