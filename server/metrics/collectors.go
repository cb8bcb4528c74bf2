package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Build names the program.
type Build struct{ Version, Commit, Go string }

// Snapshot is the state a scrape sees, filled in by the server.
type Snapshot struct {
	Build      Build
	ClusterID  string
	NodeID     string
	Node       int32  // the same
	Address    string // of the first Kafka listener, host:port
	Started    time.Time
	CleanStart bool

	// Connections by protocol name.
	Sockets map[string]Sockets
	// Kafka's listeners in the order they were configured.
	Listeners []Listener
	// Bytes of requests in flight.
	RequestMemory int64
	FetchSessions int

	Topics     int
	Partitions []Partition
	Groups     []Group
	Disk       Disk
	Journal    Journal
	Storage    Storage
}

// Sockets are the counters of a protocol's connections.
type Sockets struct {
	Open                                         int
	Accepted, Refused, Closed, BytesIn, BytesOut int64
}

// Listener is one of Kafka's, with its open connections.
type Listener struct {
	Name string
	Open int
	// Expires is when its certificate ends; zero without TLS.
	Expires time.Time
}

// Partition is one log. Offline ones have no figures.
type Partition struct {
	Topic                      string
	Partition                  string
	Start, Stable, High, Bytes int64
	Offline                    bool
}

// Disk is the volume of the data directory.
type Disk struct {
	Free, Total int64
	Full        bool // appends are refused
}

// Journal counts what the journal wrote since the start. Entries that became
// durable together are a group.
type Journal struct {
	Syncs, Groups, Entries, Bytes int64
	Queued                        int64 // bytes that wait for the next group
	Files                         int
}

// Storage counts what the engine did since the start.
type Storage struct {
	Checkpoints, Compactions, SegmentsRolled, SegmentsDropped, ProducersExpired int64

	CheckpointAge time.Duration // since the last one, or since the start
	SegmentFiles  int           // open
	Obsolete      int           // groups of files that wait to be deleted
}

// Collector exports everything at a scrape. Names and labels stand in names.go
// and below; Snapshot, Kafka and Flushes must be set.
type Collector struct {
	Snapshot func() Snapshot
	Kafka    *Kafka
	// Flushes are the durations of the journal's writes and syncs.
	Flushes *Histogram
	// API names a Kafka API key, "" for one that is not served.
	API func(key int16) string
	// MaxSeries bounds the partitions, and the committed offsets of groups, that
	// are exported one by one; the sums are always complete. 0 means none.
	MaxSeries int
	// Series under the names of other exporters.
	KafkaExporter, JMX bool
}

// Describe implements prometheus.Collector. An empty description makes the
// collector unchecked: the series depend on what exists.
func (*Collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	out := emitter{to}
	s := c.Snapshot()
	out.gauge(buildInfo, "The program.", 1, labels{"version": s.Build.Version, "commit": s.Build.Commit, "go": s.Build.Go})
	out.gauge(clusterInfo, "The cluster this broker is.", 1, labels{"cluster_id": s.ClusterID, "node_id": s.NodeID})
	out.gauge(startTime, "When the broker was ready, Unix time.", float64(s.Started.UnixMilli())/1000, nil)
	out.gauge(clean, "1 if the last run had ended cleanly.", truth(s.CleanStart), nil)
	c.collectKafka(out, s)
	collectSockets(out, s)
	c.collectPartitions(out, s)
	c.collectGroups(out, s)
	c.collectStorage(out, s)
	if c.KafkaExporter {
		c.kafkaExporter(out, s)
	}
	if c.JMX {
		c.jmx(out, s)
	}
}

func (c *Collector) collectKafka(out emitter, s Snapshot) {
	for key := range int16(maxAPI) {
		r := &c.Kafka.requests[key]
		name := c.API(key)
		if name == "" {
			continue
		}
		if count, sum, buckets := r.latency.snapshot(); count > 0 {
			out.counter(kafkaRequests, "Requests answered.", float64(count), labels{"api": name})
			out.histogram(kafkaRequestLatency, "From the arrival of a request to its answer, waiting it asked for included.", count, sum, buckets, labels{"api": name})
		}
		if refused := r.refused.Load(); refused > 0 {
			out.counter(kafkaRequestErrors, "Requests that could not be decoded or whose version is unknown.", float64(refused), labels{"api": name})
		}
	}
	out.counter(kafkaProduceBytes, "Bytes of batches accepted from producers.", float64(c.Kafka.ProduceBytes.Load()), nil)
	out.counter(kafkaProduceRecords, "Records accepted from producers.", float64(c.Kafka.ProduceRecords.Load()), nil)
	out.counter(kafkaProduceBatches, "Batches accepted from producers.", float64(c.Kafka.ProduceBatches.Load()), nil)
	out.counter(kafkaFetchBytes, "Bytes of batches sent to consumers.", float64(c.Kafka.FetchBytes.Load()), nil)
	out.gauge(kafkaFetchSessions, "Incremental fetch sessions.", float64(s.FetchSessions), nil)
}

