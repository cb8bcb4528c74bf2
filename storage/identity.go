package storage

import "github.com/perigeemq/perigee/storage/model"

// Identity names a data directory and this start of it.
type Identity struct {
	ClusterID   string            // 22 characters of URL-safe base64; for ever the same
	Incarnation model.LeaderEpoch // grows by one at every start; the leader epoch of everything appended now
	CleanStart  bool              // the last run ended with Close
}
