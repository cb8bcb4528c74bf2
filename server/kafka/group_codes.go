package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/perigeemq/perigee/storage"
)

// logTroubles are the engine's refusals that say nothing about a group.
var logTroubles = []error{
	storage.ErrStorageFull, storage.ErrPartitionOffline, storage.ErrPartitionDeleted, storage.ErrPoisoned, storage.ErrClosed,
}

// groupCode is codeOf for the group coordinator's APIs. Clients know a
// coordinator that is not available, look for it again and repeat themselves;
// KAFKA_STORAGE_ERROR, which the same trouble is on a partition, is fatal to
// them here.
func groupCode(err error) int16 {
	for _, trouble := range logTroubles {
		if errors.Is(err, trouble) {
			return kerr.CoordinatorNotAvailable.Code
		}
	}
	return codeOf(err)
}
