package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/server/metrics"
)

// moonGauges are MoonMQ's series about the broker's state, under the names its
// dashboards ask for. What its clients do is counted by the front end.
type moonGauges struct{ b *Broker }

// Describe implements prometheus.Collector: the series follow from the topics.
func (moonGauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g moonGauges) Collect(to chan<- prometheus.Metric) {
	s := g.b.snapshot()
	gauge := func(name, help string, value float64, labels ...string) {
		names, values := []string{}, []string{}
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), prometheus.GaugeValue, value, values...)
	}
	gauge("moonmq_build_info", "The program.", 1, "version", s.Build.Version, "commit", s.Build.Commit)
	ready := 0.0
	if g.b.Ready() == nil {
		ready = 1
	}
	gauge("moonmq_recovery_progress_ratio", "How much of the start is done: 1 when clients are served.", max(ready, g.b.recovered()))
	if ready == 0 {
		return
	}
	g.collectStorage(s, gauge)
	g.collectTransactions(gauge)
	to <- prometheus.MustNewConstMetric(prometheus.NewDesc("moonmq_producers_expired_total", "Idle producers forgotten.", nil, nil),
		prometheus.CounterValue, float64(s.Storage.ProducersExpired))
}

// moonPartitionSeries bounds the partitions that have series of their own.
const moonPartitionSeries = 5000

type emit func(name, help string, value float64, labels ...string)

func (g moonGauges) collectStorage(s metrics.Snapshot, gauge emit) {
	topics := map[string]bool{}
	offline := 0.0
	for i, p := range s.Partitions {
		topics[p.Topic] = true
		if p.Offline {
			offline = 1
		}
		if i < moonPartitionSeries && !p.Offline {
			gauge("moonmq_partition_log_bytes", "Bytes of a partition's log.", float64(p.Bytes), "topic", p.Topic, "partition", p.Partition)
			gauge("moonmq_partition_lso_lag", "Records that readers of committed data do not see yet.", float64(p.High-p.Stable), "topic", p.Topic, "partition", p.Partition)
		}
	}
	gauge("moonmq_topic_count", "Topics.", float64(len(topics)))
	gauge("moonmq_disk_free_bytes", "Free space of the data directory's volume.", float64(s.Disk.Free))
	gauge("moonmq_log_dir_offline", "1 when a partition cannot be used.", offline)
}

// transactionsLimit bounds how long a scrape waits for the transactions.
const transactionsLimit = time.Second

func (g moonGauges) collectTransactions(gauge emit) {
	ctx, cancel := context.WithTimeout(context.Background(), transactionsLimit)
	defer cancel()
	open, err := g.b.coordinator.ListTransactions(txn.List{States: []txn.State{txn.Ongoing}})(ctx)
	if err != nil {
		return
	}
	oldest := 0.0
	for _, r := range open {
		oldest = max(oldest, time.Since(time.UnixMilli(int64(r.Start))).Seconds())
	}
	gauge("moonmq_txn_open", "Transactions that are open, of either protocol.", float64(len(open)))
	gauge("moonmq_txn_oldest_seconds", "Age of the oldest of them.", oldest)
}

// recovered is how much of the journal has been replayed, while it is.
func (b *Broker) recovered() float64 {
	p := b.health.progress.Load()
	if p == nil || p.JournalTotal == 0 {
		return 0
	}
	return float64(p.JournalBytes) / float64(p.JournalTotal)
}