func collectSockets(out emitter, s Snapshot) {
	for _, protocol := range slices.Sorted(maps.Keys(s.Sockets)) {
		n, l := s.Sockets[protocol], labels{"protocol": protocol}
		out.gauge(connectionsOpen, "Open connections.", float64(n.Open), l)
		out.counter(connectionsAccepted, "Connections accepted.", float64(n.Accepted), l)
		out.counter(connectionsRefused, "Connections refused by a limit.", float64(n.Refused), l)
		out.counter(connectionsClosed, "Connections closed.", float64(n.Closed), l)
		out.counter(bytesReceived, "Bytes of requests.", float64(n.BytesIn), l)
		out.counter(bytesSent, "Bytes of answers.", float64(n.BytesOut), l)
	}
	for _, l := range s.Listeners {
		if !l.Expires.IsZero() {
			out.gauge(certificateEnd, "When the listener's certificate ends, Unix time.", float64(l.Expires.Unix()), labels{"listener": l.Name})
		}
	}
	out.gauge(memoryInFlight, "Bytes of requests in memory.", float64(s.RequestMemory), nil)
}

func (c *Collector) collectPartitions(out emitter, s Snapshot) {
	offline := 0
	for i, p := range s.Partitions {
		if p.Offline {
			offline++
			continue
		}
		if i >= c.MaxSeries {
			continue
		}
		l := labels{"topic": p.Topic, "partition": p.Partition}
		out.gauge(partitionStart, "First offset that still exists.", float64(p.Start), l)
		out.gauge(partitionHigh, "High watermark: everything below is durable.", float64(p.High), l)
		out.gauge(partitionStable, "Last stable offset: nothing below belongs to an open transaction.", float64(p.Stable), l)
		out.gauge(partitionBytes, "Bytes of the partition's segments.", float64(p.Bytes), l)
	}
	out.gauge(topics, "Topics, internal ones included.", float64(s.Topics), nil)
	out.gauge(partitions, "Partitions, internal ones included.", float64(len(s.Partitions)), nil)
	out.gauge(partitionsOffline, "Partitions whose files cannot be used.", float64(offline), nil)
}

func (c *Collector) collectStorage(out emitter, s Snapshot) {
	out.gauge(diskFree, "Bytes that may still be written to the data directory.", float64(s.Disk.Free), nil)
	out.gauge(diskTotal, "Size of the data directory's volume.", float64(s.Disk.Total), nil)
	out.gauge(storageFull, "1 while produce is refused for want of space.", truth(s.Disk.Full), nil)
	count, sum, buckets := c.Flushes.snapshot()
	out.histogram(journalDuration, "From the first byte of a group's writes to the end of its sync.", count, sum, buckets, nil)
	out.counter(journalSyncs, "Syncs of the journal.", float64(s.Journal.Syncs), nil)
	out.counter(journalGroups, "Groups of entries that became durable together.", float64(s.Journal.Groups), nil)
	out.counter(journalEntries, "Entries made durable; by groups, how many share a sync.", float64(s.Journal.Entries), nil)
	out.counter(journalBytes, "Bytes of entries.", float64(s.Journal.Bytes), nil)
	out.gauge(journalQueued, "Bytes that wait for the next group.", float64(s.Journal.Queued), nil)
	out.gauge(journalFiles, "Journal files that recovery would read or that a checkpoint needs.", float64(s.Journal.Files), nil)
	out.gauge(segmentFiles, "Open segment files.", float64(s.Storage.SegmentFiles), nil)
	out.gauge(obsoleteFiles, "Groups of dropped files that are deleted later.", float64(s.Storage.Obsolete), nil)
	out.gauge(checkpointAge, "Since the last checkpoint, or since the start.", s.Storage.CheckpointAge.Seconds(), nil)
	out.counter(checkpoints, "Checkpoints taken.", float64(s.Storage.Checkpoints), nil)
	out.counter(compactions, "Compaction passes.", float64(s.Storage.Compactions), nil)
	out.counter(segmentsRolled, "Segments begun.", float64(s.Storage.SegmentsRolled), nil)
	out.counter(segmentsDropped, "Segments dropped by retention or deletion.", float64(s.Storage.SegmentsDropped), nil)
	out.counter(producersExpired, "Idle producers forgotten.", float64(s.Storage.ProducersExpired), nil)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

type labels = prometheus.Labels

// emitter makes constant metrics.
type emitter struct{ to chan<- prometheus.Metric }

func (e emitter) gauge(name, help string, value float64, l labels) {
	e.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, l), prometheus.GaugeValue, value)
}

func (e emitter) counter(name, help string, value float64, l labels) {
	e.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, l), prometheus.CounterValue, value)
}

func (e emitter) histogram(name, help string, count uint64, sum float64, buckets map[float64]uint64, l labels) {
	e.to <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, nil, l), count, sum, buckets)
}
