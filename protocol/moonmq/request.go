package moonmq

// The requests, in the order of their ops. A field comment gives the limit a
// server applies, in bytes.

// Hello opens a connection.
type Hello struct{ Version uint32 }

// Auth is a plain login.
type Auth struct {
	Username string // ≤ MaxName
	Password string // ≤ MaxPassword
}

// KeyValue is a record on its way to the broker.
type KeyValue struct {
	Key   []byte // ≤ MaxString
	Value []byte // ≤ MaxString, never compressed on the wire
}

// Produce appends one record; the broker chooses the partition.
type Produce struct {
	Codec Codec
	Topic string // ≤ MaxTopicName
	KeyValue
	Headers Headers // Perigee extension, empty for every other client
}

// FetchFlags is the optional last byte of FETCH. Unknown bits are ignored.
type FetchFlags uint8

const (
	FetchBatched  FetchFlags = 1 << 0 // answer with RECORD_BATCH instead of RECORDs
	FetchNoCommit FetchFlags = 1 << 1 // Perigee extension: delivery does not commit
	FetchHeaders  FetchFlags = 1 << 2 // Perigee extension: records carry their headers
)

// Isolation is the optional isolation byte of FETCH and SUBSCRIBE: 1 is
// read_committed, everything else read_uncommitted.
type Isolation uint8

// Committed reports whether only committed records are wanted.
func (i Isolation) Committed() bool { return i == 1 }

// Trailers counts the optional bytes a request carried: older clients send
// fewer, and an encoder that repeats a request must send as many.
type Trailers uint8

// Fetch polls every topic the connection has named so far.
type Fetch struct {
	Topic      string // ≤ MaxTopicName
	Group      string // ≤ MaxName
	MaxRecords uint32
	Isolation  Isolation
	Flags      FetchFlags
	Trailers   Trailers // 0: neither isolation nor flags; 1: isolation; 2: both
}

// Subscribe asks for records to be pushed.
type Subscribe struct {
	Topic     string // ≤ MaxTopicName
	Group     string // ≤ MaxName
	Isolation Isolation
	Trailers  Trailers // 0 or 1
}

// Commit stores the next offset to read for the consumer's group.
type Commit struct {
	Topic     string // ≤ MaxTopicName
	Partition uint32
	Offset    uint64
}

// CreateTopic makes a topic.
type CreateTopic struct {
	Name       string // ≤ MaxTopicName
	Partitions uint32
}

// ListTopics, Goodbye, HeartbeatReq, HeartbeatResp, BeginTxn and ListGroups
// have no payload.
type (
	ListTopics    struct{}
	Goodbye       struct{}
	HeartbeatReq  struct{}
	HeartbeatResp struct{}
	BeginTxn      struct{}
	ListGroups    struct{}
)

// IdentifyClient names the client's software.
type IdentifyClient struct {
	Name    string // ≤ MaxClientName
	Version string // ≤ MaxClientVersion
}

// InitProducerID asks for a producer id; with a name it is a durable one.
type InitProducerID struct {
	Name    string // ≤ MaxName; "" for an id that lives as long as the connection
	Payload bool   // false: the old form without any payload, which means ""
}

// ProduceIdempotent is Produce with a sequence number per (pid, topic).
type ProduceIdempotent struct {
	PID   uint64
	Seq   uint32
	Epoch uint16
	Codec Codec
	Topic string // ≤ MaxTopicName
	KeyValue
	Headers Headers // Perigee extension
}

// JoinGroup makes the connection a member of a group.
type JoinGroup struct {
	Group  string   // ≤ MaxName
	Member string   // ≤ MaxName; "" lets the broker choose
	Topics []string // 1 to MaxJoinTopics, each ≤ MaxTopicName
}

// LeaveGroup ends the membership; the broker does not look at Member.
type LeaveGroup struct{ Group, Member string }

// GroupHeartbeat renews the membership; the broker does not look at Member.
type GroupHeartbeat struct{ Group, Member string }

// EndTxn commits or aborts the open transaction.
type EndTxn struct{ Commit bool }

// TxnOffset is one input offset of a transaction: the next to read.
type TxnOffset struct {
	Topic     string
	Partition uint32
	Offset    uint64
}

// TxnOffsetCommit commits input offsets with the open transaction.
type TxnOffsetCommit struct {
	Group   string      // ≤ MaxName
	Offsets []TxnOffset // ≤ MaxTxnOffsets
}

// Nack says that a delivered record could not be processed.
type Nack struct {
	Topic     string // ≤ MaxTopicName
	Partition uint32
	Offset    uint64 // the record's own
	Reason    string // ≤ MaxNackReason, required but may be empty
}

