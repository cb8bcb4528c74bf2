package main

import (
	"context"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// batchLimits knows how large a batch each topic takes. The library's own limit is the
// same for all topics: below what some take, and above what others do.
type batchLimits struct {
	session *session
	mu      struct { // the client asks on a goroutine of its own
		sync.Mutex
		client *kgo.Client // with connections of its own; nil until the first question
		topics map[string]int32
	}
}

const (
	// batchBytesDefault is for a topic the broker tells nothing about.
	batchBytesDefault = 1000012
	// The library takes no limits but these.
	batchBytesMin, batchBytesMax = 512, 1 << 30
)

func newBatchLimits(s *session) *batchLimits {
	l := &batchLimits{session: s}
	l.mu.topics = map[string]int32{}
	return l
}

// option makes a producer keep to the limits.
func (l *batchLimits) option(ctx context.Context) kgo.Opt {
	return kgo.ProducerBatchMaxBytesFn(func(topic string) int32 { return l.of(ctx, topic) })
}

// of returns a topic's max.message.bytes.
func (l *batchLimits) of(ctx context.Context, topic string) int32 {
	if topic == "" { // the library tries the function out
		return batchBytesDefault
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, known := l.mu.topics[topic]
	if !known {
		limit = l.askLocked(ctx, topic)
		l.mu.topics[topic] = limit
	}
	return limit
}

func (l *batchLimits) askLocked(ctx context.Context, topic string) int32 {
	ctx, cancel := context.WithTimeout(ctx, dialTimeoutDefault)
	defer cancel()
	if l.mu.client == nil {
		client, err := l.session.open(ctx)
		if err != nil {
			return batchBytesDefault // what is wrong with the broker, the producer will say
		}
		l.mu.client = client
	}
	described, err := kadm.NewClient(l.mu.client).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return batchBytesDefault
	}
	for _, resource := range described {
		for _, c := range resource.Configs {
			if n, err := strconv.ParseInt(c.MaybeValue(), 10, 32); c.Key == "max.message.bytes" && err == nil {
				return min(max(int32(n), batchBytesMin), batchBytesMax)
			}
		}
	}
	return batchBytesDefault
}

func (l *batchLimits) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.client != nil {
		l.mu.client.Close()
	}
}
