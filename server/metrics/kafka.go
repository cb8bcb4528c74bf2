package metrics

import (
	"sync/atomic"
	"time"
)

// maxAPI bounds the API keys that are counted; Kafka 4.4 has 95.
const maxAPI = 128

// Kafka counts what the Kafka front end does. The zero value is ready.
type Kafka struct {
	requests [maxAPI]request

	ProduceBytes, ProduceRecords, ProduceBatches atomic.Int64
	FetchBytes                                   atomic.Int64
}

type request struct {
	refused atomic.Int64
	latency Histogram
}

// Answered counts a request and the time from its arrival to its answer, the
// time it chose to wait included.
func (k *Kafka) Answered(key int16, took time.Duration) {
	if key >= 0 && key < maxAPI {
		k.requests[key].latency.Observe(took)
	}
}

// Refused counts a request that was not served: an unknown version, malformed.
func (k *Kafka) Refused(key int16) {
	if key >= 0 && key < maxAPI {
		k.requests[key].refused.Add(1)
	}
}

// answered returns how many requests of a key were answered.
func (k *Kafka) answered(key int16) float64 {
	count, _, _ := k.requests[key].latency.snapshot()
	return float64(count)
}
