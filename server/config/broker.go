package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Broker is the broker's effective settings, parsed. It is immutable; a change
// at run time makes a new one.
type Broker struct {
	NodeID  int32
	Rack    string // "" is none
	DataDir string
	Strict  bool // refuse what is otherwise accepted with a warning

	Kafka  []Listener // at least one
	MoonMQ *Listener  // nil is off
	HTTP   *Listener  // nil is off

	TLS          TLS // of Kafka's listeners
	Network      Network
	Storage      Storage
	Topics       TopicDefaults
	Groups       Groups
	Transactions Transactions
	MoonMQLimits MoonMQLimits
	DeadLetters  DeadLetters

	SuperUsers           []string // "User:name"
	AllowEveryoneIfNoACL bool
	AllowOpen            bool
	Log                  Log
	Metrics              Metrics
	ShutdownTimeout      time.Duration
}

// Log says which lines are written where.
type Log struct {
	Level, Format string
	File          string // "" is stderr
	Requests      string // the client.id whose requests are logged; "" none, "*" all
	RequestSample int    // one in so many of them
}

// Metrics says which series there are beside our own, and how many.
type Metrics struct {
	KafkaExporter, JMX bool
	MaxSeries          int
}

// Network are the limits of the Kafka listeners.
type Network struct {
	RequestMaxBytes     int   // longest request
	InFlightBytes       int64 // memory for requests on all connections; -1: choose
	FetchMaxBytes       int
	FetchSessions       int
	DescribePartitions  int // most partitions in one DescribeTopicPartitions answer
	MaxConnections      int
	MaxConnectionsPerIP int
	PerIPOverrides      map[string]int
	MaxConnectionRate   int           // new connections per second
	MaxIdle             time.Duration // negative: never closed
}

// Storage is what the engine is opened with.
type Storage struct {
	Fsync                 bool // false: durability "os"
	SyncDelay             time.Duration
	JournalFileBytes      int64
	JournalBytes          int64
	ReferenceThreshold    int
	ReserveBytes          int64
	Workers               int
	Repair                bool
	RetentionInterval     time.Duration
	CleanerBackoff        time.Duration
	CleanerMemoryBytes    int64
	ProducerExpiry        time.Duration
	ProducerExpiryCheck   time.Duration
	FinalTransactionLevel int16 // transaction.version of a new data directory
}

// TopicDefaults are what topics are created with. Settings of topics have their
// own defaults, see [NewTopic].
type TopicDefaults struct {
	Partitions        int32
	ReplicationFactor int16
	AutoCreate        bool
	DeleteEnabled     bool
}

// Groups are the settings of the group coordinator.
type Groups struct {
	OffsetsRetention      time.Duration
	OffsetsCheckInterval  time.Duration
	MetadataMaxBytes      int
	MinSessionTimeout     time.Duration
	MaxSessionTimeout     time.Duration
	InitialRebalanceDelay time.Duration
	MaxSize               int
}

// Transactions are the settings of the transaction coordinator.
type Transactions struct {
	MaxTimeout       time.Duration
	IDExpiration     time.Duration
	TimeoutCheck     time.Duration // how often open transactions are checked
	ExpirationCheck  time.Duration // how often idle ids are checked
	MoonMQTimeout    time.Duration // of transactions begun by MoonMQ clients
	MoonMQProducerID time.Duration // idle named producers are forgotten; 0 is never
}

// MoonMQLimits are the deadlines and limits of the MoonMQ listener.
type MoonMQLimits struct {
	MaxFrameBytes       int
	MaxPendingBytes     int
	MaxConnections      int
	MaxConnectionsPerIP int
	MaxTopics           int
	MaxGroups           int

	PreAuthReadDeadline time.Duration
	HandshakeDeadline   time.Duration
	IdleDeadline        time.Duration
	HeartbeatInterval   time.Duration
	HeartbeatMisses     int
	SendDeadline        time.Duration
	TLSHandshake        time.Duration

	TLSCertFile, TLSKeyFile, TLSCAFile string
	TLSVerify                          string // none, peer, required
	ChannelBinding                     string // preferred, required, disabled

	AuthMaxFailures   int
	AuthFailureWindow time.Duration
	AuthBan           time.Duration
	ScramIterations   int
}

// DeadLetters are the rules for records that no consumer can process.
type DeadLetters struct {
	MaxDeliveries int
	Suffix        string
	SkipOversize  bool // false: dead-letter what a MoonMQ client cannot read
}

