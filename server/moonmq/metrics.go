package moonmq

import (
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/transport"
)

// Metrics counts what the original broker counts, under its names and labels, so
// that its dashboards go on working, and what it has no name for. It is a
// prometheus.Collector; counting is safe from any goroutine.
type Metrics struct {
	open, accepted       atomic.Int64
	bytesSent, framesOut atomic.Int64

	mu       sync.Mutex
	counts   map[series]int64
	dispatch map[wire.Op]*durations
	sends    *durations
}

// series is a counter with labels; unused labels are empty.
type series struct {
	name           string
	label1, label2 string
}

// buckets are the original's, in seconds.
var buckets = []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5}

// durations is a histogram.
type durations struct {
	counts []uint64 // by bucket, not cumulated; one more for the rest
	count  uint64
	sum    float64
}

// txnEvent labels the transaction counters.
type txnEvent string

const (
	txnBegun     txnEvent = "moonmq_txn_begun_total"
	txnCommitted txnEvent = "moonmq_txn_committed_total"
	txnAborted   txnEvent = "moonmq_txn_aborted_total"
	txnTimedOut  txnEvent = "moonmq_txn_timed_out_total"
	txnFenced    txnEvent = "moonmq_txn_fenced_total"
)

// families describe the counters: their labels and help, by name.
var families = map[string]struct {
	labels []string
	help   string
}{
	"moonmq_connections_closed_total":     {[]string{"reason"}, "Connections that ended."},
	"moonmq_frames_received_total":        {[]string{"op"}, "Frames received."},
	"moonmq_produce_records_total":        {[]string{"topic"}, "Records appended."},
	"moonmq_idempotent_produce_total":     {[]string{"topic"}, "Idempotent produces, repeated ones included."},
	"moonmq_produce_batches_total":        {[]string{"topic"}, "Batches appended."},
	"moonmq_fetch_records_total":          {[]string{"topic"}, "Records delivered."},
	"moonmq_nack_total":                   {[]string{"topic"}, "Records given back."},
	"moonmq_dlq_records_total":            {[]string{"topic"}, "Records moved to a dead-letter topic, by source topic."},
	"moonmq_dlq_redriven_total":           {[]string{"topic"}, "Records sent back from a dead-letter topic over HTTP."},
	"moonmq_oversize_records_total":       {[]string{"topic"}, "Records longer than a MoonMQ client can read, skipped or dead-lettered."},
	"moonmq_authz_denied_total":           {[]string{"resource", "operation"}, "Requests refused for want of a permission."},
	"moonmq_quota_throttled_total":        {[]string{"scope", "dimension"}, "Requests refused for a quota."},
	"moonmq_auth_success_total":           {[]string{"mechanism"}, "Logins."},
	"moonmq_auth_failures_total":          {[]string{"mechanism"}, "Failed logins."},
	"moonmq_connections_refused_fd_total": {nil, "Times no connection could be accepted for want of file descriptors."},
	"moonmq_tls_handshakes_total":         {nil, "TLS handshakes that succeeded."},
	"moonmq_tls_handshake_failures_total": {nil, "TLS handshakes that failed."},
	"moonmq_tls_reloads_total":            {nil, "Times changed certificate files were taken over."},
	"moonmq_tls_reload_failures_total":    {nil, "Times they could not be, and the old ones stayed."},
	string(txnBegun):                      {nil, "Transactions begun."},
	string(txnCommitted):                  {nil, "Transactions committed."},
	string(txnAborted):                    {nil, "Transactions aborted by their session or its end."},
	string(txnTimedOut):                   {nil, "Transactions aborted for taking too long."},
	string(txnFenced):                     {nil, "Requests refused because a newer session has the producer's name."},
}

// NewMetrics returns counters at zero.
func NewMetrics() *Metrics {
	m := &Metrics{counts: map[series]int64{}, dispatch: map[wire.Op]*durations{}, sends: newDurations()}
	for name, f := range families {
		if len(f.labels) == 0 {
			m.counts[series{name: name}] = 0 // there from the start, so that a rate has a beginning
		}
	}
	return m
}

func (m *Metrics) add(s series, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[s] += int64(n)
}

func (m *Metrics) opened() {
	m.open.Add(1)
	m.accepted.Add(1)
}

func (m *Metrics) closed(reason string) {
	m.open.Add(-1)
	m.add(series{name: "moonmq_connections_closed_total", label1: reason}, 1)
}

func opLabel(op wire.Op) string { return fmt.Sprintf("0x%02x", uint8(op)) }

func (m *Metrics) received(op wire.Op) {
	if _, known := table[op]; !known {
		op = 0 // unknown numbers share a series: a client must not make new ones
	}
	m.add(series{name: "moonmq_frames_received_total", label1: opLabel(op)}, 1)
}

func (m *Metrics) dispatched(op wire.Op, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := table[op]; !known {
		op = 0
	}
	d := m.dispatch[op]
	if d == nil {
		d = newDurations()
		m.dispatch[op] = d
	}
	d.observe(took.Seconds())
}

func newDurations() *durations { return &durations{counts: make([]uint64, len(buckets)+1)} }

func (d *durations) observe(seconds float64) {
	at := 0
	for at < len(buckets) && seconds > buckets[at] {
		at++
	}
	d.counts[at]++
	d.count++
	d.sum += seconds
}

