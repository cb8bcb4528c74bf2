package storage

import (
	"time"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Durability says when an append counts as durable.
type Durability int8

const (
	// Fsync: when fdatasync has returned. Survives power loss.
	Fsync Durability = iota
	// OS: when write has returned. Survives kill -9, not power loss. For
	// comparisons and throw-away data.
	OS
)

// Options configure an Engine. The zero value of every field but FS means the
// default written beside it.
type Options struct {
	FS vfs.FS // rooted at the data directory

	Durability Durability
	SyncDelay  time.Duration // added before every journal sync, for tests; 0

	JournalFileBytes   int64 // size at which a journal file is full; 16 MiB
	JournalBytes       int64 // size of all journal files, and twice what a crash may have to replay; 256 MiB
	ReferenceThreshold int   // batches of this size and above are journaled by reference: above it writing a batch twice takes longer than a second sync; 128 KiB
	ReserveBytes       int64 // free space kept; below it appends are refused; 64 MiB, negative for none

	MaxOpenFiles int // segment files kept open; half of what the process may open
	Workers      int // background workers; 2

	RetentionCheckInterval time.Duration // 5 min
	CleanerBackoff         time.Duration // 15 s
	CleanerMemoryBytes     int64         // for the key map of compaction; 128 MiB
	ProducerExpiry         time.Duration // 24 h since the last batch or marker
	ProducerExpiryCheck    time.Duration // 10 min

	// Repair lets Open check every batch, cut the journal at corruption, and write
	// segments again without what cannot be read. What is lost is reported as events; a
	// partition that no topic has is set aside. Without it Open refuses.
	Repair bool

	Now    func() time.Time // time.Now
	Events Events
}

// withDefaults returns o with every zero value replaced.
func (o Options) withDefaults() Options {
	setDefault(&o.JournalFileBytes, 16<<20)
	setDefault(&o.JournalBytes, 256<<20)
	setDefault(&o.ReferenceThreshold, 128<<10)
	setDefault(&o.ReserveBytes, 64<<20)
	setDefault(&o.MaxOpenFiles, openFilesDefault())
	setDefault(&o.Workers, 2)
	setDefault(&o.RetentionCheckInterval, 5*time.Minute)
	setDefault(&o.CleanerBackoff, 15*time.Second)
	setDefault(&o.CleanerMemoryBytes, 128<<20)
	setDefault(&o.ProducerExpiry, 24*time.Hour)
	setDefault(&o.ProducerExpiryCheck, 10*time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	o.ReserveBytes = max(o.ReserveBytes, 0)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// PartitionConfig is what a topic's configuration means to the engine. The zero
// value of a field means the default written beside it, and for limits "none".
type PartitionConfig struct {
	SegmentBytes       int64         // 1 GiB
	SegmentAge         time.Duration // since the segment's first record; 7 d
	SegmentJitter      time.Duration // at most this much is taken off SegmentAge; 0
	SegmentIndexBytes  int           // size of an index at which its segment is full; 10 MiB
	IndexIntervalBytes int           // bytes of log per index entry; 4096

	Delete         bool          // cleanup.policy has delete
	RetentionBytes int64         // 0 means none
	RetentionAge   time.Duration // 0 means for ever

	Compact          bool          // cleanup.policy has compact
	DeleteRetention  time.Duration // how long tombstones and markers stay readable
	MinCompactionLag time.Duration
	MaxCompactionLag time.Duration // 0 means none
	MinDirtyRatio    float64       // 0.5

	FileDeleteDelay time.Duration // how long files of dropped segments stay
	FlushMessages   int64         // accepted and without effect: every append is durable before it is answered
	FlushInterval   time.Duration // likewise
	LogAppendTime   bool          // timestamps are the broker's; retention trusts them
	MaxBatchBytes   int           // limit of one batch; 0 means none
}

func (c PartitionConfig) withDefaults() PartitionConfig {
	setDefault(&c.SegmentBytes, 1<<30)
	setDefault(&c.SegmentAge, 7*24*time.Hour)
	setDefault(&c.SegmentIndexBytes, 10<<20)
	setDefault(&c.IndexIntervalBytes, 4096)
	setDefault(&c.MinDirtyRatio, 0.5)
	return c
}
