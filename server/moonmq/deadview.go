package moonmq

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/coordinator/group"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// visibleValue is the value a client is shown: in a dead-letter topic, the
// envelope that the original broker would have stored.
func (f *FrontEnd) visibleValue(topic string, r batch.Record) []byte {
	value := r.Value
	if _, dead := f.policy().SourceOf(topic); !dead || r.Headers.Len() == 0 {
		return value
	}
	// A record that died twice was an envelope when it died again.
	for _, death := range deadletter.Deaths(slices.Collect(r.Headers.All())) {
		value = wire.AppendEnvelope(nil, &wire.Envelope{
			Topic: death.Topic, Partition: wirePartition(max(death.Partition, 0)), Offset: uint64(max(death.Offset, 0)),
			Timestamp: uint64(max(death.Timestamp, 0)), Group: death.Group,
			Attempts: uint16(min(death.Deliveries, 65535)), Reason: death.Reason, Value: value,
		})
	}
	return value
}

func (f *FrontEnd) policy() deadletter.Policy {
	return deadletter.Policy{MaxDeliveries: f.deadLetters.MaxDeliveries, Suffix: f.deadLetters.Suffix}
}

// oversizeLog remembers which partitions a line was logged for.
type oversizeLog struct {
	mu   sync.Mutex
	said map[model.TopicPartition]bool
}

func (l *oversizeLog) first(tp model.TopicPartition) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said[tp] {
		return false
	}
	if l.said == nil {
		l.said = map[model.TopicPartition]bool{}
	}
	l.said[tp] = true
	return true
}

// passOversize deals with a record the client could not read: sent, it would
// make the client's whole call fail. It is dead-lettered as a pointer, or skipped
// if the broker is configured so. It reports whether to go on behind the record.
//
// Dead-lettering moves the group past the record, so it has to be the first of
// its partition's delivery: what is before it is delivered, and committed, first.
func (r *partitionReader) passOversize(ctx context.Context, offset model.Offset, key, value int) bool {
	f := r.front
	tp := r.at.topic.Partition(r.at.partition)
	if f.oversize.first(tp) {
		f.log.Warn().Str("topic", r.at.name).Int32("partition", r.at.partition).Int64("offset", int64(offset)).
			Int("key_bytes", key).Int("value_bytes", value).Bool("skip", f.deadLetters.SkipOversize).
			Msg("record is longer than MoonMQ clients can read; further ones of this partition are counted only")
	}
	if f.deadLetters.SkipOversize {
		f.metrics.oversized(r.at.name)
		return true
	}
	if r.count > 0 {
		return false
	}
	if err := r.deadLetterOversize(ctx, offset, key, value); err != nil {
		f.log.Warn().Str("topic", r.at.name).Int32("partition", r.at.partition).Int64("offset", int64(offset)).Err(err).
			Msg("oversize record not dead-lettered; the group waits at it")
		return false
	}
	f.metrics.oversized(r.at.name)
	f.metrics.dead(r.at.name)
	return true
}

func (r *partitionReader) deadLetterOversize(ctx context.Context, offset model.Offset, key, value int) error {
	if err := r.settlePosition(ctx); err != nil {
		return err
	}
	wait := r.front.coordinator.NackRecord(coordinator.Nack{
		Group: r.consumer.group, Caller: unchecked, Topic: r.at.topic, Partition: r.at.partition, Offset: offset,
		Isolation: r.consumer.isolation, Once: true, Pointer: true,
		Reason: fmt.Sprintf("record of %d + %d bytes is longer than a MoonMQ client can read (%d)", key, value, wire.MaxString),
	})
	_, err := wait(ctx)
	return err
}

// unchecked is the caller of commands whose membership this package has checked.
var unchecked = group.Caller{Generation: -1, Unchecked: true}

// settlePosition gives a group without a committed offset the one it reads from,
// so that giving up a record does not take the group past others it has not
// committed.
func (r *partitionReader) settlePosition(ctx context.Context) error {
	of := group.PartitionOf{Topic: r.at.name, TopicID: r.at.topic.ID, Partition: r.at.partition}
	got, err := r.front.coordinator.FetchOffsets(group.FetchOffsets{Group: r.consumer.group, Partitions: []group.PartitionOf{of}}).Wait(ctx)
	if err != nil || len(got) > 0 && got[0].Offset != model.NoOffset {
		return err
	}
	return r.front.commit(ctx, r.consumer.group, []group.Commit{commitOf(r.at, 0)})
}

// commitOf is a position as the group's machine takes it.
func commitOf(at partitionAt, offset model.Offset) group.Commit {
	return group.Commit{
		Topic: at.name, TopicID: at.topic.ID, Partition: at.partition, Offset: offset, LeaderEpoch: model.NoLeaderEpoch,
	}
}