// BatchFlags is the first byte of PRODUCE_BATCH. Unknown bits are ignored.
type BatchFlags uint8

// BatchIdempotent says that pid, base sequence and epoch are present.
const BatchIdempotent BatchFlags = 1 << 0

// ProduceBatch appends several records of one topic.
type ProduceBatch struct {
	Flags   BatchFlags
	Codec   Codec
	Topic   string // ≤ MaxTopicName
	PID     uint64 // the three of them only with BatchIdempotent
	BaseSeq uint32
	Epoch   uint16
	Records []KeyValue // 1 to MaxBatchRecords
}

// Idempotent reports whether the batch carries sequence numbers.
func (m *ProduceBatch) Idempotent() bool { return m.Flags&BatchIdempotent != 0 }

// OffsetsMode selects what LIST_OFFSETS answers.
type OffsetsMode uint8

const (
	OffsetsBounds  OffsetsMode = 0
	OffsetsForTime OffsetsMode = 1 // bounds, and the first offset at or after Timestamp
)

// ListOffsets asks for the bounds of every partition of a topic.
type ListOffsets struct {
	Topic     string // ≤ MaxTopicName
	Mode      OffsetsMode
	Timestamp uint64   // milliseconds; only with OffsetsForTime
	Trailers  Trailers // 0: no mode byte; 1: mode, and the timestamp if it has one
}

// DeleteTopic, DescribeTopic name a topic.
type (
	DeleteTopic   struct{ Name string }
	DescribeTopic struct{ Name string }
)

// ConfigEntry is one setting of a topic, its value as text.
type ConfigEntry struct {
	Key   string // ≤ MaxConfigKey
	Value string // ≤ MaxConfigValue
}

// AlterTopicConfig sets some settings of a topic, all or none.
type AlterTopicConfig struct {
	Name   string        // ≤ MaxTopicName
	Config []ConfigEntry // ≤ MaxConfigEntries
}

// DescribeGroup, DeleteGroup name a group.
type (
	DescribeGroup struct{ Group string }
	DeleteGroup   struct{ Group string }
)

// AuthScram opens a SASL exchange.
type AuthScram struct {
	Mechanism string // ≤ MaxMechanism, matched without regard to case
	Message   string // ≤ MaxSASLMessage
}

// AuthScramFinal ends it.
type AuthScramFinal struct{ Message string } // ≤ MaxSASLMessage

// CreatePartitions grows a topic to Total partitions.
type CreatePartitions struct {
	Name  string // ≤ MaxTopicName
	Total uint32
}

func (*Hello) Op() Op             { return OpHello }
func (*Auth) Op() Op              { return OpAuth }
func (*Produce) Op() Op           { return OpProduce }
func (*Fetch) Op() Op             { return OpFetch }
func (*Subscribe) Op() Op         { return OpSubscribe }
func (*Commit) Op() Op            { return OpCommit }
func (*CreateTopic) Op() Op       { return OpCreateTopic }
func (*ListTopics) Op() Op        { return OpListTopics }
func (*Goodbye) Op() Op           { return OpGoodbye }
func (*HeartbeatReq) Op() Op      { return OpHeartbeatReq }
func (*HeartbeatResp) Op() Op     { return OpHeartbeatResp }
func (*IdentifyClient) Op() Op    { return OpIdentifyClient }
func (*InitProducerID) Op() Op    { return OpInitProducerID }
func (*ProduceIdempotent) Op() Op { return OpProduceIdempotent }
func (*JoinGroup) Op() Op         { return OpJoinGroup }
func (*LeaveGroup) Op() Op        { return OpLeaveGroup }
func (*GroupHeartbeat) Op() Op    { return OpGroupHeartbeat }
func (*BeginTxn) Op() Op          { return OpBeginTxn }
func (*EndTxn) Op() Op            { return OpEndTxn }
func (*TxnOffsetCommit) Op() Op   { return OpTxnOffsetCommit }
func (*Nack) Op() Op              { return OpNack }
func (*ProduceBatch) Op() Op      { return OpProduceBatch }
func (*ListOffsets) Op() Op       { return OpListOffsets }
func (*DeleteTopic) Op() Op       { return OpDeleteTopic }
func (*DescribeTopic) Op() Op     { return OpDescribeTopic }
func (*AlterTopicConfig) Op() Op  { return OpAlterTopicConfig }
func (*ListGroups) Op() Op        { return OpListGroups }
func (*DescribeGroup) Op() Op     { return OpDescribeGroup }
func (*DeleteGroup) Op() Op       { return OpDeleteGroup }
func (*AuthScram) Op() Op         { return OpAuthScram }
func (*AuthScramFinal) Op() Op    { return OpAuthScramFinal }
func (*CreatePartitions) Op() Op  { return OpCreatePartitions }
