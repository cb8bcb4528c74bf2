package txn

import "errors"

// What a command can be refused with. The front ends translate; the comments
// name the code of Kafka's newest request versions.
var (
	// ErrInvalidRequest: the request contradicts itself. INVALID_REQUEST.
	ErrInvalidRequest = errors.New("transactional request is malformed")
	// ErrInvalidTimeout: not positive or above the broker's maximum. INVALID_TRANSACTION_TIMEOUT.
	ErrInvalidTimeout = errors.New("transaction timeout is out of range")
	// ErrFenced: someone newer owns the transactional id. PRODUCER_FENCED, on data INVALID_PRODUCER_EPOCH.
	ErrFenced = errors.New("producer is fenced by a newer epoch")
	// ErrMapping: the transactional id is unknown or belongs to another producer id. INVALID_PRODUCER_ID_MAPPING.
	ErrMapping = errors.New("producer id does not belong to the transactional id")
	// ErrInvalidState: the transaction cannot do that from where it is. INVALID_TXN_STATE.
	ErrInvalidState = errors.New("transaction is not in a state that allows this")
	// ErrConcurrent: an end is being carried out, try again. CONCURRENT_TRANSACTIONS.
	ErrConcurrent = errors.New("transaction is being completed")
	// ErrNotEnrolled: the partition is not part of the ongoing transaction; only an abort helps. TRANSACTION_ABORTABLE.
	ErrNotEnrolled = errors.New("partition is not part of the transaction")
	// ErrNotFound: no such transactional id. TRANSACTIONAL_ID_NOT_FOUND.
	ErrNotFound = errors.New("transactional id does not exist")
	// ErrTimedOut: the coordinator aborted this session's transaction because it took too long.
	// Only sessions see it; a Kafka producer sees ErrFenced.
	ErrTimedOut = errors.New("transaction timed out and was aborted")
)
