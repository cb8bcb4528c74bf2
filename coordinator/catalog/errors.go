package catalog

import "errors"

// Kinds of refusals; the comment names Kafka's code. A refusal is an [*Error],
// which adds the words for the person who reads it.
var (
	ErrTopicExists              = errors.New("topic already exists")             // TOPIC_ALREADY_EXISTS
	ErrUnknownTopic             = errors.New("no such topic")                    // UNKNOWN_TOPIC_OR_PARTITION
	ErrUnknownTopicID           = errors.New("no such topic id")                 // UNKNOWN_TOPIC_ID
	ErrInvalidTopicName         = errors.New("invalid topic name")               // INVALID_TOPIC_EXCEPTION
	ErrInvalidPartitions        = errors.New("invalid number of partitions")     // INVALID_PARTITIONS
	ErrInvalidReplicationFactor = errors.New("invalid replication factor")       // INVALID_REPLICATION_FACTOR
	ErrInvalidReplicaAssignment = errors.New("invalid replica assignment")       // INVALID_REPLICA_ASSIGNMENT
	ErrPolicy                   = errors.New("more than the broker allows")      // POLICY_VIOLATION
	ErrInvalidConfig            = errors.New("invalid configuration")            // INVALID_CONFIG
	ErrInvalidRequest           = errors.New("request contradicts itself")       // INVALID_REQUEST
	ErrInternalTopic            = errors.New("topic belongs to the broker")      // INVALID_REQUEST
	ErrDeletionDisabled         = errors.New("topic deletion is disabled")       // TOPIC_DELETION_DISABLED
	ErrInvalidUpdateVersion     = errors.New("feature cannot have that version") // INVALID_UPDATE_VERSION
	ErrFeatureUpdateFailed      = errors.New("features were not updated")        // FEATURE_UPDATE_FAILED
	ErrUnacceptableCredential   = errors.New("credential is not acceptable")     // UNACCEPTABLE_CREDENTIAL
	ErrResourceNotFound         = errors.New("no such resource")                 // RESOURCE_NOT_FOUND
	ErrProducerIDsExhausted     = errors.New("every producer id was handed out") // UNKNOWN_SERVER_ERROR
)

// Error is a refusal: its kind, which front ends translate, and its words.
type Error struct {
	Kind error
	Text string
}

func (e *Error) Error() string { return e.Text }

// Unwrap gives the kind to errors.Is.
func (e *Error) Unwrap() error { return e.Kind }
