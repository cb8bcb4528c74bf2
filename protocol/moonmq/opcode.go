package moonmq

import "fmt"

// Version is the only protocol version there is.
const Version = 1

// Op is the one-byte operation of a frame. 0x01 to 0x7F come from clients,
// 0x80 to 0xFE from the server; the two heartbeats travel both ways. 0x09 and
// 0x85 belonged to an old ping and are never to be reused.
type Op uint8

const (
	OpHello             Op = 0x01
	OpAuth              Op = 0x02
	OpProduce           Op = 0x03
	OpFetch             Op = 0x04
	OpSubscribe         Op = 0x05
	OpCommit            Op = 0x06
	OpCreateTopic       Op = 0x07
	OpListTopics        Op = 0x08
	OpGoodbye           Op = 0x0A
	OpHeartbeatReq      Op = 0x0B
	OpHeartbeatResp     Op = 0x0C
	OpIdentifyClient    Op = 0x0D
	OpInitProducerID    Op = 0x0E
	OpProduceIdempotent Op = 0x0F
	OpJoinGroup         Op = 0x10
	OpLeaveGroup        Op = 0x11
	OpGroupHeartbeat    Op = 0x12
	OpBeginTxn          Op = 0x13
	OpEndTxn            Op = 0x14
	OpTxnOffsetCommit   Op = 0x15
	OpNack              Op = 0x16
	OpProduceBatch      Op = 0x17
	OpListOffsets       Op = 0x18
	OpDeleteTopic       Op = 0x19
	OpDescribeTopic     Op = 0x1A
	OpAlterTopicConfig  Op = 0x1B
	OpListGroups        Op = 0x1C
	OpDescribeGroup     Op = 0x1D
	OpDeleteGroup       Op = 0x1E
	OpAuthScram         Op = 0x1F
	OpAuthScramFinal    Op = 0x20
	OpCreatePartitions  Op = 0x21

	OpWelcome          Op = 0x80
	OpAuthOK           Op = 0x81
	OpProduceAck       Op = 0x82
	OpRecord           Op = 0x83
	OpTopicList        Op = 0x84
	OpOK               Op = 0x86
	OpIdentifyAck      Op = 0x87
	OpProducerID       Op = 0x88
	OpGroupAssignment  Op = 0x89
	OpNackAck          Op = 0x8A
	OpProduceBatchAck  Op = 0x8B
	OpRecordBatch      Op = 0x8C
	OpOffsets          Op = 0x8D
	OpTopicDescription Op = 0x8E
	OpGroupList        Op = 0x8F
	OpGroupDescription Op = 0x90
	OpAuthChallenge    Op = 0x91
	OpError            Op = 0xFE
)

var opNames = map[Op]string{
	OpHello: "HELLO", OpAuth: "AUTH", OpProduce: "PRODUCE", OpFetch: "FETCH",
	OpSubscribe: "SUBSCRIBE", OpCommit: "COMMIT", OpCreateTopic: "CREATE_TOPIC",
	OpListTopics: "LIST_TOPICS", OpGoodbye: "GOODBYE", OpHeartbeatReq: "HEARTBEAT_REQ",
	OpHeartbeatResp: "HEARTBEAT_RESP", OpIdentifyClient: "IDENTIFY_CLIENT",
	OpInitProducerID: "INIT_PRODUCER_ID", OpProduceIdempotent: "PRODUCE_IDEMPOTENT",
	OpJoinGroup: "JOIN_GROUP", OpLeaveGroup: "LEAVE_GROUP", OpGroupHeartbeat: "GROUP_HEARTBEAT",
	OpBeginTxn: "BEGIN_TXN", OpEndTxn: "END_TXN", OpTxnOffsetCommit: "TXN_OFFSET_COMMIT",
	OpNack: "NACK", OpProduceBatch: "PRODUCE_BATCH", OpListOffsets: "LIST_OFFSETS",
	OpDeleteTopic: "DELETE_TOPIC", OpDescribeTopic: "DESCRIBE_TOPIC",
	OpAlterTopicConfig: "ALTER_TOPIC_CONFIG", OpListGroups: "LIST_GROUPS",
	OpDescribeGroup: "DESCRIBE_GROUP", OpDeleteGroup: "DELETE_GROUP",
	OpAuthScram: "AUTH_SCRAM", OpAuthScramFinal: "AUTH_SCRAM_FINAL",
	OpCreatePartitions: "CREATE_PARTITIONS",

	OpWelcome: "WELCOME", OpAuthOK: "AUTH_OK", OpProduceAck: "PRODUCE_ACK", OpRecord: "RECORD",
	OpTopicList: "TOPIC_LIST", OpOK: "OK", OpIdentifyAck: "IDENTIFY_ACK",
	OpProducerID: "PRODUCER_ID", OpGroupAssignment: "GROUP_ASSIGNMENT", OpNackAck: "NACK_ACK",
	OpProduceBatchAck: "PRODUCE_BATCH_ACK", OpRecordBatch: "RECORD_BATCH", OpOffsets: "OFFSETS",
	OpTopicDescription: "TOPIC_DESCRIPTION", OpGroupList: "GROUP_LIST",
	OpGroupDescription: "GROUP_DESCRIPTION", OpAuthChallenge: "AUTH_CHALLENGE", OpError: "ERROR",
}

