package journal

import (
	"fmt"
	"sync"
	"testing"

	"github.com/perigeemq/perigee/storage/vfs"
)

// BenchmarkRaw is the bar: what one append and fdatasync costs without a
// journal, into a file that grows.
func BenchmarkRaw(b *testing.B) {
	f, err := benchmarkDisk(b).Create("raw")
	ok(b, err)
	defer f.Close()
	block := make([]byte, 4096)
	var off int64
	for b.Loop() {
		_, err := f.WriteAt(block, off)
		ok(b, err)
		ok(b, f.Sync())
		off += int64(len(block))
	}
}

// BenchmarkWriters models producers that each wait for their batch of 1 KiB
// before they send the next.
func BenchmarkWriters(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			w := open(b, benchmarkDisk(b), Options{FileBytes: 64 << 20})
			b.SetBytes(1024)
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() {
					for n := i; n < b.N; n += writers {
						q, err := w.Enqueue(&Entry{Items: inline(int64(n), 1024)})
						if err != nil {
							b.Error(err)
							return
						}
						<-q.Group.Done()
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			s := w.Stats()
			b.ReportMetric(float64(s.Entries)/float64(max(1, s.Syncs)), "entries/sync")
		})
	}
}

// BenchmarkBulk models one producer of large batches with several in flight.
func BenchmarkBulk(b *testing.B) {
	w := open(b, benchmarkDisk(b), Options{FileBytes: 64 << 20})
	items := inline(0, 256<<10)
	b.SetBytes(256 << 10)
	var last Queued
	for b.Loop() {
		var err error
		last, err = w.Enqueue(&Entry{Items: items})
		ok(b, err)
		ok(b, w.Trim(w.Stats().Synced))
	}
	if last.Group != nil {
		<-last.Group.Done()
	}
}

func benchmarkDisk(b *testing.B) vfs.FS {
	disk, err := vfs.OpenDisk(b.TempDir())
	ok(b, err)
	b.Cleanup(func() { disk.Close() })
	return disk
}
