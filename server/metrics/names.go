package metrics

// Names of series, Perigee's own. Times are seconds, sizes bytes, counters end
// in _total.
const (
	buildInfo   = "perigee_build_info"
	startTime   = "perigee_start_seconds"
	clean       = "perigee_start_clean"
	clusterInfo = "perigee_cluster_info"

	kafkaRequests       = "perigee_kafka_requests_total"
	kafkaRequestErrors  = "perigee_kafka_requests_refused_total"
	kafkaRequestLatency = "perigee_kafka_request_duration_seconds"
	kafkaProduceBytes   = "perigee_kafka_produce_bytes_total"
	kafkaProduceRecords = "perigee_kafka_produce_records_total"
	kafkaProduceBatches = "perigee_kafka_produce_batches_total"
	kafkaFetchBytes     = "perigee_kafka_fetch_bytes_total"
	kafkaFetchSessions  = "perigee_kafka_fetch_sessions"

	connectionsOpen     = "perigee_connections_open"
	connectionsAccepted = "perigee_connections_accepted_total"
	connectionsRefused  = "perigee_connections_refused_total"
	connectionsClosed   = "perigee_connections_closed_total"
	bytesReceived       = "perigee_bytes_received_total"
	bytesSent           = "perigee_bytes_sent_total"
	certificateEnd      = "perigee_tls_certificate_expires_seconds"
	memoryInFlight      = "perigee_request_memory_bytes"

	topics            = "perigee_topics"
	partitions        = "perigee_partitions"
	partitionsOffline = "perigee_partitions_offline"
	partitionStart    = "perigee_partition_start_offset"
	partitionHigh     = "perigee_partition_high_watermark"
	partitionStable   = "perigee_partition_last_stable_offset"
	partitionBytes    = "perigee_partition_bytes"
	diskFree          = "perigee_disk_free_bytes"
	diskTotal         = "perigee_disk_total_bytes"
	storageFull       = "perigee_storage_full"

	journalSyncs    = "perigee_journal_syncs_total"
	journalGroups   = "perigee_journal_groups_total"
	journalEntries  = "perigee_journal_entries_total"
	journalBytes    = "perigee_journal_bytes_total"
	journalQueued   = "perigee_journal_queued_bytes"
	journalFiles    = "perigee_journal_files"
	journalDuration = "perigee_journal_flush_duration_seconds"
	segmentFiles    = "perigee_segment_files_open"
	obsoleteFiles   = "perigee_obsolete_files_waiting"

	groups         = "perigee_groups"
	groupMembers   = "perigee_group_members"
	groupCommitted = "perigee_group_committed_offset"
	groupLag       = "perigee_group_lag"
	groupLagTime   = "perigee_group_lag_seconds"
	groupLagSum    = "perigee_group_lag_sum"

	checkpoints      = "perigee_checkpoints_total"
	checkpointAge    = "perigee_checkpoint_age_seconds"
	compactions      = "perigee_compactions_total"
	segmentsRolled   = "perigee_segments_rolled_total"
	segmentsDropped  = "perigee_segments_dropped_total"
	producersExpired = "perigee_producers_expired_total"
)
