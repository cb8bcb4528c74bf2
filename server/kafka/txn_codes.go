package kafka

import (
	"errors"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
)

// txnErrors maps what the transaction coordinator answers to the code of the
// newest request version.
var txnErrors = []struct {
	is   error
	code *kerr.Error
}{
	{txn.ErrInvalidRequest, kerr.InvalidRequest},
	{txn.ErrInvalidTimeout, kerr.InvalidTransactionTimeout},
	{txn.ErrFenced, kerr.ProducerFenced},
	{txn.ErrTimedOut, kerr.ProducerFenced}, // a session's word; a client that took over its id is fenced
	{txn.ErrMapping, kerr.InvalidProducerIDMapping},
	{txn.ErrInvalidState, kerr.InvalidTxnState},
	{txn.ErrConcurrent, kerr.ConcurrentTransactions},
	{txn.ErrNotEnrolled, kerr.TransactionAbortable},
	{txn.ErrNotFound, kerr.TransactionalIDNotFound},
	{coordinator.ErrControlBatch, kerr.InvalidRecord},
	{storage.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{storage.ErrStaleProducerEpoch, kerr.InvalidProducerEpoch},
	{storage.ErrInvalidTxnState, kerr.InvalidTxnState},
	{storage.ErrTxnNotOpen, kerr.InvalidTxnState},
	{storage.ErrStaleCoordinatorEpoch, kerr.TransactionCoordinatorFenced},
}

// everyVersion is above every version there is.
const everyVersion = math.MaxInt16

// txnTranslations say what a request version is told instead of a code it does
// not know, or that its clients take for something else. Two of them follow
// from how clients read a Produce answer and hold for every version: Produce
// never says PRODUCER_FENCED (the Java client would give up where it could
// abort), and to a version that does not know them, a coordinator that is busy
// is told as NOT_ENOUGH_REPLICAS, which every client retries.
var txnTranslations = []struct {
	key     kmsg.Key
	code    *kerr.Error
	below   int16 // first version that is told the code itself
	instead *kerr.Error
}{
	{kmsg.InitProducerID, kerr.ProducerFenced, 4, kerr.InvalidProducerEpoch},
	{kmsg.AddPartitionsToTxn, kerr.ProducerFenced, 2, kerr.InvalidProducerEpoch},
	{kmsg.AddOffsetsToTxn, kerr.ProducerFenced, 2, kerr.InvalidProducerEpoch},
	{kmsg.EndTxn, kerr.ProducerFenced, 2, kerr.InvalidProducerEpoch},
	{kmsg.TxnOffsetCommit, kerr.ProducerFenced, everyVersion, kerr.InvalidProducerEpoch},
	{kmsg.Produce, kerr.ProducerFenced, everyVersion, kerr.InvalidProducerEpoch},

	{kmsg.AddPartitionsToTxn, kerr.TransactionAbortable, 4, kerr.InvalidTxnState},
	{kmsg.AddOffsetsToTxn, kerr.TransactionAbortable, 4, kerr.InvalidTxnState},
	{kmsg.EndTxn, kerr.TransactionAbortable, 4, kerr.InvalidTxnState},
	{kmsg.TxnOffsetCommit, kerr.TransactionAbortable, 4, kerr.InvalidTxnState},
	{kmsg.Produce, kerr.TransactionAbortable, 11, kerr.InvalidTxnState},

	{kmsg.TxnOffsetCommit, kerr.CoordinatorLoadInProgress, 2, kerr.CoordinatorNotAvailable},
	{kmsg.Produce, kerr.CoordinatorLoadInProgress, everyVersion, kerr.NotEnoughReplicas},
	{kmsg.Produce, kerr.ConcurrentTransactions, 12, kerr.NotEnoughReplicas},
}

// transient are the engine's refusals that a transactional client is to retry
// at its coordinator. Requests that go to a partition have better words for
// them, in errors.go.
var transient = []error{storage.ErrStorageFull, storage.ErrPoisoned, storage.ErrPartitionOffline, storage.ErrClosed}

// txnCode is the code of an error in the answer to a transactional request, or
// to Produce, of the given version. 0 for nil.
func txnCode(key kmsg.Key, version int16, err error) int16 {
	if err == nil {
		return 0
	}
	return translateTxn(key, version, txnCodeOf(key, err))
}

// txnCodeOf is the code in the newest vocabulary.
func txnCodeOf(key kmsg.Key, err error) int16 {
	for _, row := range txnErrors {
		if errors.Is(err, row.is) {
			return row.code.Code
		}
	}
	if key != kmsg.Produce && key != kmsg.WriteTxnMarkers {
		for _, is := range transient {
			if errors.Is(err, is) {
				return kerr.CoordinatorNotAvailable.Code
			}
		}
	}
	return codeOf(err)
}

// translateTxn puts a code into the words of a request version.
func translateTxn(key kmsg.Key, version, code int16) int16 {
	for _, row := range txnTranslations {
		if row.key == key && row.code.Code == code && version < row.below {
			return row.instead.Code
		}
	}
	return code
}
