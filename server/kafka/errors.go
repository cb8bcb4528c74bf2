package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
)

// codes maps domain errors to Kafka codes; nowhere else does one become the
// other. A transactional API's code may then be translated for its version by
// txn_codes.go, which also has the transaction coordinator's own errors.
//
// The first match wins, so a special error stands above the one it wraps.
var codes = []struct {
	is   error
	code *kerr.Error
}{
	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut}, // the connection ends; nobody reads the answer

	// The engine. Retriable ones say so: a full disk may be emptied, a closing
	// broker comes back. A poisoned journal is an unknown outcome, so it must not
	// be told as a refusal either.
	{storage.ErrPartitionDeleted, kerr.UnknownTopicOrPartition},
	{storage.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{storage.ErrStaleLeaderEpoch, kerr.NotLeaderForPartition},
	{storage.ErrClosed, kerr.NotLeaderForPartition},
	{storage.ErrPartitionOffline, kerr.KafkaStorageError},
	{storage.ErrStorageFull, kerr.KafkaStorageError},
	{storage.ErrPoisoned, kerr.KafkaStorageError},

	// Batches a producer sent. What a client would retry for ever is not told as
	// CORRUPT_MESSAGE: only bytes that changed on the way are.
	{batch.ErrCorrupt, kerr.CorruptMessage},
	{batch.ErrTruncated, kerr.InvalidRecord}, // as Kafka: a client would send CORRUPT_MESSAGE again for ever
	{batch.ErrTooLarge, kerr.MessageTooLarge},
	{batch.ErrDecompressedTooLarge, kerr.MessageTooLarge},
	{batch.ErrTimestamp, kerr.InvalidTimestamp},
	{batch.ErrCodec, kerr.UnsupportedCompressionType},
	{batch.ErrMessageSet, kerr.UnsupportedForMessageFormat},
	{batch.ErrMagic, kerr.InvalidRecord},
	{batch.ErrBatchCount, kerr.InvalidRecord},
	{batch.ErrReserved, kerr.InvalidRecord},
	{batch.ErrProducer, kerr.InvalidRecord},
	{batch.ErrKeyRequired, kerr.InvalidRecord},
	{batch.ErrCounts, kerr.InvalidRecord},
	{batch.ErrRecord, kerr.InvalidRecord},
	{batch.ErrEmpty, kerr.InvalidRecord},
	{batch.ErrDecompress, kerr.InvalidRecord},

	// The catalog.
	{catalog.ErrTopicExists, kerr.TopicAlreadyExists},
	{catalog.ErrUnknownTopic, kerr.UnknownTopicOrPartition},
	{catalog.ErrUnknownTopicID, kerr.UnknownTopicID},
	{catalog.ErrInvalidTopicName, kerr.InvalidTopicException},
	{catalog.ErrInvalidPartitions, kerr.InvalidPartitions},
	{catalog.ErrInvalidReplicationFactor, kerr.InvalidReplicationFactor},
	{catalog.ErrInvalidReplicaAssignment, kerr.InvalidReplicaAssignment},
	{catalog.ErrPolicy, kerr.PolicyViolation},
	{catalog.ErrInvalidConfig, kerr.InvalidConfig},
	{catalog.ErrInvalidRequest, kerr.InvalidRequest},
	{catalog.ErrInternalTopic, kerr.InvalidRequest},
	{catalog.ErrDeletionDisabled, kerr.TopicDeletionDisabled},
	{catalog.ErrInvalidUpdateVersion, kerr.InvalidUpdateVersion},
	{catalog.ErrFeatureUpdateFailed, kerr.FeatureUpdateFailed},
	{catalog.ErrUnacceptableCredential, kerr.UnacceptableCredential},
	{catalog.ErrResourceNotFound, kerr.ResourceNotFound},
	{errUnsupportedMechanism, kerr.UnsupportedSaslMechanism},
	{errDuplicateResource, kerr.DuplicateResource},
	{catalog.ErrProducerIDsExhausted, kerr.UnknownServerError},

	// Groups.
	{group.ErrInvalidGroupID, kerr.InvalidGroupID},
	{group.ErrGroupNotFound, kerr.GroupIDNotFound},
	{group.ErrNonEmptyGroup, kerr.NonEmptyGroup},
	{group.ErrUnknownMember, kerr.UnknownMemberID},
	{group.ErrFencedInstance, kerr.FencedInstanceID},
	{group.ErrIllegalGeneration, kerr.IllegalGeneration},
	{group.ErrRebalanceInProgress, kerr.RebalanceInProgress},
	{group.ErrInconsistentProtocol, kerr.InconsistentGroupProtocol},
	{group.ErrInvalidSessionTimeout, kerr.InvalidSessionTimeout},
	{group.ErrGroupFull, kerr.GroupMaxSizeReached},
	{group.ErrMetadataTooLarge, kerr.OffsetMetadataTooLarge},
	{group.ErrUnstableOffset, kerr.UnstableOffsetCommit},
	{group.ErrSubscribedToTopic, kerr.GroupSubscribedToTopic},
	{group.ErrInvalidCommand, kerr.InvalidRequest},
}

// codeOf returns the code of a domain error, 0 for nil. An error the table does
// not know is a bug of ours and becomes UNKNOWN_SERVER_ERROR.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	for _, row := range codes {
		if errors.Is(err, row.is) {
			return row.code.Code
		}
	}
	if _, corrupt := errors.AsType[*storage.CorruptionError](err); corrupt {
		return kerr.KafkaStorageError.Code
	}
	return kerr.UnknownServerError.Code
}