// NewBroker parses the effective broker settings and checks the conditions
// between them. All problems are reported at once.
func NewBroker(v Values) (*Broker, error) {
	r := v.broker()
	b := &Broker{
		NodeID: int32(r.int("node.id")), Rack: r.text("broker.rack"), Strict: r.flag("perigee.strict"),
		Network: network(r), Storage: storage(r), Groups: groups(r), Transactions: transactions(r),
		MoonMQLimits: moonmqLimits(r), DeadLetters: deadLetters(r),
		Topics: TopicDefaults{
			Partitions:        int32(r.int("num.partitions")),
			ReplicationFactor: int16(min(r.int("default.replication.factor"), 1<<15-1)),
			AutoCreate:        r.flag("auto.create.topics.enable"),
			DeleteEnabled:     r.flag("delete.topic.enable"),
		},
		SuperUsers:           splitUsers(r.text("super.users")),
		AllowEveryoneIfNoACL: r.flag("allow.everyone.if.no.acl.found"),
		AllowOpen:            r.flag("perigee.allow.open"),
		Log:                  logSettings(r), Metrics: metrics(r),
		ShutdownTimeout: r.time("perigee.shutdown.timeout.ms"),
	}
	return b, errors.Join(b.placeListeners(r), b.placeData(r), b.check(r))
}

func (b *Broker) placeListeners(r reader) error {
	var errKafka, errTLS, errMoonMQ, errHTTP error
	b.Kafka, errKafka = kafkaListeners(r)
	b.TLS, errTLS = tlsSettings(r, b.Kafka)
	b.MoonMQ, errMoonMQ = optionalListener(r, "moonmq.listen")
	b.HTTP, errHTTP = optionalListener(r, "perigee.http.listen")
	return errors.Join(errKafka, errTLS, errMoonMQ, errHTTP)
}

func (b *Broker) placeData(r reader) error {
	dirs := r.list("log.dirs")
	if len(dirs) != 1 {
		return fmt.Errorf("log.dirs: %d directories given; Perigee uses exactly one", len(dirs))
	}
	b.DataDir = dirs[0]
	return nil
}

