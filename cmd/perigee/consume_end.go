package main

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ends knows how far consume -e has come. A partition is done when its position
// has reached what was its end at the start. The position follows the records
// seen; where none can be seen, because they were aborted or compacted away, it
// asks the broker for what comes next.
type ends struct {
	committed bool
	mu        struct { // the client calls assigned and revoked on its own goroutine
		sync.Mutex
		ends      map[topicPartition]int64
		positions map[topicPartition]int64
		mine      map[topicPartition]bool // with a group: what is assigned to us
		joined    bool                    // with a group: there has been an assignment
	}
	// fallback is where a group without committed offsets begins; nil without a group.
	fallback map[topicPartition]int64
}

func newEnds(committed bool, at map[topicPartition]int64) *ends {
	e := &ends{committed: committed}
	e.mu.ends, e.mu.positions, e.mu.mine = at, map[topicPartition]int64{}, map[topicPartition]bool{}
	return e
}

func (e *ends) reach(tp topicPartition, offset int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.positions[tp] = offset
}

// beyond reports whether a record was written after the end was fixed.
func (e *ends) beyond(tp topicPartition, offset int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	end, known := e.mu.ends[tp]
	return known && offset >= end
}

// all reports whether nothing is left to read.
func (e *ends) all() bool {
	return (e.fallback == nil || e.hasJoined()) && len(e.open()) == 0
}

func (e *ends) hasJoined() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.joined
}

// open returns the positions of partitions that are ours and not at their end.
func (e *ends) open() map[topicPartition]int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := map[topicPartition]int64{}
	for tp, end := range e.mu.ends {
		if e.fallback != nil && !e.mu.mine[tp] {
			continue
		}
		if at := e.mu.positions[tp]; at < end {
			left[tp] = at
		}
	}
	return left
}

// positionUnknown is an assigned partition whose offset is still being fetched.
const positionUnknown = -1

func (e *ends) assigned(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.joined = true
	for topic, partitions := range assigned {
		for _, p := range partitions {
			tp := topicPartition{topic, p}
			e.mu.mine[tp], e.mu.positions[tp] = true, positionUnknown
		}
	}
}

// fetched learns where the group's partitions begin; it leaves that as it is.
func (e *ends) fetched(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for topic, partitions := range offsets {
		for p, offset := range partitions {
			tp := topicPartition{topic, p}
			at := offset.EpochOffset().Offset
			if at < 0 { // none committed: a rule and not a number
				at = e.fallback[tp]
			}
			e.mu.positions[tp] = at
		}
	}
	return offsets, nil
}

func (e *ends) revoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for topic, partitions := range revoked {
		for _, p := range partitions {
			delete(e.mu.mine, topicPartition{topic, p})
		}
	}
}

// lookPast moves positions over what no consumer gets to see. It reads from the
// position as the consumer would and takes over where that ends, unless there is
// a record to be delivered.
func (e *ends) lookPast(ctx context.Context, client *kgo.Client) error {
	left := e.open()
	maps.DeleteFunc(left, func(_ topicPartition, at int64) bool { return at == positionUnknown })
	if len(left) == 0 {
		return nil
	}
	names := map[string]bool{}
	for tp := range left {
		names[tp.topic] = true
	}
	details, err := kadm.NewClient(client).ListTopicsWithInternal(ctx, sortedKeys(names)...)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	for tp, at := range left {
		next, err := e.fetchOne(ctx, client, details[tp.topic], tp, at)
		if err != nil {
			return fmt.Errorf("%s: %w", tp, err)
		}
		if next > at {
			e.reach(tp, next)
		}
	}
	return nil
}

// fetchOne returns the offset behind what a fetch at the position skips; the position
// itself when it would deliver a record.
func (e *ends) fetchOne(ctx context.Context, client *kgo.Client, d kadm.TopicDetail, tp topicPartition, at int64) (int64, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = tp.partition, at, 1<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = tp.topic, d.ID, []kmsg.FetchRequestTopicPartition{p}
	request := kmsg.NewPtrFetchRequest()
	request.MinBytes, request.MaxBytes, request.SessionEpoch, request.Topics = 0, 1<<20, -1, []kmsg.FetchRequestTopic{topic}
	isolation := kgo.ReadUncommitted()
	if e.committed {
		request.IsolationLevel = 1
		isolation = kgo.ReadCommitted()
	}
	answer, err := client.Broker(int(d.Partitions[tp.partition].Leader)).Request(ctx, request)
	if err != nil {
		return at, fmt.Errorf("fetch: %w", err)
	}
	response := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return at, fmt.Errorf("fetch: %w", err)
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return at, nil
	}
	fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true, Offset: at, IsolationLevel: isolation, Topic: tp.topic, Partition: tp.partition,
	}, &response.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil || len(fetched.Records) > 0 {
		return at, nil // the consumer sees either
	}
	return next, nil
}
