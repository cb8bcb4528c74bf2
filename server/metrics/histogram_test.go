package metrics

import (
	"testing"
	"time"
)

func TestHistogramCountsCumulatively(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{10 * time.Microsecond, 50 * time.Microsecond, 3 * time.Millisecond, time.Minute} {
		h.Observe(d)
	}
	count, sum, buckets := h.snapshot()
	if count != 4 || sum < 60 || sum > 60.01 {
		t.Errorf("count %d, sum %v", count, sum)
	}
	for bound, want := range map[time.Duration]uint64{50 * time.Microsecond: 2, 2 * time.Millisecond: 2, 5 * time.Millisecond: 3, 10 * time.Second: 3} {
		if got := buckets[bound.Seconds()]; got != want {
			t.Errorf("up to %v: %d, want %d", bound, got, want)
		}
	}
}

func TestKafkaIgnoresKeysThatDoNotExist(t *testing.T) {
	var k Kafka
	for _, key := range []int16{-1, maxAPI, 1<<15 - 1} {
		k.Answered(key, time.Second)
		k.Refused(key)
	}
}
