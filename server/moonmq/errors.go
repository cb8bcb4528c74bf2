package moonmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/coordinator/txn"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/storage"
)

// codes maps domain errors to this protocol's; nowhere else does one become the
// other. The first match wins. An empty text is the error's own. Handlers that
// know more words (which topic, which epoch) answer themselves and do not come
// here with such an error.
var codes = []struct {
	is   error
	code wire.Code
	text string
}{
	{txn.ErrFenced, wire.ProducerFenced, "producer fenced"},
	{txn.ErrMapping, wire.ProducerFenced, "producer fenced"},
	{txn.ErrTimedOut, wire.TransactionTimedOut, "transaction timed out and was aborted"},
	{txn.ErrInvalidState, wire.InvalidTxnState, "no transaction in progress"},
	{txn.ErrNotEnrolled, wire.InvalidTxnState, ""},
	{txn.ErrConcurrent, wire.InvalidTxnState, "transaction is prepared and not yet complete; retry END_TXN"},
	{storage.ErrStaleProducerEpoch, wire.ProducerFenced, "producer fenced"},
	{storage.ErrOutOfOrderSequence, wire.OutOfOrderSequence, ""},
	{coordinator.ErrMemoLost, wire.OutOfOrderSequence, ""},

	{catalog.ErrUnknownTopic, wire.TopicMissing, ""},
	{catalog.ErrUnknownTopicID, wire.TopicMissing, ""},
	{storage.ErrPartitionDeleted, wire.TopicMissing, "topic was deleted"},
	{catalog.ErrInvalidConfig, wire.InvalidConfig, ""},
	{catalog.ErrInvalidPartitions, wire.InvalidPartitions, ""},
	{catalog.ErrInternalTopic, wire.TopicForbidden, ""},

	{group.ErrUnknownMember, wire.GroupMemberUnknown, "not a member of this group"},
	{group.ErrGroupNotFound, wire.GroupMissing, ""},
	{group.ErrNonEmptyGroup, wire.GroupNotEmpty, ""},
	{group.ErrInconsistentProtocol, wire.GroupConflict, "group is in use by consumers of another protocol"},
	{group.ErrIllegalGeneration, wire.GroupConflict, "group is in use by consumers of another protocol"},
	{group.ErrRebalanceInProgress, wire.GroupConflict, "group is in use by consumers of another protocol"},
	{group.ErrGroupFull, wire.RateLimited, ""},
	{deadletter.ErrTopicName, wire.Internal, ""},
	{storage.ErrStorageFull, wire.Internal, "storage is full"},
	{context.Canceled, wire.Internal, "server shutting down"},
}

// errorOf makes the ERROR frame of an error. One that the table does not know is
// a bug of ours, or the disk's, and is named.
func (f *FrontEnd) errorOf(err error) *wire.Error {
	var said *wire.Error
	if errors.As(err, &said) {
		return said
	}
	var quota *quotaError
	if errors.As(err, &quota) {
		f.metrics.throttled(quota.Scope, quota.Dim)
		return &wire.Error{Code: wire.RateLimited, Message: quota.Error()}
	}
	for _, row := range codes {
		if errors.Is(err, row.is) {
			text := row.text
			if text == "" {
				text = err.Error()
			}
			return &wire.Error{Code: row.code, Message: text}
		}
	}
	return &wire.Error{Code: wire.Internal, Message: err.Error()}
}

// writeFailed is how produce reports an error of the engine's.
func writeFailed(err error) error {
	var said *wire.Error
	if errors.As(err, &said) || isDomain(err) {
		return err
	}
	return fail(wire.Internal, fmt.Sprintf("failed to write message: %v", err))
}

// isDomain reports whether the table knows the error.
func isDomain(err error) bool {
	for _, row := range codes {
		if errors.Is(err, row.is) {
			return true
		}
	}
	return false
}
