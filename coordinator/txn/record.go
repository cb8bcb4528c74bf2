package txn

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// State of a transactional id. The numbers are those of Kafka's schema.
type State int8

const (
	Empty          State = 0
	Ongoing        State = 1
	PrepareCommit  State = 2
	PrepareAbort   State = 3
	CompleteCommit State = 4
	CompleteAbort  State = 5
	Dead           State = 6 // written by Kafka beside a tombstone; never ours
	EpochFence     State = 7 // Kafka's in-memory step before PrepareAbort; never stored
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

// String is the state's name on the wire of DescribeTransactions and ListTransactions.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "Unknown"
	}
	return stateNames[s]
}

// ParseState reads what String prints; the name a filter of ListTransactions holds.
func ParseState(name string) (State, bool) {
	i := slices.Index(stateNames[:], name)
	return State(i), i >= 0
}

// preparing reports whether an end is decided and its markers are still missing.
func (s State) preparing() bool { return s == PrepareCommit || s == PrepareAbort }

// Version is the transaction protocol a client speaks.
type Version int16

const (
	V0 Version = 0 // explicit enrolment, epoch kept
	V1 Version = 1 // as V0 for a client; the level at which records are flexible
	V2 Version = 2 // implicit enrolment, epoch bumped by every end (KIP-890)
)

// Owner says whose transactional id this is at the moment.
type Owner int8

const (
	// Client is a Kafka producer. It may go away and come back, so its
	// transaction survives a restart of the broker until it times out.
	Client Owner = 0
	// Session is a MoonMQ connection. It dies with the broker, so recovery
	// aborts what it left; its epoch stays from Init to Init.
	Session Owner = 1
)

// NoTimeout is a transaction that never times out. Kafka writes it for KIP-939
// participants; no client can ask for it here.
const NoTimeout = math.MaxInt32 * time.Millisecond

// Participant is a partition enrolled in a transaction. The id identifies; the
// name is what Kafka's schema and the describing requests show.
type Participant struct {
	model.TopicPartition
	Name string
}

func compareParticipants(a, b Participant) int {
	return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}

// Record is everything the coordinator knows about one transactional id.
type Record struct {
	ID       string
	Producer model.ProducerIdentity // who may use the id now

	// LastEpoch is the epoch before the last bump that its holder may not have
	// heard of: presented again, it is answered with Producer. -1 when the bump
	// was meant to fence the holder.
	LastEpoch model.ProducerEpoch
	PrevID    model.ProducerID // producer id before a rotation, -1
	NextID    model.ProducerID // producer id after the end being carried out, -1

	Timeout    time.Duration // whole milliseconds
	State      State
	Partitions []Participant // sorted, without repetition; only while Ongoing or preparing
	Start      model.Timestamp
	Updated    model.Timestamp
	Version    Version // of whoever enrolled or ended last
	Owner      Owner

	// TimedOut marks that a timeout ended the session's last transaction. It
	// lives in memory only, as sessions do.
	TimedOut bool
}

// exhausted reports whether the producer id has no epoch left to give.
func (r Record) exhausted() bool { return r.Producer.Epoch >= model.MaxClientEpoch }

// has reports whether a partition is enrolled.
func (r Record) has(p Participant) bool {
	_, found := slices.BinarySearchFunc(r.Partitions, p, compareParticipants)
	return found
}

// Uses reports whether a partition is part of the ongoing transaction of a
// producer: what the producer has open there is this transaction's.
func (r Record) Uses(tp model.TopicPartition, p model.ProducerIdentity) bool {
	return r.State == Ongoing && r.Producer == p && r.has(Participant{TopicPartition: tp})
}

// union returns the enrolled partitions with more, and whether that added any.
// It copies; the record's own slice is shared with facts already written.
func (r Record) union(more []Participant) ([]Participant, bool) {
	fresh := slices.DeleteFunc(slices.Clone(more), r.has)
	if len(fresh) == 0 {
		return r.Partitions, false
	}
	all := slices.Concat(r.Partitions, fresh)
	slices.SortFunc(all, compareParticipants)
	return slices.CompactFunc(all, func(a, b Participant) bool { return a.TopicPartition == b.TopicPartition }), true
}

// millis converts the machine's clock to the record's.
func millis(t time.Time) model.Timestamp { return model.Timestamp(t.UnixMilli()) }
