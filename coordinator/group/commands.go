package group

import (
	"time"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// Command is what a Machine can be asked. Commands own their bytes: nothing in
// them may alias a request buffer.
type Command interface {
	decide(m *Machine, now time.Time) decision
}

type decision = machine.Decision[Fact]

// Protocol is one way of sharing partitions a member offers, best first.
type Protocol struct {
	Name     string
	Metadata []byte // opaque; a consumer's subscription
}

// JoinGroup asks for a place in the next generation. The answer comes when the
// group has gathered its members.
type JoinGroup struct {
	Group      string
	Member     string // "" for a new member
	NewMember  string // the id a new member gets
	Instance   string // static membership (KIP-345); "" for a dynamic member
	ClientID   string
	ClientHost string

	ProtocolType     string
	Protocols        []Protocol
	SessionTimeout   time.Duration
	RebalanceTimeout time.Duration

	RequireKnownMember bool // refuse a new dynamic member with MemberIDRequired
	CanSkipAssignment  bool // a replaced static leader may be told to skip its assignment (KIP-814)

	Reply *machine.Promise[JoinResult]
}

// JoinResult is a member's view of the new generation.
type JoinResult struct {
	Member         string
	Generation     int32
	ProtocolType   string
	Protocol       string
	Leader         string
	Members        []JoinedMember // for the leader only
	SkipAssignment bool
}

// JoinedMember is what the leader needs to know of a member.
type JoinedMember struct {
	ID       string
	Instance string
	Metadata []byte // of the selected protocol
}

// SyncGroup asks for the member's assignment; the leader brings everyone's.
type SyncGroup struct {
	Group        string
	Caller       Caller
	ProtocolType string // "" when the client does not say
	Protocol     string // the same
	Assignments  map[string][]byte
	Reply        *machine.Promise[SyncResult]
}

// SyncResult is a member's assignment.
type SyncResult struct {
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// Caller says on whose behalf a command speaks.
type Caller struct {
	Member     string
	Instance   string
	Generation int32 // -1: none
	// Unchecked skips the membership checks: the MoonMQ front end has its own
	// rules, and knows its members by connection.
	Unchecked bool
}

// Anonymous is the caller that claims no membership: an administrator, or a
// consumer that assigns itself.
var Anonymous = Caller{Generation: -1}

func (c Caller) anonymous() bool { return c.Generation < 0 && c.Member == "" && c.Instance == "" }

// Heartbeat renews a member's session.
type Heartbeat struct {
	Group  string
	Caller Caller
	Reply  *machine.Promise[struct{}]
}

// LeaveGroup removes members.
type LeaveGroup struct {
	Group   string
	Members []Leaving
	Reply   *machine.Promise[[]error] // one for each of Members
}

// Leaving names a member: by id, or a static one by instance alone.
type Leaving struct {
	Member   string
	Instance string
}

// Attach joins a MoonMQ member at once, or renews its membership.
type Attach struct {
	Group    string
	Member   string
	ClientID string
	Host     string
	Topics   []string
	Session  time.Duration
	Reply    *machine.Promise[struct{}]
}

// CommitOffsets stores how far a group has read.
type CommitOffsets struct {
	Group     string
	Caller    Caller
	Retention time.Duration // how long to keep the offsets; zero or less: the broker's default
	Offsets   []Commit
	// Producer commits inside its transaction: the offsets are pending until its marker.
	Producer *model.ProducerIdentity
	Reply    *machine.Promise[[]error] // one for each of Offsets
}

// Commit is one partition's position.
type Commit struct {
	Topic       string
	TopicID     model.TopicID // zero if unknown
	Partition   int32
	Offset      model.Offset // the next to read
	LeaderEpoch model.LeaderEpoch
	Metadata    string
}

// FetchOffsets asks for committed offsets. A group that does not exist has none.
type FetchOffsets struct {
	Group      string
	Partitions []PartitionOf // nil: every partition with a committed offset
	Stable     bool          // report partitions with a pending transactional offset as ErrUnstableOffset (KIP-447)
	Reply      *machine.Promise[[]Committed]
}

// PartitionOf names a partition as clients do.
type PartitionOf struct {
	Topic     string
	TopicID   model.TopicID // the topic's current id; zero: do not compare
	Partition int32
}

// Committed answers for one partition. Offset is model.NoOffset if there is none.
type Committed struct {
	PartitionOf
	Offset      model.Offset
	LeaderEpoch model.LeaderEpoch
	Metadata    string
	CommitTime  time.Time
	Err         error // nil or ErrUnstableOffset
}

// DeleteOffsets forgets committed offsets of topics no member reads (KIP-496).
type DeleteOffsets struct {
	Group      string
	Partitions []PartitionOf
	Reply      *machine.Promise[[]error] // one for each of Partitions
}

// DropTopic forgets everything about a deleted topic, in all groups.
type DropTopic struct {
	Topic string
	ID    model.TopicID // offsets known to belong to another id are kept
	Reply *machine.Promise[struct{}]
}

// DeleteGroup removes an empty group with its offsets.
type DeleteGroup struct {
	Group string
	Reply *machine.Promise[struct{}]
}

// DescribeGroup asks what a group looks like.
type DescribeGroup struct {
	Group string
	Reply *machine.Promise[Description]
}

// Description is a group seen from outside.
type Description struct {
	ID           string
	State        State
	ProtocolType string // "" for a group that only stores offsets
	Protocol     string // selected; "" unless Stable
	Generation   int32
	Members      []Member // in the order they joined
}

// Member is a group member seen from outside.
type Member struct {
	ID         string
	Instance   string
	ClientID   string
	ClientHost string
	Metadata   []byte   // only in a Stable group
	Assignment []byte   // while the group rebalances, what the member has held until then
	Topics     []string // of MoonMQ members
}

// ListGroups asks for all groups of the shard.
type ListGroups struct {
	Reply *machine.Promise[[]Listing]
}

// Listing is a line of the list.
type Listing struct {
	ID           string
	ProtocolType string
	State        State
	Members      int
}

// Nack says that a record could not be processed.
type Nack struct {
	Group      string
	Caller     Caller
	Partition  PartitionOf // with the topic's id
	Offset     model.Offset
	Deliveries int32 // how many failures make a record dead; at least 1
	Reply      *machine.Promise[Verdict]
}

// Verdict is what becomes of the record.
type Verdict struct {
	Attempts int32
	// Dead: the record is in the dead-letter topic. Otherwise the group's
	// position went back so that it is delivered again.
	Dead bool
	// Next is the group's committed offset after the decision.
	Next model.Offset
}

// DeadLetter is the effect of a Nack that was one too many: the record has to be
// appended to the dead-letter topic in the same entry.
type DeadLetter struct {
	Group     string
	Partition PartitionOf
	Offset    model.Offset
	Attempts  int32
}
