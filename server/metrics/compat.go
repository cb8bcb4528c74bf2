package metrics

// kafkaExporter exports what github.com/danielqsj/kafka_exporter does, under
// its names and labels, from the inside: the dashboards and alerts that are
// built on it work without it.
func (c *Collector) kafkaExporter(out emitter, s Snapshot) {
	out.gauge("kafka_brokers", "Brokers.", 1, nil)
	out.gauge("kafka_broker_info", "Brokers.", 1, labels{"id": s.NodeID, "address": s.Address})
	count := map[string]int{}
	for i, p := range s.Partitions {
		count[p.Topic]++
		if i >= c.MaxSeries {
			continue
		}
		l := labels{"topic": p.Topic, "partition": p.Partition}
		out.gauge("kafka_topic_partition_current_offset", "High watermark.", float64(p.High), l)
		out.gauge("kafka_topic_partition_oldest_offset", "First offset that still exists.", float64(p.Start), l)
		out.gauge("kafka_topic_partition_leader", "Id of the leader.", leaderOf(p, s), l)
		out.gauge("kafka_topic_partition_replicas", "Copies.", 1, l)
		out.gauge("kafka_topic_partition_in_sync_replica", "Copies that are in sync.", 1-truth(p.Offline), l)
		out.gauge("kafka_topic_partition_leader_is_preferred", "1 if the preferred broker leads.", 1-truth(p.Offline), l)
		out.gauge("kafka_topic_partition_under_replicated_partition", "1 if a copy is missing.", truth(p.Offline), l)
	}
	for topic, n := range count {
		out.gauge("kafka_topic_partitions", "Partitions of the topic.", float64(n), labels{"topic": topic})
	}
	left := c.MaxSeries
	for i := range s.Groups {
		g := &s.Groups[i]
		out.gauge("kafka_consumergroup_members", "Members of the group.", float64(g.Members), labels{"consumergroup": g.Name})
		for _, sum := range g.topicSums() {
			l := labels{"consumergroup": g.Name, "topic": sum.topic}
			out.gauge("kafka_consumergroup_current_offset_sum", "Sum of the committed offsets.", float64(sum.committed), l)
			out.gauge("kafka_consumergroup_lag_sum", "Records behind the committed offsets.", float64(sum.lag), l)
		}
		for _, o := range g.Offsets {
			if left--; left < 0 {
				break
			}
			l := labels{"consumergroup": g.Name, "topic": o.Topic, "partition": o.Partition}
			out.gauge("kafka_consumergroup_current_offset", "Committed offset.", float64(o.Committed), l)
			out.gauge("kafka_consumergroup_lag", "Records behind the committed offset.", float64(o.Lag), l)
		}
	}
}

// leaderOf is the leader's id as a number, -1 for a partition that has none.
func leaderOf(p Partition, s Snapshot) float64 {
	if p.Offline {
		return -1
	}
	return float64(s.Node)
}

// jmx exports, of the series the JMX exporter has with Strimzi's rules, those
// that mean something on one broker.
func (c *Collector) jmx(out emitter, s Snapshot) {
	const (
		topicMetrics = "kafka_server_brokertopicmetrics_"
		replicas     = "kafka_server_replicamanager_"
		controller   = "kafka_controller_kafkacontroller_"
		cluster      = "kafka_cluster_partition_"
	)
	messages, offline := map[string]int64{}, 0
	for i, p := range s.Partitions {
		if p.Offline {
			offline++
		}
		messages[p.Topic] += p.High
		if i >= c.MaxSeries {
			continue
		}
		l := labels{"topic": p.Topic, "partition": p.Partition}
		out.gauge("kafka_log_log_size", "Bytes.", float64(p.Bytes), l)
		out.gauge(cluster+"replicascount", "Copies.", 1, l)
		out.gauge(cluster+"underminisr", "1 if too few copies are in sync.", truth(p.Offline), l)
		out.gauge(cluster+"atminisr", "1 if just enough copies are in sync.", 1-truth(p.Offline), l)
	}
	for topic, n := range messages {
		out.counter(topicMetrics+"messagesin_total", "Offsets given out.", float64(n), labels{"topic": topic})
	}
	out.counter(topicMetrics+"bytesin_total", "Bytes of batches from producers.", float64(c.Kafka.ProduceBytes.Load()), labels{"topic": ""})
	out.counter(topicMetrics+"bytesout_total", "Bytes of batches to consumers.", float64(c.Kafka.FetchBytes.Load()), labels{"topic": ""})
	out.counter(topicMetrics+"totalproducerequests_total", "Produce requests.", c.Kafka.answered(0), labels{"topic": ""})
	out.counter(topicMetrics+"totalfetchrequests_total", "Fetch requests.", c.Kafka.answered(1), labels{"topic": ""})
	n := float64(len(s.Partitions))
	out.gauge(replicas+"leadercount", "Partitions this broker leads.", n-float64(offline), nil)
	out.gauge(replicas+"partitioncount", "Partitions on this broker.", n, nil)
	out.gauge(replicas+"underreplicatedpartitions", "Partitions that miss a copy.", 0, nil)
	out.gauge(replicas+"underminisrpartitioncount", "Partitions with too few copies.", float64(offline), nil)
	out.gauge(replicas+"offlinereplicacount", "Partitions whose files cannot be used.", float64(offline), nil)
	out.gauge(controller+"activecontrollercount", "1 if this broker is the controller.", 1, nil)
	out.gauge(controller+"offlinepartitionscount", "Partitions without a leader.", float64(offline), nil)
	out.gauge(controller+"globaltopiccount", "Topics.", float64(s.Topics), nil)
	out.gauge(controller+"globalpartitioncount", "Partitions.", n, nil)
	out.counter("kafka_controller_controllerstats_uncleanleaderelections_total", "Leaders that had lost records.", 0, nil)
	out.gauge("kafka_log_logmanager_offlinelogdirectorycount", "Data directories that cannot be used.", 0, nil)
	for _, listener := range s.Listeners {
		out.gauge("kafka_server_socket_server_metrics_connection_count", "Open connections.", float64(listener.Open), labels{"listener": listener.Name})
	}
}
