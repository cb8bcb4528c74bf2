package storage

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/perigeemq/perigee/storage/vfs"
)

func TestEveryGroupThatBecameDurableIsReported(t *testing.T) {
	var groups, entries, synced atomic.Int64
	e := open(t, vfs.NewMemory(), func(o *Options) {
		o.ReferenceThreshold = 1 << 10
		o.Events.Flushed = func(f Flushed) {
			groups.Add(1)
			entries.Add(int64(f.Entries))
			synced.Add(int64(f.Segments))
			if f.Bytes <= 0 || f.Took <= 0 {
				t.Errorf("flushed %+v", f)
			}
		}
	})
	p := part(t, e, 1)
	put(t, e, Append{Partition: p, Batch: plain("small")})
	put(t, e, Append{Partition: p, Batch: plain(string(bytes.Repeat([]byte("x"), 2<<10)))})
	shut(t, e)
	if groups.Load() != 2 || entries.Load() != 2 || synced.Load() != 1 {
		t.Errorf("%d groups, %d entries, %d segments synced; want 2, 2, 1", groups.Load(), entries.Load(), synced.Load())
	}
}

func TestALongRecoveryTellsHowFarItIs(t *testing.T) {
	fs := vfs.NewMemory()
	e := open(t, fs, func(o *Options) { o.JournalFileBytes, o.ReferenceThreshold = 64<<20, 1<<20 })
	p := part(t, e, 1)
	for range 3 * progressBytes / (256 << 10) {
		put(t, e, Append{Partition: p, Batch: plain(string(bytes.Repeat([]byte("x"), 256<<10)))})
	}
	var reports []RecoveryProgress
	open(t, fs.Crash(nil), func(o *Options) {
		o.Events.Recovery = func(p RecoveryProgress) { reports = append(reports, p) }
	})
	if len(reports) < 2 {
		t.Fatalf("reports %+v", reports)
	}
	before := RecoveryProgress{}
	for _, r := range reports {
		if r.JournalBytes <= before.JournalBytes || r.Entries <= before.Entries || r.JournalBytes > r.JournalTotal {
			t.Errorf("%+v after %+v", r, before)
		}
		before = r
	}
}
