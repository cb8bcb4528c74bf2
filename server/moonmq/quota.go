package moonmq

import (
	"fmt"
	"sync"
	"time"
)

// Dimension is what a quota counts. The text is the one of error messages and
// metric labels.
type Dimension string

const (
	Requests       Dimension = "requests_per_sec"
	ProduceRecords Dimension = "produce_records_per_sec"
	ProduceBytes   Dimension = "produce_bytes_per_sec"
	FetchRecords   Dimension = "fetch_records_per_sec"
	FetchBytes     Dimension = "fetch_bytes_per_sec"
)

// Limits are the rates of one user or one topic; a dimension that is absent is
// not limited.
type Limits map[Dimension]float64

// QuotaOptions are everybody's limits. The zero value limits nobody.
type QuotaOptions struct {
	Users, Topics map[string]Limits
	Default       Limits  // of users without limits of their own
	BurstSeconds  float64 // how many seconds of a rate a bucket holds; 2
}

// bucket is a token bucket. It may be in debt.
type bucket struct {
	rate     float64
	capacity float64
	tokens   float64
	at       time.Time
}

func (b *bucket) refill(now time.Time) {
	b.tokens = min(b.tokens+b.rate*now.Sub(b.at).Seconds(), b.capacity)
	b.at = now
}

// charge is what a cost takes: never more than the bucket can hold, or a large
// request could not be made at all.
func (b *bucket) charge(cost float64) float64 { return min(cost, b.capacity) }

// spend takes a cost whether or not it is there; the debt is one bucket at most.
func (b *bucket) spend(cost float64) { b.tokens = max(b.tokens-b.charge(cost), -b.capacity) }

// wait returns how long until the bucket holds cost, 0 when it does.
func (b *bucket) wait(cost float64) time.Duration {
	missing := b.charge(cost) - b.tokens
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / b.rate * float64(time.Second))
}

// quotas are the buckets of everybody. Safe for concurrent use.
type quotas struct {
	mu     sync.Mutex
	users  limited
	topics limited
}

// limited are the limits and buckets of one scope.
type limited struct {
	scope    string // "user", "topic"
	limits   map[string]Limits
	standard Limits // of a name without limits of its own
	burst    float64
	buckets  map[bucketKey]*bucket
}

type bucketKey struct {
	name string
	dim  Dimension
}

func newQuotas(o QuotaOptions) *quotas {
	if o.BurstSeconds == 0 {
		o.BurstSeconds = 2
	}
	return &quotas{
		users:  limited{"user", o.Users, o.Default, o.BurstSeconds, map[bucketKey]*bucket{}},
		topics: limited{"topic", o.Topics, nil, o.BurstSeconds, map[bucketKey]*bucket{}},
	}
}

// bucket returns nil for a name without a limit.
func (l *limited) bucket(name string, dim Dimension, now time.Time) *bucket {
	limits, own := l.limits[name]
	if !own {
		limits = l.standard
	}
	rate := limits[dim]
	if name == "" || rate <= 0 {
		return nil
	}
	key := bucketKey{name, dim}
	b := l.buckets[key]
	if b == nil {
		b = &bucket{rate: rate, capacity: rate * l.burst, tokens: rate * l.burst, at: now}
		l.buckets[key] = b
	}
	b.refill(now)
	return b
}

// quotaError refuses a request; the client may come again after Retry.
type quotaError struct {
	Scope string
	Dim   Dimension
	Retry time.Duration
}

func (e *quotaError) Error() string {
	return fmt.Sprintf("%s quota exceeded on %s; retry in %.2fs", e.Scope, e.Dim, e.Retry.Seconds())
}

// cost is an amount in one dimension.
type cost struct {
	dim    Dimension
	amount float64
}

// take charges the user and the topic, or nobody: both must have room in every
// dimension. An empty name is not limited.
func (q *quotas) take(user, topic string, now time.Time, costs ...cost) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	type taking struct {
		b      *bucket
		amount float64
	}
	var all []taking
	for _, c := range costs {
		for _, scope := range []struct {
			l    *limited
			name string
		}{{&q.users, user}, {&q.topics, topic}} {
			b := scope.l.bucket(scope.name, c.dim, now)
			if b == nil {
				continue
			}
			if wait := b.wait(c.amount); wait > 0 {
				return &quotaError{scope.l.scope, c.dim, wait}
			}
			all = append(all, taking{b, b.charge(c.amount)})
		}
	}
	for _, t := range all {
		t.b.tokens -= t.amount
	}
	return nil
}

// spend charges what was delivered already; the buckets may go into debt.
func (q *quotas) spend(user, topic string, now time.Time, costs ...cost) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range costs {
		if b := q.users.bucket(user, c.dim, now); b != nil {
			b.spend(c.amount)
		}
		if b := q.topics.bucket(topic, c.dim, now); b != nil {
			b.spend(c.amount)
		}
	}
}

// debt returns how long until a user or topic is out of debt in the dimensions,
// as a refusal; nil when it is.
func (q *quotas) debt(user, topic string, now time.Time, dims ...Dimension) *quotaError {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, dim := range dims {
		if b := q.users.bucket(user, dim, now); b != nil && b.tokens < 0 {
			return &quotaError{"user", dim, b.wait(0)}
		}
		if b := q.topics.bucket(topic, dim, now); b != nil && b.tokens < 0 {
			return &quotaError{"topic", dim, b.wait(0)}
		}
	}
	return nil
}
