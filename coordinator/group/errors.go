package group

import "errors"

// Refusals. Front ends translate them; the comment is Kafka's name.
var (
	ErrInvalidGroupID        = errors.New("invalid group id")                                    // INVALID_GROUP_ID
	ErrGroupNotFound         = errors.New("no such group")                                       // GROUP_ID_NOT_FOUND
	ErrNonEmptyGroup         = errors.New("the group has members")                               // NON_EMPTY_GROUP
	ErrUnknownMember         = errors.New("not a member of this group")                          // UNKNOWN_MEMBER_ID
	ErrFencedInstance        = errors.New("the group instance id belongs to another member")     // FENCED_INSTANCE_ID
	ErrIllegalGeneration     = errors.New("not the group's generation")                          // ILLEGAL_GENERATION
	ErrRebalanceInProgress   = errors.New("the group is rebalancing")                            // REBALANCE_IN_PROGRESS
	ErrInconsistentProtocol  = errors.New("protocols do not fit the group's")                    // INCONSISTENT_GROUP_PROTOCOL
	ErrInvalidSessionTimeout = errors.New("session timeout outside the broker's limits")         // INVALID_SESSION_TIMEOUT
	ErrGroupFull             = errors.New("the group has reached its maximum size")              // GROUP_MAX_SIZE_REACHED
	ErrMetadataTooLarge      = errors.New("offset metadata too large")                           // OFFSET_METADATA_TOO_LARGE
	ErrUnstableOffset        = errors.New("an open transaction commits this partition's offset") // UNSTABLE_OFFSET_COMMIT
	ErrSubscribedToTopic     = errors.New("a member of the group reads this topic")              // GROUP_SUBSCRIBED_TO_TOPIC
	ErrInvalidCommand        = errors.New("a field is longer than the group log can hold")       // INVALID_REQUEST
)

// MemberIDRequired refuses the first join of a dynamic member: it comes back
// with the id it is given here (KIP-394), so that retries of lost joins do not
// leave members behind.
type MemberIDRequired struct{ ID string }

func (e *MemberIDRequired) Error() string { return "join again as member " + e.ID }
