package server

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeemq/perigee/server/metrics"
	"github.com/perigeemq/perigee/storage/vfs"
)

// lagging starts a broker on which a group has read 2 of 5 records of one
// partition, the third of them an hour old, and all of another.
func lagging(t *testing.T, set ...string) *Broker {
	t.Helper()
	b, _ := run(t, vfs.NewMemory(), set...)
	client, err := kgo.NewClient(kgo.SeedBrokers(b.KafkaAddr("PLAINTEXT").String()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	a := kadm.NewClient(client)
	if _, err := a.CreateTopic(t.Context(), 2, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r := &kgo.Record{Topic: "orders", Value: []byte("x"), Timestamp: time.Now().Add(-time.Hour)}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("orders", 0, 2, -1)
	offsets.AddOffset("orders", 1, 0, -1)
	if _, err := a.CommitOffsets(t.Context(), "readers", offsets); err != nil {
		t.Fatal(err)
	}
	return b
}

func expectSeries(t *testing.T, metrics string, want ...string) {
	t.Helper()
	for _, series := range want {
		if !strings.Contains(metrics, series) {
			t.Errorf("/metrics lacks %s", series)
		}
	}
}

func TestLagOfGroups(t *testing.T) {
	b := lagging(t)
	_, metrics := get(t, b, "/metrics")
	expectSeries(t, metrics,
		`perigee_group_lag{group="readers",partition="0",topic="orders"} 3`,
		`perigee_group_lag{group="readers",partition="1",topic="orders"} 0`,
		`perigee_group_lag_seconds{group="readers",partition="1",topic="orders"} 0`,
		`perigee_group_committed_offset{group="readers",partition="0",topic="orders"} 2`,
		`perigee_group_lag_sum{group="readers",topic="orders"} 3`,
		`perigee_group_members{group="readers"} 0`, "perigee_groups 1",
	)
	m := regexp.MustCompile(`perigee_group_lag_seconds\{group="readers",partition="0",topic="orders"\} (\S+)`).FindStringSubmatch(metrics)
	if m == nil {
		t.Fatalf("no lag in seconds")
	}
	if age, err := strconv.ParseFloat(m[1], 64); err != nil || age < 3500 || age > 3700 {
		t.Errorf("lag of %s seconds, want about 3600", m[1])
	}
	if strings.Contains(metrics, "kafka_consumergroup") {
		t.Error("another exporter's series without being asked")
	}
}

func TestSeriesOfOtherExporters(t *testing.T) {
	b := lagging(t, "perigee.metrics.compat=kafka_exporter,jmx")
	_, metrics := get(t, b, "/metrics")
	expectSeries(t, metrics,
		"kafka_brokers 1", `kafka_topic_partitions{topic="orders"} 2`,
		`kafka_broker_info{address="`+b.KafkaAddr("PLAINTEXT").String()+`",id="1"} 1`,
		`kafka_topic_partition_current_offset{partition="0",topic="orders"} 5`,
		`kafka_topic_partition_leader{partition="0",topic="orders"} 1`,
		`kafka_topic_partition_under_replicated_partition{partition="0",topic="orders"} 0`,
		`kafka_consumergroup_lag{consumergroup="readers",partition="0",topic="orders"} 3`,
		`kafka_consumergroup_lag_sum{consumergroup="readers",topic="orders"} 3`,
		`kafka_consumergroup_current_offset_sum{consumergroup="readers",topic="orders"} 2`,
		`kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 5`,
		"kafka_server_replicamanager_partitioncount ", "kafka_controller_kafkacontroller_activecontrollercount 1",
		`kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}`,
	)
}

// Series are capped, sums are not.
func TestFewSeriesWhenThereAreManyPartitions(t *testing.T) {
	b := lagging(t, "perigee.metrics.max.series=1", "perigee.metrics.compat=kafka_exporter")
	_, metrics := get(t, b, "/metrics")
	for _, name := range []string{"perigee_group_lag{", "kafka_consumergroup_lag{", "perigee_partition_bytes{", "kafka_topic_partition_oldest_offset{"} {
		if n := strings.Count(metrics, "\n"+name); n != 1 {
			t.Errorf("%d series of %s, want 1", n, name)
		}
	}
	expectSeries(t, metrics, `perigee_group_lag_sum{group="readers",topic="orders"} 3`)
}

func TestSeriesOfTheJournal(t *testing.T) {
	b := lagging(t)
	_, metrics := get(t, b, "/metrics")
	expectSeries(t, metrics, "perigee_journal_flush_duration_seconds_bucket", "perigee_journal_bytes_total ", "perigee_journal_files ",
		"perigee_checkpoint_age_seconds ", "perigee_disk_free_bytes ", "perigee_segment_files_open ", "perigee_partitions_offline 0", "perigee_request_memory_bytes ")
	for _, name := range []string{"perigee_journal_syncs_total", "perigee_journal_groups_total", "perigee_journal_entries_total"} {
		m := regexp.MustCompile(name + ` (\d+)`).FindStringSubmatch(metrics)
		if m == nil || m[1] == "0" {
			t.Errorf("%s: %v", name, m)
		}
	}
}

// A shard's lock is not released because a scrape has waited long enough.
func TestAStuckGroupDoesNotHoldScrapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := make(lagReader, 1)
		stuck := make(chan struct{})
		var started atomic.Int32
		read := func(context.Context) []metrics.Group {
			started.Add(1)
			<-stuck
			return []metrics.Group{{Name: "g"}}
		}
		scrape := func() []metrics.Group {
			ctx, cancel := context.WithTimeout(t.Context(), lagTime)
			defer cancel()
			return r.within(ctx, read)
		}
		began := time.Now()
		for range 3 {
			if got := scrape(); got != nil {
				t.Errorf("groups %v of a stuck shard", got)
			}
		}
		if took := time.Since(began); took != 3*lagTime || started.Load() != 1 {
			t.Errorf("three scrapes took %v and started %d readings", took, started.Load())
		}
		close(stuck)
		if got := scrape(); len(got) != 1 {
			t.Errorf("groups %v after the disk came back", got)
		}
	})
}
