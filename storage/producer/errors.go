package producer

import "errors"

// What a batch can be refused for. They are wrapped with the numbers.
var (
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	ErrStaleEpoch         = errors.New("stale producer epoch")
	ErrStaleCoordinator   = errors.New("stale coordinator epoch")
	ErrInvalidTxnState    = errors.New("invalid transaction state")
	ErrTxnNotOpen         = errors.New("transaction not open on this partition")
)
