package config

const (
	maxInt32 = 1<<31 - 1
	maxInt64 = "9223372036854775807"
	week     = "604800000"
	day      = "86400000"
)

var (
	codecRule     = oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
	gzipRule      = betweenOr(-1, 1, 9)
	lz4Rule       = between(1, 17)
	zstdRule      = between(-131072, 22)
	policyRule    = eachOneOf("compact", "delete")
	stampTypeRule = oneOf("CreateTime", "LogAppendTime")
)

// topicKeys are all topic settings of Kafka 4.4, and ours.
var topicKeys = []Key{
	{Name: "cleanup.policy", Type: List, Default: "delete", rule: policyRule, Fallback: []string{"log.cleanup.policy"},
		Doc: "What happens to old records: delete removes whole segments by age and size, compact keeps the latest record of each key, both may be combined; the empty list keeps everything."},
	{Name: "compression.type", Type: String, Default: "producer", rule: codecRule, Fallback: []string{"compression.type"},
		Doc: "The codec batches are stored with. producer keeps what the producer chose; any other value makes the broker compress again."},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", rule: gzipRule, Fallback: []string{"compression.gzip.level"},
		Doc: "Effort of gzip when the broker compresses; -1 is the library's default."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", rule: lz4Rule, Fallback: []string{"compression.lz4.level"},
		Doc: "Effort of lz4 when the broker compresses."},
	{Name: "compression.zstd.level", Type: Int, Default: "3", rule: zstdRule, Fallback: []string{"compression.zstd.level"},
		Doc: "Effort of zstd when the broker compresses; mapped to the nearest level the library has."},
	{Name: "delete.retention.ms", Type: Long, Default: day, Unit: Millis, rule: atLeast(0), Fallback: []string{"log.cleaner.delete.retention.ms"},
		Doc: "How long a compacted topic keeps tombstones and transaction markers, so that a reader that started before sees them."},
	{Name: "errors.deadletterqueue.group.enable", Type: Bool, Default: "false", Effect: Stored,
		Doc: "Whether this topic may be the dead-letter topic of groups (KIP-1191)."},
	{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Unit: Millis, rule: atLeast(0), Fallback: []string{"log.segment.delete.delay.ms"},
		Doc: "How long files of deleted segments stay on disk for readers that still hold them."},
	{Name: "flush.messages", Type: Long, Default: maxInt64, rule: atLeast(1), Fallback: []string{"log.flush.interval.messages"},
		Doc: "Sync a partition's segment after this many records. Acknowledged records are durable in the journal regardless of it."},
	{Name: "flush.ms", Type: Long, Default: maxInt64, Unit: Millis, rule: atLeast(0),
		Fallback: []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"},
		Doc:      "Sync a partition's segment at least this often. Acknowledged records are durable in the journal regardless of it."},
	{Name: "follower.replication.throttled.replicas", Type: List, Default: "", rule: throttledReplicas("follower.replication.throttled.replicas"), Effect: Stored,
		Doc: "Replicas whose replication is throttled on the follower side."},
	{Name: "index.interval.bytes", Type: Int, Default: "4096", Unit: Bytes, rule: atLeast(0), Fallback: []string{"log.index.interval.bytes"},
		Doc: "How many bytes of log stand between two entries of the sparse offset and time indexes."},
	{Name: "internal.segment.bytes", Type: Int, Null: true, Hidden: true, Unit: Bytes, rule: atLeast(14),
		Doc: "Segment size for tests, below the least segment.bytes; it wins over segment.bytes when it is set."},
	{Name: "leader.replication.throttled.replicas", Type: List, Default: "", rule: throttledReplicas("leader.replication.throttled.replicas"), Effect: Stored,
		Doc: "Replicas whose replication is throttled on the leader side."},
	{Name: "local.retention.bytes", Type: Long, Default: "-2", Unit: Bytes, rule: atLeast(-2), Effect: Stored, Fallback: []string{"log.local.retention.bytes"},
		Doc: "Local bytes kept per partition when segments are also kept in remote storage; -2 follows retention.bytes."},
	{Name: "local.retention.ms", Type: Long, Default: "-2", Unit: Millis, rule: atLeast(-2), Effect: Stored, Fallback: []string{"log.local.retention.ms"},
		Doc: "How long segments stay local when they are also kept in remote storage; -2 follows retention.ms."},
	{Name: "max.compaction.lag.ms", Type: Long, Default: maxInt64, Unit: Millis, rule: atLeast(1), Fallback: []string{"log.cleaner.max.compaction.lag.ms"},
		Doc: "A record is compacted at the latest after this time, even when too little is dirty."},
	{Name: "max.decompressed.message.bytes", Type: Int, Default: "2147483639", Unit: Bytes, rule: between(1, 2147483639), Fallback: []string{"max.decompressed.message.bytes"},
		Doc: "The largest size a compressed batch may unpack to; larger ones are refused before they are unpacked in full."},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", Unit: Bytes, rule: atLeast(0), Fallback: []string{"message.max.bytes"},
		Doc: "The largest batch, after compression, that is accepted."},
	{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Unit: Millis, rule: atLeast(0), Fallback: []string{"log.message.timestamp.after.max.ms"},
		Doc: "How far a record's timestamp may lie in the future of the broker's clock (CreateTime only)."},
	{Name: "message.timestamp.before.max.ms", Type: Long, Default: maxInt64, Unit: Millis, rule: atLeast(0), Fallback: []string{"log.message.timestamp.before.max.ms"},
		Doc: "How far a record's timestamp may lie in the past of the broker's clock (CreateTime only)."},
	{Name: "message.timestamp.type", Type: String, Default: "CreateTime", rule: stampTypeRule, Fallback: []string{"log.message.timestamp.type"},
		Doc: "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime)."},
	{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", rule: fraction(), Fallback: []string{"log.cleaner.min.cleanable.ratio"},
		Doc: "The part of a log that must be uncompacted before compaction starts."},
	{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Unit: Millis, rule: atLeast(0), Fallback: []string{"log.cleaner.min.compaction.lag.ms"},
		Doc: "A record stays uncompacted at least this long."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", rule: atLeast(1), Effect: Stored, Fallback: []string{"min.insync.replicas"},
		Doc: "How many replicas in sync acks=all asks for, of those there are: one broker has one."},
	{Name: "preallocate", Type: Bool, Default: "false", Effect: Stored, Fallback: []string{"log.preallocate"},
		Doc: "Reserve a new segment's disk space at once."},
	{Name: "remote.copy.lag.bytes", Type: Long, Default: "-1", Unit: Bytes, rule: atLeast(-1), Effect: Stored, Fallback: []string{"log.remote.copy.lag.bytes"},
		Doc: "How far copying to remote storage may lag behind, in bytes."},
	{Name: "remote.copy.lag.ms", Type: Long, Default: "0", Unit: Millis, rule: atLeast(-1), Effect: Stored, Fallback: []string{"log.remote.copy.lag.ms"},
		Doc: "How far copying to remote storage may lag behind, in time."},
	{Name: "remote.log.copy.disable", Type: Bool, Default: "false", Effect: Stored,
		Doc: "Stop copying segments to remote storage; what is there stays readable."},
	{Name: "remote.log.delete.on.disable", Type: Bool, Default: "false", Effect: Stored,
		Doc: "Delete remote segments when remote storage is switched off for the topic."},
	{Name: "remote.storage.enable", Type: Bool, Default: "false", Effect: Refused,
		Doc: "Keep sealed segments in remote storage too."},
	{Name: "retention.bytes", Type: Long, Default: "-1", Unit: Bytes, Fallback: []string{"log.retention.bytes"},
		Doc: "Bytes kept per partition before the oldest segments are deleted; -1 is no limit."},
	{Name: "retention.ms", Type: Long, Default: week, Unit: Millis, rule: atLeast(-1),
		Fallback: []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
		Doc:      "How long records are kept before their segment is deleted; -1 is for ever."},
	{Name: "segment.bytes", Type: Int, Default: "1073741824", Unit: Bytes, rule: atLeast(1 << 20), Fallback: []string{"log.segment.bytes"},
		Doc: "A segment is closed when it has this size."},
	{Name: "segment.index.bytes", Type: Int, Default: "10485760", Unit: Bytes, rule: atLeast(4), Fallback: []string{"log.index.size.max.bytes"},
		Doc: "The largest index of a segment; a full index closes its segment."},
	{Name: "segment.jitter.ms", Type: Long, Default: "0", Unit: Millis, rule: atLeast(0), Fallback: []string{"log.roll.jitter.ms", "log.roll.jitter.hours"},
		Doc: "Random time taken off segment.ms, so that many segments do not close at once."},
	{Name: "segment.ms", Type: Long, Default: week, Unit: Millis, rule: atLeast(1), Fallback: []string{"log.roll.ms", "log.roll.hours"},
		Doc: "A segment is closed when its first record has this age, even when it is small."},
	{Name: "unclean.leader.election.enable", Type: Bool, Default: "false", Effect: Stored, Fallback: []string{"unclean.leader.election.enable"},
		Doc: "Let a replica that is behind become leader."},
	{Name: "perigee.moonmq.cleanup.policy", Type: String, Null: true, Hidden: true, Effect: Stored,
		Doc: "The text a MoonMQ client last set as cleanup_policy, shown to it again. A recognised policy also sets cleanup.policy."},
	{Name: "perigee.moonmq.cleaner.interval.seconds", Type: Long, Null: true, Hidden: true, rule: atLeast(1), Effect: Stored,
		Doc: "The number a MoonMQ client last set as cleaner_interval, shown to it again. Cleaning is scheduled for the whole broker."},
}

