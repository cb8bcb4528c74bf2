package model

// ProducerID identifies an idempotent or transactional producer. Ids are never
// reused, not even across restarts.
type ProducerID int64

// NoProducerID marks records of a producer without idempotence.
const NoProducerID ProducerID = -1

// ProducerEpoch fences older incarnations of one ProducerID. Clients use
// 0 to 32766; 32767 appears only in markers the coordinator writes itself.
type ProducerEpoch int16

// NoProducerEpoch goes with NoProducerID.
const NoProducerEpoch ProducerEpoch = -1

// MaxClientEpoch is the largest epoch a client may be given.
const MaxClientEpoch ProducerEpoch = 32766

// Sequence numbers the records of one producer on one partition, from 0,
// wrapping to 0 after 2147483647.
type Sequence int32

// NoSequence marks batches outside idempotence, control batches among them.
const NoSequence Sequence = -1

// Add returns the sequence n records later, wrapping as Kafka does.
func (s Sequence) Add(n int32) Sequence {
	return Sequence((int64(s) + int64(n)) & 0x7fffffff)
}

// ProducerIdentity is a producer id with its epoch.
type ProducerIdentity struct {
	ID    ProducerID
	Epoch ProducerEpoch
}
