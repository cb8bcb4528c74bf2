package producer

import "github.com/perigeemq/perigee/storage/model"

// State is one producer as DescribeProducers shows it.
type State struct {
	ID               model.ProducerID
	Epoch            model.ProducerEpoch
	LastSequence     model.Sequence  // model.NoSequence when only markers are known
	LastTimestamp    model.Timestamp // of the last batch or marker
	CoordinatorEpoch int32           // of the last marker, -1 when there was none
	TxnStart         model.Offset    // first offset of the open transaction, model.NoOffset when none
}
