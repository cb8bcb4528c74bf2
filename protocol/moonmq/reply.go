package moonmq

// The replies, in the order of their ops. A field comment gives the limit at
// which the Lua client gives up on the whole call.

// Welcome answers Hello.
type Welcome struct{ Version uint32 }

// AuthOK ends a login. Message is SCRAM's server-final and absent when empty.
type AuthOK struct{ Message string }

// ProduceAck says where a record is.
type ProduceAck struct {
	Partition uint32
	Offset    uint64
}

// Record is a delivered record: the answer to a Fetch that is not batched, or
// pushed with the zero correlation id.
type Record struct {
	Topic     string // ≤ MaxTopicName
	Partition uint32
	Offset    uint64
	Timestamp uint64 // milliseconds
	Key       []byte // ≤ MaxString
	Value     []byte // ≤ MaxString
	Headers   Headers
	// WithHeaders says that the block is present, even when it is empty. Only
	// for clients that asked.
	WithHeaders bool
}

// RecordBatch is the answer to a batched Fetch. WithHeaders applies to every
// record, whatever their own field says.
type RecordBatch struct {
	Records     []Record // ≤ MaxBatchRecords
	WithHeaders bool
}

// TopicList answers ListTopics.
type TopicList struct{ Names []string }

// OK has no payload. It also ends every Fetch.
type OK struct{}

// IdentifyAck answers IdentifyClient.
type IdentifyAck struct{ Name, Version string }

// ProducerID answers InitProducerID.
type ProducerID struct {
	PID   uint64
	Epoch uint16
}

// TopicAssignment is the partitions a group member reads of one topic, perhaps
// none.
type TopicAssignment struct {
	Topic      string   // ≤ MaxTopicName
	Partitions []uint32 // ≤ MaxPartitions
}

// GroupAssignment answers JoinGroup; topics are sorted bytewise.
type GroupAssignment struct {
	Member string // ≤ MaxName
	Topics []TopicAssignment
}

// NackAck answers Nack.
type NackAck struct {
	DeadLettered bool
	Attempts     uint16
	Topic        string // the dead-letter topic, when DeadLettered
}

// ProduceBatchAck answers ProduceBatch. Acks are a prefix of the request; Code
// is 0 when they are all of it.
type ProduceBatchAck struct {
	Acks    []ProduceAck // 1 to MaxBatchRecords
	Code    Code
	Message string
}

// OffsetsFlags qualify the bounds of a partition. A broker that does not know a
// bound sends the latest offset with the bit clear.
type OffsetsFlags uint8

const (
	OffsetsHighKnown OffsetsFlags = 1 << 0
	OffsetsLSOKnown  OffsetsFlags = 1 << 1
	OffsetsServed    OffsetsFlags = 1 << 2 // this broker serves the partition
)

// PartitionOffsets are the bounds of one partition.
type PartitionOffsets struct {
	Partition     uint32
	Earliest      uint64
	Latest        uint64 // the offset the next record gets
	HighWatermark uint64
	LSO           uint64
	Flags         OffsetsFlags
}

// TimeOffset is the first offset at or after a timestamp, or the latest when
// there is none.
type TimeOffset struct {
	Partition uint32
	Offset    uint64
	Found     bool
}

// Offsets answers ListOffsets. ForTimes is present, even if empty, only after
// a request with OffsetsForTime.
type Offsets struct {
	Bounds    []PartitionOffsets // ≤ MaxPartitions
	WithTimes bool
	ForTimes  []TimeOffset
}

// TopicDescription answers DescribeTopic: the settings that were set, by key.
type TopicDescription struct {
	Name       string // ≤ MaxTopicName
	Partitions uint32
	Config     []ConfigEntry // ≤ MaxConfigEntries
}

// GroupState is "stable" for a group with members and "empty" without.
type GroupState string

const (
	GroupStable GroupState = "stable"
	GroupEmpty  GroupState = "empty"
)

// ListedGroup is a line of GroupList.
type ListedGroup struct {
	Group   string     // ≤ MaxName
	State   GroupState // ≤ MaxName
	Members uint32
}

// GroupList answers ListGroups, sorted by group id.
type GroupList struct{ Groups []ListedGroup } // ≤ MaxListedGroups

// CommittedOffset is the next offset a group reads.
type CommittedOffset struct {
	Topic     string // ≤ MaxTopicName
	Partition uint32
	Offset    uint64
}

// GroupDescription answers DescribeGroup: members by id, their topics by name,
// offsets by topic and partition.
type GroupDescription struct {
	Group   string
	State   GroupState
	Members []GroupAssignment // ≤ MaxListedMembers, each ≤ MaxJoinTopics topics
	Offsets []CommittedOffset // ≤ MaxListedOffsets
}

// AuthChallenge is SCRAM's server-first.
type AuthChallenge struct{ Message string } // ≤ MaxSASLMessage

// Error refuses a request, or, with the zero correlation id, ends the
// connection.
type Error struct {
	Code    Code
	Message string
}

func (*Welcome) Op() Op          { return OpWelcome }
func (*AuthOK) Op() Op           { return OpAuthOK }
func (*ProduceAck) Op() Op       { return OpProduceAck }
func (*Record) Op() Op           { return OpRecord }
func (*TopicList) Op() Op        { return OpTopicList }
func (*OK) Op() Op               { return OpOK }
func (*IdentifyAck) Op() Op      { return OpIdentifyAck }
func (*ProducerID) Op() Op       { return OpProducerID }
func (*GroupAssignment) Op() Op  { return OpGroupAssignment }
func (*NackAck) Op() Op          { return OpNackAck }
func (*ProduceBatchAck) Op() Op  { return OpProduceBatchAck }
func (*RecordBatch) Op() Op      { return OpRecordBatch }
func (*Offsets) Op() Op          { return OpOffsets }
func (*TopicDescription) Op() Op { return OpTopicDescription }
func (*GroupList) Op() Op        { return OpGroupList }
func (*GroupDescription) Op() Op { return OpGroupDescription }
func (*AuthChallenge) Op() Op    { return OpAuthChallenge }
func (*Error) Op() Op            { return OpError }

// Error makes a refusal usable as a Go error.
func (m *Error) Error() string { return m.Message }
