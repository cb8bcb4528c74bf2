package storage

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// benchEngine is an engine on the disk that tests use, with the default options.
func benchEngine(b *testing.B, change ...func(*Options)) *Engine {
	disk, err := vfs.OpenDisk(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	return open(b, disk, append([]func(*Options){func(o *Options) { o.JournalFileBytes = 0 }}, change...)...)
}

// BenchmarkAppend models acks=all producers that wait for each acknowledgement:
// one op is one acknowledged batch of one 100-byte record.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ writers, partitions int }{{1, 1}, {64, 64}, {64, 1000}, {256, 64}} {
		b.Run(fmt.Sprintf("writers=%d/partitions=%d", c.writers, c.partitions), func(b *testing.B) {
			e := benchEngine(b)
			ps := make([]*Partition, c.partitions)
			for n := range ps {
				ps[n] = part(b, e, n)
				put(b, e, Append{Partition: ps[n], Batch: plain("x")})
			}
			value := strings.Repeat("v", 100)
			var next atomic.Int64
			var writers sync.WaitGroup
			b.ResetTimer()
			for w := range c.writers {
				writers.Go(func() {
					v := plain(value)
					for i := w; next.Add(1) <= int64(b.N); i += c.writers {
						put(b, e, Append{Partition: ps[i%len(ps)], Batch: v})
					}
				})
			}
			writers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acks/s")
		})
	}
}

// BenchmarkAppendBulk models a bulk load: large batches, a few in flight.
func BenchmarkAppendBulk(b *testing.B) {
	for _, size := range []int{100 << 10, 1 << 20} {
		for _, threshold := range []int{64 << 10, math.MaxInt32} {
			how := "inline"
			if size > threshold {
				how = "reference"
			}
			b.Run(fmt.Sprintf("bytes=%d/%s", size, how), func(b *testing.B) {
				e := benchEngine(b, func(o *Options) { o.ReferenceThreshold = threshold })
				value := strings.Repeat("v", size-100)
				var next atomic.Int64
				var writers sync.WaitGroup
				b.SetBytes(int64(size))
				b.ResetTimer()
				for w := range 8 {
					p := part(b, e, w)
					writers.Go(func() {
						v := plain(value)
						for next.Add(1) <= int64(b.N) {
							put(b, e, Append{Partition: p, Batch: v})
						}
					})
				}
				writers.Wait()
			})
		}
	}
}

// BenchmarkRead models a consumer that reads in order: one op is one slice.
func BenchmarkRead(b *testing.B) {
	e := benchEngine(b)
	p := part(b, e, 1)
	pendings := make([]*Pending, 0, 20_000)
	for range 20_000 {
		pending, err := e.Append(Append{Partition: p, Batch: plain("some value")})
		if err != nil {
			b.Fatal(err)
		}
		pendings = append(pendings, pending)
	}
	if err := pendings[len(pendings)-1].Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	from := model.Offset(0)
	for b.Loop() {
		r, err := p.Read(ReadRequest{From: from, MaxBytes: 64 << 10, MinOneBatch: true})
		if err != nil {
			b.Fatal(err)
		}
		r.Slice.Release()
		if from = r.Next; from == 20_000 {
			from = 0
		}
	}
}

// BenchmarkRecovery replays a journal after a crash: one op is one start. The
// journal holds 1 GiB in batches of 16 KiB over 100 partitions, in a memory of the
// test's own so that it is the engine that is measured.
func BenchmarkRecovery(b *testing.B) {
	const total, size = 1 << 30, 16 << 10
	memory := vfs.NewMemory()
	e := open(b, memory, func(o *Options) { o.JournalFileBytes, o.JournalBytes = 64<<20, math.MaxInt64 })
	value := strings.Repeat("v", size-100)
	var last *Pending
	for i := range total / size {
		var err error
		if last, err = e.Append(Append{Partition: part(b, e, i%100), Batch: plain(value)}); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 0 {
			last.Wait(b.Context())
		}
	}
	if err := last.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	crashed := memory.Crash(nil)
	b.SetBytes(total)
	for b.Loop() {
		b.StopTimer()
		fs := crashed.Clone()
		b.StartTimer()
		e := open(b, fs)
		if len(e.Known()) != 100 {
			b.Fatal("partitions are missing")
		}
		b.StopTimer()
		e.Close(b.Context())
		b.StartTimer()
	}
}

// BenchmarkCleanStart opens a directory with 1,000 partitions that was closed.
func BenchmarkCleanStart(b *testing.B) {
	dir := b.TempDir()
	disk, err := vfs.OpenDisk(dir)
	if err != nil {
		b.Fatal(err)
	}
	e := open(b, disk)
	var all []Append
	for n := range 1000 {
		all = append(all, Append{Partition: part(b, e, n), Batch: plain("x")})
	}
	put(b, e, all...)
	shut(b, e)
	var took time.Duration
	for b.Loop() {
		began := time.Now()
		e := open(b, disk)
		for n := range 1000 {
			if part(b, e, n).Bounds().High != 1 {
				b.Fatal("a record is missing")
			}
		}
		took += time.Since(began)
		b.StopTimer()
		shut(b, e)
		b.StartTimer()
	}
	b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "ms/start")
}