// check looks at conditions between settings.
func (b *Broker) check(r reader) error {
	var problems []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	refuse(b.Groups.MinSessionTimeout > b.Groups.MaxSessionTimeout,
		"group.min.session.timeout.ms is greater than group.max.session.timeout.ms")
	refuse(b.Network.MaxConnectionsPerIP == 0 && len(b.Network.PerIPOverrides) == 0,
		"max.connections.per.ip: 0 admits nobody without max.connections.per.ip.overrides")
	refuse(r.time("log.retention.ms") == 0, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	m := b.MoonMQLimits
	refuse((m.TLSCertFile == "") != (m.TLSKeyFile == ""), "moonmq.tls.cert.file and moonmq.tls.key.file need each other")
	refuse(m.TLSVerify != "none" && m.TLSCAFile == "", "moonmq.tls.verify: %s needs moonmq.tls.ca.file", m.TLSVerify)
	refuse(b.Strict && b.Topics.ReplicationFactor > 1, "default.replication.factor: one broker cannot keep %d copies", b.Topics.ReplicationFactor)
	return errors.Join(problems...)
}

// Open returns the listeners that other machines can reach and on which nobody
// has to prove who they are. They must be asked for with perigee.allow.open.
func (b *Broker) Open() []Listener {
	all := slices.Clone(b.Kafka)
	for _, l := range []*Listener{b.MoonMQ, b.HTTP} {
		if l != nil {
			all = append(all, *l)
		}
	}
	return slices.DeleteFunc(all, func(l Listener) bool { return l.Loopback() || l.TLS && b.TLS.ClientAuth == "required" })
}

func logSettings(r reader) Log {
	return Log{
		Level: r.text("perigee.log.level"), Format: r.text("perigee.log.format"), File: r.text("perigee.log.file"),
		Requests: r.text("perigee.log.requests"), RequestSample: r.int("perigee.log.requests.sample"),
	}
}

func metrics(r reader) Metrics {
	compat := r.list("perigee.metrics.compat")
	return Metrics{
		KafkaExporter: slices.Contains(compat, "kafka_exporter"), JMX: slices.Contains(compat, "jmx"),
		MaxSeries: r.int("perigee.metrics.max.series"),
	}
}

func network(r reader) Network {
	overrides, _ := parseIPCounts(r.text("max.connections.per.ip.overrides")) // checked by the key's rule
	return Network{
		RequestMaxBytes:     r.int("socket.request.max.bytes"),
		InFlightBytes:       r.int64("queued.max.request.bytes"),
		FetchMaxBytes:       r.int("fetch.max.bytes"),
		FetchSessions:       r.int("max.incremental.fetch.session.cache.slots"),
		DescribePartitions:  r.int("max.request.partition.size.limit"),
		MaxConnections:      r.int("max.connections"),
		MaxConnectionsPerIP: r.int("max.connections.per.ip"),
		PerIPOverrides:      overrides,
		MaxConnectionRate:   r.int("max.connection.creation.rate"),
		MaxIdle:             r.time("connections.max.idle.ms"),
	}
}

func storage(r reader) Storage {
	return Storage{
		Fsync:                 r.text("perigee.durability") == "fsync",
		SyncDelay:             r.time("perigee.debug.sync.delay.ms"),
		JournalFileBytes:      r.int64("perigee.journal.file.bytes"),
		JournalBytes:          r.int64("perigee.journal.bytes"),
		ReferenceThreshold:    r.int("perigee.journal.reference.threshold.bytes"),
		ReserveBytes:          r.int64("perigee.disk.reserve.bytes"),
		Workers:               r.int("perigee.storage.workers"),
		Repair:                r.flag("perigee.repair"),
		RetentionInterval:     r.time("log.retention.check.interval.ms"),
		CleanerBackoff:        r.time("log.cleaner.backoff.ms"),
		CleanerMemoryBytes:    r.int64("log.cleaner.dedupe.buffer.size"),
		ProducerExpiry:        r.time("producer.id.expiration.ms"),
		ProducerExpiryCheck:   r.time("producer.id.expiration.check.interval.ms"),
		FinalTransactionLevel: int16(r.int("perigee.transaction.version")),
	}
}

func groups(r reader) Groups {
	return Groups{
		OffsetsRetention:      r.time("perigee.offsets.retention.ms"),
		OffsetsCheckInterval:  r.time("offsets.retention.check.interval.ms"),
		MetadataMaxBytes:      r.int("offset.metadata.max.bytes"),
		MinSessionTimeout:     r.time("group.min.session.timeout.ms"),
		MaxSessionTimeout:     r.time("group.max.session.timeout.ms"),
		InitialRebalanceDelay: r.time("group.initial.rebalance.delay.ms"),
		MaxSize:               r.int("group.max.size"),
	}
}

func transactions(r reader) Transactions {
	t := Transactions{
		MaxTimeout:       r.time("transaction.max.timeout.ms"),
		IDExpiration:     r.time("transactional.id.expiration.ms"),
		TimeoutCheck:     r.time("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
		ExpirationCheck:  r.time("transaction.remove.expired.transaction.cleanup.interval.ms"),
		MoonMQTimeout:    r.time("moonmq.transaction.timeout.ms"),
		MoonMQProducerID: r.time("moonmq.producer.expiration.ms"),
	}
	if t.MoonMQTimeout == 0 {
		t.MoonMQTimeout = t.MaxTimeout
	}
	return t
}

func moonmqLimits(r reader) MoonMQLimits {
	return MoonMQLimits{
		MaxFrameBytes:       r.int("moonmq.max.frame.bytes"),
		MaxPendingBytes:     r.int("moonmq.max.pending.bytes"),
		MaxConnections:      r.int("moonmq.max.connections"),
		MaxConnectionsPerIP: r.int("moonmq.max.connections.per.ip"),
		MaxTopics:           r.int("moonmq.max.topics"),
		MaxGroups:           r.int("moonmq.max.groups"),
		PreAuthReadDeadline: r.time("moonmq.pre.auth.read.deadline.ms"),
		HandshakeDeadline:   r.time("moonmq.handshake.deadline.ms"),
		IdleDeadline:        r.time("moonmq.idle.deadline.ms"),
		HeartbeatInterval:   r.time("moonmq.heartbeat.interval.ms"),
		HeartbeatMisses:     r.int("moonmq.heartbeat.miss.threshold"),
		SendDeadline:        r.time("moonmq.send.deadline.ms"),
		TLSHandshake:        r.time("moonmq.tls.handshake.timeout.ms"),
		TLSCertFile:         r.text("moonmq.tls.cert.file"),
		TLSKeyFile:          r.text("moonmq.tls.key.file"),
		TLSCAFile:           r.text("moonmq.tls.ca.file"),
		TLSVerify:           r.text("moonmq.tls.verify"),
		ChannelBinding:      r.text("moonmq.channel.binding"),
		AuthMaxFailures:     r.int("moonmq.auth.max.failures"),
		AuthFailureWindow:   r.time("moonmq.auth.failure.window.ms"),
		AuthBan:             r.time("moonmq.auth.ban.duration.ms"),
		ScramIterations:     r.int("moonmq.scram.iterations"),
	}
}

func deadLetters(r reader) DeadLetters {
	return DeadLetters{
		MaxDeliveries: r.int("moonmq.max.deliveries"),
		Suffix:        r.text("moonmq.dlq.suffix"),
		SkipOversize:  r.text("moonmq.oversize") == "skip",
	}
}

// splitUsers reads Kafka's list of principals, which is separated by semicolons
// because distinguished names contain commas.
func splitUsers(text string) []string {
	var users []string
	for user := range strings.SplitSeq(text, ";") {
		if user = strings.TrimSpace(user); user != "" {
			users = append(users, user)
		}
	}
	return users
}