// goneTopicKeys existed before Kafka 4 and are still sent by tools of that
// time. Outside strict mode they are accepted, dropped and reported.
var goneTopicKeys = []string{"message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms"}

// groupKeys are the settings of one group (resource GROUP).
var groupKeys = []Key{
	{Name: "consumer.session.timeout.ms", Type: Int, Default: "45000", Effect: Stored, Unit: Millis, rule: atLeast(1), Fallback: []string{"group.consumer.session.timeout.ms"},
		Doc: "A member of a consumer group that is not heard of for this time is removed."},
	{Name: "consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Effect: Stored, Unit: Millis, rule: atLeast(1), Fallback: []string{"group.consumer.heartbeat.interval.ms"},
		Doc: "How often members of a consumer group send heartbeats."},
	{Name: "consumer.assignment.interval.ms", Type: Int, Default: "1000", Unit: Millis, rule: atLeast(0), Effect: Stored, Fallback: []string{"group.consumer.assignment.interval.ms"},
		Doc: "The least time between two assignments of a consumer group."},
	{Name: "share.session.timeout.ms", Type: Int, Default: "45000", Unit: Millis, rule: atLeast(1), Effect: Stored, Fallback: []string{"group.share.session.timeout.ms"},
		Doc: "A member of a share group that is not heard of for this time is removed."},
	{Name: "share.heartbeat.interval.ms", Type: Int, Default: "5000", Unit: Millis, rule: atLeast(1), Effect: Stored, Fallback: []string{"group.share.heartbeat.interval.ms"},
		Doc: "How often members of a share group send heartbeats."},
	{Name: "share.auto.offset.reset", Type: String, Default: "latest", Effect: Stored,
		rule: rule{text: "latest, earliest, by_duration:PnDTnHnMn.nS", check: func(v string) string {
			if v != "latest" && v != "earliest" && len(v) <= len("by_duration:") {
				return "share.auto.offset.reset must be latest, earliest or by_duration:<duration>"
			}
			return ""
		}},
		Doc: "Where a share group starts on a partition it has not read."},
	{Name: "share.delivery.count.limit", Type: Int, Default: "5", rule: between(2, 10), Effect: Stored, Fallback: []string{"group.share.delivery.count.limit"},
		Doc: "How often a share group delivers a record before it gives up on it."},
	{Name: "share.record.lock.duration.ms", Type: Int, Default: "30000", Unit: Millis, rule: atLeast(1000), Effect: Stored, Fallback: []string{"group.share.record.lock.duration.ms"},
		Doc: "How long a share group's member holds a record it was given."},
	{Name: "share.partition.max.record.locks", Type: Int, Default: "2000", rule: atLeast(100), Effect: Stored, Fallback: []string{"group.share.partition.max.record.locks"},
		Doc: "How many records of one partition a share group may hold at once."},
	{Name: "share.isolation.level", Type: String, Default: "read_uncommitted", rule: oneOf("read_committed", "read_uncommitted"), Effect: Stored,
		Doc: "Whether a share group sees records of open and aborted transactions."},
	{Name: "errors.deadletterqueue.topic.name", Type: String, Default: "", Effect: Stored,
		Doc: "The topic a group's dead records go to; empty means no dead-letter topic (KIP-1191)."},
	{Name: "errors.deadletterqueue.copy.record.enable", Type: Bool, Default: "false", Effect: Stored,
		Doc: "Copy the whole record to the dead-letter topic instead of a pointer to it."},
	{Name: "share.assignment.interval.ms", Type: Int, Default: "1000", Unit: Millis, rule: atLeast(0), Effect: Stored, Fallback: []string{"group.share.assignment.interval.ms"},
		Doc: "The least time between two assignments of a share group."},
	{Name: "share.renew.acknowledge.enable", Type: Bool, Default: "true", Effect: Stored,
		Doc: "Whether members of a share group may prolong their hold of a record (KIP-1222)."},
	{Name: "streams.session.timeout.ms", Type: Int, Default: "45000", Unit: Millis, rule: atLeast(1), Effect: Stored, Fallback: []string{"group.streams.session.timeout.ms"},
		Doc: "A member of a streams group that is not heard of for this time is removed."},
	{Name: "streams.heartbeat.interval.ms", Type: Int, Default: "5000", Unit: Millis, rule: atLeast(1), Effect: Stored, Fallback: []string{"group.streams.heartbeat.interval.ms"},
		Doc: "How often members of a streams group send heartbeats."},
	{Name: "streams.assignment.interval.ms", Type: Int, Default: "1000", Unit: Millis, rule: atLeast(0), Effect: Stored, Fallback: []string{"group.streams.assignment.interval.ms"},
		Doc: "The least time between two assignments of a streams group."},
	{Name: "streams.assignor.name", Type: String, Default: "sticky", Effect: Stored, Fallback: []string{"group.streams.assignors"},
		Doc: "The assignor of a streams group."},
	{Name: "streams.num.standby.replicas", Type: Int, Default: "0", rule: atLeast(0), Effect: Stored, Fallback: []string{"group.streams.num.standby.replicas"},
		Doc: "How many standby copies of each task a streams group keeps."},
	{Name: "streams.initial.rebalance.delay.ms", Type: Int, Default: "3000", Unit: Millis, rule: atLeast(0), Effect: Stored, Fallback: []string{"group.streams.initial.rebalance.delay.ms"},
		Doc: "How long a new streams group waits for more members."},
	{Name: "streams.rack.aware.assignment.tags", Type: List, Default: "", Effect: Stored, Fallback: []string{"group.streams.rack.aware.assignment.tags"},
		Doc: "Client tags that tell racks apart when standby copies are placed."},
}

// clientMetricsKeys are the settings of a client metrics subscription (KIP-714).
var clientMetricsKeys = []Key{
	{Name: "interval.ms", Type: Int, Default: "300000", Unit: Millis, rule: between(100, 3_600_000), Effect: Stored,
		Doc: "How often a matching client pushes its metrics."},
	{Name: "match", Type: List, Default: "", Effect: Stored,
		Doc: "Which clients the subscription is for: selector=regex, all of which must match."},
	{Name: "metrics", Type: List, Default: "", Effect: Stored,
		Doc: "Prefixes of the metrics wanted; * is all."},
}