// String is the name in the protocol's documents, or the number of an op that
// has none.
func (o Op) String() string {
	if s, ok := opNames[o]; ok {
		return s
	}
	return o.Hex()
}

// Hex prints the op as error texts do: "0x0F".
func (o Op) Hex() string { return fmt.Sprintf("0x%02X", uint8(o)) }

// Code is the number in an ERROR frame. Clients of this protocol show their
// application the text and drop the number, so the text matters as much.
type Code uint16

const (
	BadFrame                Code = 1
	UnknownOp               Code = 2
	NotAuthed               Code = 3 // never sent
	AuthFailed              Code = 4 // always ends the connection
	TopicMissing            Code = 5
	RateLimited             Code = 6
	Internal                Code = 7
	BadProtocol             Code = 8
	FrameTooLarge           Code = 9 // always ends the connection
	NoProducerID            Code = 10
	OutOfOrderSequence      Code = 11
	GroupMemberUnknown      Code = 12
	GroupConflict           Code = 13
	BatchTooLarge           Code = 14
	GroupMissing            Code = 15
	GroupNotEmpty           Code = 16
	InvalidConfig           Code = 17
	TopicForbidden          Code = 18
	NotAuthorized           Code = 19
	NotLeader               Code = 20
	InvalidPartitions       Code = 21
	ProducerFenced          Code = 50
	InvalidTxnState         Code = 51
	TransactionTimedOut     Code = 52 // Perigee sends it; the original only reserved it
	OffsetsOutOfRangeForTxn Code = 53 // never sent
)

var codeNames = map[Code]string{
	BadFrame: "BAD_FRAME", UnknownOp: "UNKNOWN_OP", NotAuthed: "NOT_AUTHED",
	AuthFailed: "AUTH_FAILED", TopicMissing: "TOPIC_MISSING", RateLimited: "RATE_LIMITED",
	Internal: "INTERNAL", BadProtocol: "BAD_PROTOCOL", FrameTooLarge: "FRAME_TOO_LARGE",
	NoProducerID: "NO_PRODUCER_ID", OutOfOrderSequence: "OUT_OF_ORDER_SEQUENCE",
	GroupMemberUnknown: "GROUP_MEMBER_UNKNOWN", GroupConflict: "GROUP_CONFLICT",
	BatchTooLarge: "BATCH_TOO_LARGE", GroupMissing: "GROUP_MISSING",
	GroupNotEmpty: "GROUP_NOT_EMPTY", InvalidConfig: "INVALID_CONFIG",
	TopicForbidden: "TOPIC_FORBIDDEN", NotAuthorized: "NOT_AUTHORIZED", NotLeader: "NOT_LEADER",
	InvalidPartitions: "INVALID_PARTITIONS", ProducerFenced: "PRODUCER_FENCED",
	InvalidTxnState: "INVALID_TXN_STATE", TransactionTimedOut: "TRANSACTION_TIMED_OUT",
	OffsetsOutOfRangeForTxn: "OFFSETS_OUT_OF_RANGE_FOR_TXN",
}

// String is the name in the protocol's documents.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// Codec is how a record's value is to be stored. The value itself always
// travels uncompressed, in both directions.
type Codec uint8

const (
	CodecNone   Codec = 0
	CodecGzip   Codec = 1
	CodecSnappy Codec = 2
)

// String is the name used in error texts.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	}
	return fmt.Sprintf("unknown(%d)", uint8(c))
}
