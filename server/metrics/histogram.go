package metrics

import (
	"sync/atomic"
	"time"
)

// latencyBounds are the upper ends of the buckets, in nanoseconds: 50 µs, which
// no sync can beat, to 10 s, which every client has given up before. Three to
// four a decade, so that a quantile is known to within a third.
var latencyBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

// Histogram counts durations. The zero value is ready; all methods may be
// called from any goroutine.
type Histogram struct {
	counts [len(latencyBounds) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// Observe counts d.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(latencyBounds) && d > latencyBounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// snapshot returns what Prometheus wants: the sum in seconds, the count, and the
// cumulative count below each bound.
func (h *Histogram) snapshot() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(latencyBounds))
	for i, bound := range latencyBounds {
		count += h.counts[i].Load()
		buckets[bound.Seconds()] = count
	}
	count += h.counts[len(latencyBounds)].Load()
	return count, time.Duration(h.sum.Load()).Seconds(), buckets
}
