package catalog

import (
	"math"
	"time"

	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// Topic is a topic as a snapshot shows it. It is immutable, maps included.
type Topic struct {
	ID         model.TopicID
	Name       string
	Partitions int32
	Internal   bool // the broker's own; clients may read it
	Created    model.Timestamp
	Overrides  map[string]string // settings of the topic itself, canonical

	Settings config.Topic            // effective
	Log      storage.PartitionConfig // what they mean to the engine
	rules    batch.Rules             // what they mean to a batch, without times
	before   int64                   // timestamp bounds, ms
	after    int64
}

// Has reports whether the topic has this partition.
func (t *Topic) Has(partition int32) bool { return partition >= 0 && partition < t.Partitions }

// Partition names one of the topic's logs.
func (t *Topic) Partition(p int32) model.TopicPartition {
	return model.TopicPartition{Topic: t.ID, Partition: p}
}

// Rules is what a batch that arrives now must satisfy.
func (t *Topic) Rules(now model.Timestamp) batch.Rules {
	r := t.rules
	if t.Settings.LogAppendTime {
		r.AppendTime = now
	} else {
		r.TimestampMin, r.TimestampMax = batch.TimestampBounds(now, t.before, t.after)
	}
	return r
}

// resolve fills in what follows from the settings.
func (t *Topic) resolve(v config.Values) {
	s := config.NewTopic(v, t.Overrides)
	t.Settings = s
	t.Log = storage.PartitionConfig{
		SegmentBytes:       s.SegmentBytes,
		SegmentAge:         s.SegmentAge,
		SegmentJitter:      s.SegmentJitter,
		SegmentIndexBytes:  int(s.SegmentIndexBytes),
		IndexIntervalBytes: max(1, int(s.IndexIntervalBytes)),
		Delete:             s.Delete,
		RetentionBytes:     limit(s.RetentionBytes),
		RetentionAge:       limit(s.RetentionAge),
		Compact:            s.Compact && !s.CleanerOff,
		DeleteRetention:    s.DeleteRetention,
		MinCompactionLag:   s.MinCompactionLag,
		MaxCompactionLag:   limit(s.MaxCompactionLag),
		MinDirtyRatio:      max(s.MinDirtyRatio, math.SmallestNonzeroFloat64),
		FileDeleteDelay:    s.FileDeleteDelay,
		FlushMessages:      s.FlushMessages,
		FlushInterval:      s.FlushInterval,
		LogAppendTime:      s.LogAppendTime,
		MaxBatchBytes:      max(1, s.MaxMessageBytes),
	}
	t.rules = batch.Rules{
		MaxBatchBytes:        max(1, s.MaxMessageBytes),
		MaxDecompressedBytes: int64(max(1, s.MaxDecompressedBytes)),
		KeyNeeded:            s.Compact,
		Recompress:           codec(s),
	}
	if t.Internal {
		t.Log.MaxBatchBytes = 0 // what a decision needs must fit
	}
	t.before, t.after = millis(s.TimestampBeforeMax), millis(s.TimestampAfterMax)
}

// limit turns Kafka's "negative is none, zero is at once" into the engine's
// "zero is none".
func limit[N ~int64](n N) N {
	switch {
	case n < 0 || n == N(config.Forever):
		return 0
	case n == 0:
		return 1
	}
	return n
}

// millis keeps "for ever" beyond any clock.
func millis(d time.Duration) int64 {
	if d == config.Forever {
		return math.MaxInt64
	}
	return d.Milliseconds()
}

// codec is the one the broker compresses with, nil when it does not.
func codec(s config.Topic) *batch.Codec {
	c, err := batch.ParseCompression(s.Compression)
	if err != nil {
		return nil // "producer"; the key's check admits nothing else
	}
	level := map[batch.Compression]int{batch.Gzip: s.GzipLevel, batch.LZ4: s.LZ4Level, batch.Zstd: s.ZstdLevel}[c]
	return &batch.Codec{Compression: c, Level: level}
}