// sending counts what is about to leave and times how long it takes.
func (m *Metrics) sending(o *transport.Output) {
	if len(o.Parts) == 0 {
		return
	}
	for _, p := range o.Parts {
		m.bytesSent.Add(int64(len(p.Bytes)))
		for rest := p.Bytes; len(rest) >= wire.LengthSize; m.framesOut.Add(1) {
			rest = rest[min(len(rest), wire.LengthSize+int(binary.BigEndian.Uint32(rest))):]
		}
	}
	start, release := time.Now(), o.Release
	o.Release = func() {
		took := time.Since(start).Seconds()
		m.mu.Lock()
		m.sends.observe(took)
		m.mu.Unlock()
		if release != nil {
			release()
		}
	}
}

func (m *Metrics) produced(topic string, n int) {
	m.add(series{name: "moonmq_produce_records_total", label1: topic}, n)
}

func (m *Metrics) idempotent(topic string) {
	m.add(series{name: "moonmq_idempotent_produce_total", label1: topic}, 1)
}

func (m *Metrics) batch(topic string) {
	m.add(series{name: "moonmq_produce_batches_total", label1: topic}, 1)
}

func (m *Metrics) fetched(topic string, n int) {
	m.add(series{name: "moonmq_fetch_records_total", label1: topic}, n)
}

func (m *Metrics) nacked(topic string) { m.add(series{name: "moonmq_nack_total", label1: topic}, 1) }

func (m *Metrics) dead(topic string) {
	m.add(series{name: "moonmq_dlq_records_total", label1: topic}, 1)
}

func (m *Metrics) oversized(topic string) {
	m.add(series{name: "moonmq_oversize_records_total", label1: topic}, 1)
}

func (m *Metrics) login(mechanism string, ok bool) {
	m.add(series{name: either(ok, "moonmq_auth_success_total", "moonmq_auth_failures_total"), label1: mechanism}, 1)
}

func (m *Metrics) denied(r access.ResourceType, op access.Operation) {
	m.add(series{"moonmq_authz_denied_total", resourceName(r), operationName(op)}, 1)
}

func (m *Metrics) throttled(scope string, dim Dimension) {
	m.add(series{"moonmq_quota_throttled_total", scope, string(dim)}, 1)
}

func (m *Metrics) transaction(e txnEvent) { m.add(series{name: string(e)}, 1) }

// NoDescriptors counts a connection that could not be accepted for want of file
// descriptors.
func (m *Metrics) NoDescriptors() { m.add(series{name: "moonmq_connections_refused_fd_total"}, 1) }

// Handshake counts a TLS handshake.
func (m *Metrics) Handshake(ok bool) {
	m.add(series{name: either(ok, "moonmq_tls_handshakes_total", "moonmq_tls_handshake_failures_total")}, 1)
}

// Reloaded counts an attempt to take over changed certificate files.
func (m *Metrics) Reloaded(ok bool) {
	m.add(series{name: either(ok, "moonmq_tls_reloads_total", "moonmq_tls_reload_failures_total")}, 1)
}

func either(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}

// Nacked counts a NACK that came over HTTP.
func (m *Metrics) Nacked(topic string, dead bool) {
	m.nacked(topic)
	if dead {
		m.dead(topic)
	}
}

// Redriven counts records sent back from a dead-letter topic.
func (m *Metrics) Redriven(topic string, records int) {
	m.add(series{name: "moonmq_dlq_redriven_total", label1: topic}, records)
}

// Stats are the counters for people: what has labels is summed up.
func (m *Metrics) Stats() map[string]int64 {
	all := map[string]int64{
		"moonmq_connections_open": m.open.Load(), "moonmq_connections_accepted_total": m.accepted.Load(),
		"moonmq_bytes_sent_total": m.bytesSent.Load(), "moonmq_frames_sent_total": m.framesOut.Load(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, n := range m.counts {
		all[s.name] += n
	}
	return all
}

// Describe implements prometheus.Collector: the series are made as they come.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	single := func(name, help string, kind prometheus.ValueType, v float64) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, v)
	}
	single("moonmq_connections_open", "Connections open now.", prometheus.GaugeValue, float64(m.open.Load()))
	single("moonmq_connections_accepted_total", "Connections let in.", prometheus.CounterValue, float64(m.accepted.Load()))
	single("moonmq_bytes_sent_total", "Bytes of frames sent.", prometheus.CounterValue, float64(m.bytesSent.Load()))
	single("moonmq_frames_sent_total", "Answers and pushes sent.", prometheus.CounterValue, float64(m.framesOut.Load()))
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, n := range maps.All(m.counts) {
		f := families[s.name]
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(s.name, f.help, f.labels, nil),
			prometheus.CounterValue, float64(n), []string{s.label1, s.label2}[:len(f.labels)]...)
	}
	to <- m.sends.metric(prometheus.NewDesc("moonmq_send_duration_seconds", "Time from an answer or a push being made to its last byte being written.", nil, nil))
	desc := prometheus.NewDesc("moonmq_dispatch_duration_seconds", "Time requests take on the connection's goroutine.", []string{"op"}, nil)
	for op, d := range m.dispatch {
		to <- d.metric(desc, opLabel(op))
	}
}

func (d *durations) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	cumulated, upTo := map[float64]uint64{}, uint64(0)
	for i, b := range buckets {
		upTo += d.counts[i]
		cumulated[b] = upTo
	}
	return prometheus.MustNewConstHistogram(desc, d.count, d.sum, cumulated, labels...)
}
