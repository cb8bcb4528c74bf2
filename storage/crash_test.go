package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// script is a run of the engine whose acknowledgements are remembered.
type script struct {
	t       *testing.T
	rng     *rand.Rand
	fs      vfs.FS
	e       *Engine
	ps      []*Partition
	process process

	mu        sync.Mutex
	sequenced [][]string       // by partition: what was appended, in order, acknowledged or not
	acked     []int            // how many of them
	start     []model.Offset   // acknowledged starts
	pairs     int              // entries that went to all partitions together, acknowledged
	seq       []model.Sequence // of producer 7 on each partition
	open      bool             // producer 9's transaction
}

const scriptPartitions = 3

func tiny(o *Options) {
	o.JournalFileBytes, o.JournalBytes, o.ReferenceThreshold, o.MaxOpenFiles = 16<<10, 24<<10, 900, 2
}

func (s *script) openAll() {
	s.ps = nil
	for n := range scriptPartitions {
		s.ps = append(s.ps, part(s.t, s.e, n, func(c *PartitionConfig) { c.SegmentBytes, c.IndexIntervalBytes = 3000, 200 }))
	}
}

// step does one random thing and waits for it.
func (s *script) step(i int) {
	n := s.rng.IntN(scriptPartitions)
	switch k := s.rng.IntN(22); {
	case k < 8:
		v := fmt.Sprintf("p%d-%d-%s", n, i, strings.Repeat("x", s.rng.IntN(1200)))
		s.append(n, Append{Partition: s.ps[n], Batch: idempotent(7, 0, s.seq[n], v)}, v)
		s.seq[n]++
	case k < 12:
		v := fmt.Sprintf("all-%d", i)
		s.appendAll(v)
	case k < 15 && !s.open:
		v := fmt.Sprintf("txn-%d", i)
		s.append(0, Append{Partition: s.ps[0], Batch: transactional(9, 0, model.NoSequence, v), Txn: TxnOpen, Internal: true}, v)
		s.open = true
	case k < 15:
		kind := batch.MarkerType(s.rng.IntN(2))
		s.append(0, Append{Partition: s.ps[0], Batch: marker(9, 0, kind), Internal: true}, kind.String())
		s.open = false
	case k < 17:
		pending, start, err := s.ps[n].DeleteRecords(s.ps[n].Bounds().High / 2)
		if err != nil {
			s.t.Fatal(err)
		}
		if pending.Wait(s.t.Context()) == nil {
			s.mu.Lock()
			s.start[n] = start
			s.mu.Unlock()
		}
	case k < 19:
		if err := s.e.checkpoint(s.t.Context(), 0); err != nil {
			s.t.Fatal(err)
		}
	case k < 20 && i%2 == 0:
		shut(s.t, s.e)
		s.run()
	default:
		s.kill(n, fmt.Sprintf("killed-%d", i))
	}
}

// kill ends the process between a write of the journal and its sync. The next run
// finds what was written, and shows it: from then on it is as good as acknowledged.
func (s *script) kill(n int, v string) {
	s.mu.Lock()
	s.sequenced[n] = append(s.sequenced[n], v)
	s.mu.Unlock()
	process := s.process
	process.AfterEach(func(ev vfs.Event) {
		if ev.Op == vfs.OpWrite && strings.HasSuffix(ev.Name, ".journal") && s.holdsEntries(ev.Name) {
			process.StopAfter(0)
		}
	})
	pending, err := s.e.Append(Append{Partition: s.ps[n], Batch: plain(v)})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := pending.Wait(s.t.Context()); err == nil {
		s.t.Fatal("acknowledged by a process that was killed")
	}
	process.Quiet()
	s.run()
	s.mu.Lock()
	defer s.mu.Unlock()
	if high := int(s.ps[n].Bounds().High); high != len(s.sequenced[n]) {
		s.t.Errorf("partition %d ends at %d, %d were written", n, high, len(s.sequenced[n]))
	}
	s.acked[n]++
}

// holdsEntries tells a journal file in use from one that is only prepared: its start,
// at byte 32, is not -1.
func (s *script) holdsEntries(name string) bool {
	f, err := s.fs.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	var start [8]byte
	_, err = f.ReadAt(start[:], 32)
	return err == nil && int64(binary.BigEndian.Uint64(start[:])) >= 0
}

// process is one run of the engine, which may be killed. Its lock dies with it.
type process struct{ *vfs.Fault }

func (process) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// run begins a run on what the last one left.
func (s *script) run() {
	s.process = process{vfs.NewFault(s.fs)}
	s.e = open(s.t, s.process, tiny)
	s.openAll()
}

func (s *script) append(n int, a Append, v string) {
	s.mu.Lock()
	s.sequenced[n] = append(s.sequenced[n], v)
	s.mu.Unlock()
	put(s.t, s.e, a)
	s.mu.Lock()
	s.acked[n]++
	s.mu.Unlock()
}

func (s *script) appendAll(v string) {
	var all []Append
	s.mu.Lock()
	for n, p := range s.ps {
		s.sequenced[n] = append(s.sequenced[n], v)
		all = append(all, Append{Partition: p, Batch: plain(v)})
	}
	s.mu.Unlock()
	put(s.t, s.e, all...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.acked {
		s.acked[n]++
	}
	s.pairs++
}

// moment is a disk after a power cut, and what had been acknowledged until then.
type moment struct {
	what      string
	fs        *vfs.Memory
	sequenced []int
	acked     []int
	start     []model.Offset
	pairs     int
}

// TestAcknowledgedSurvivesACrashAnywhere cuts the power after every operation that
// changes the disk, with luck deciding what of the unsynced part survives, and
// looks at what the next start finds.
func TestAcknowledgedSurvivesACrashAnywhere(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { crashAnywhere(t, seed, 60) })
	}
}

func crashAnywhere(t *testing.T, seed uint64, steps int) {
	memory := vfs.NewMemory()
	fault := vfs.NewFault(memory)
	s := &script{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), sequenced: make([][]string, scriptPartitions),
		acked: make([]int, scriptPartitions), start: make([]model.Offset, scriptPartitions), seq: make([]model.Sequence, scriptPartitions),
	}
	var moments []moment
	luck := rand.New(rand.NewPCG(seed, 2))
	var hook sync.Mutex
	fault.AfterEach(func(ev vfs.Event) {
		hook.Lock()
		defer hook.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		m := moment{what: fmt.Sprintf("after %d: %s %s", len(moments), ev.Op, ev.Name), pairs: s.pairs}
		m.acked, m.start = append(m.acked, s.acked...), append(m.start, s.start...)
		for _, q := range s.sequenced {
			m.sequenced = append(m.sequenced, len(q))
		}
		rng := luck
		if len(moments)%3 == 0 {
			rng = nil // nothing unsynced survives
		}
		m.fs = memory.Crash(rng)
		moments = append(moments, m)
	})
	s.fs = fault
	s.run()
	for i := range steps {
		s.step(i)
	}
	shut(t, s.e)
	fault.AfterEach(nil)
	t.Logf("%d moments", len(moments))
	for i := range moments {
		s.check(&moments[i])
		if t.Failed() {
			t.Fatalf("seed %d, %s", seed, moments[i].what)
		}
		moments[i].fs = nil
	}
}

// interrupt lets a recovery come some way and cuts the power again.
func (s *script) interrupt(fs *vfs.Memory) *vfs.Memory {
	fault := vfs.NewFault(fs)
	fault.StopAfter(s.rng.IntN(30))
	e, err := Open(s.t.Context(), Options{FS: fault, JournalFileBytes: 16 << 10, ReserveBytes: -1})
	if err == nil {
		e.Close(context.Background())
	} else if !errors.Is(err, vfs.ErrStopped) {
		s.t.Errorf("open, to be interrupted: %v", err)
	}
	return fs.Crash(s.rng)
}

// check recovers twice, with another crash in between, and appends afterwards.
func (s *script) check(m *moment) {
	t := s.t
	if s.rng.IntN(3) == 0 {
		m.fs = s.interrupt(m.fs)
	}
	e, err := Open(t.Context(), Options{FS: m.fs, JournalFileBytes: 16 << 10, ReserveBytes: -1})
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	first := s.contents(e, m)
	again := m.fs.Crash(nil)
	if err := e.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	e, err = Open(t.Context(), Options{FS: again, JournalFileBytes: 16 << 10, ReserveBytes: -1})
	if err != nil {
		t.Errorf("open again: %v", err)
		return
	}
	second := s.contents(e, m)
	for n := range first {
		if first[n] != second[n] {
			t.Errorf("partition %d: the second recovery found\n%s\nthe first\n%s", n, second[n], first[n])
		}
		p := part(t, e, n)
		high := p.Bounds().High
		if at := put(t, e, Append{Partition: p, Batch: plain("after")}).At(0); at.Base != high {
			t.Errorf("partition %d: the next append went to %d, want %d", n, at.Base, high)
		}
	}
	shut(t, e)
	report, err := Check(t.Context(), Options{FS: again})
	if err != nil || len(report.Damage) > 0 {
		t.Errorf("the checker finds %v, %v", report, err)
	}
}

// contents compares the partitions with what is allowed and returns them.
func (s *script) contents(e *Engine, m *moment) (contents []string) {
	t := s.t
	pairs := -1
	for n := range scriptPartitions {
		p := part(t, e, n)
		if err := p.Err(); err != nil {
			t.Errorf("partition %d: %v", n, err)
			return contents
		}
		b := p.Bounds()
		if int(b.High) < m.acked[n] || int(b.High) > m.sequenced[n]+1 {
			t.Errorf("partition %d: ends at %d, %d acknowledged of %d", n, b.High, m.acked[n], m.sequenced[n])
		}
		if b.Start < m.start[n] {
			t.Errorf("partition %d: starts at %d, acknowledged %d", n, b.Start, m.start[n])
		}
		var all strings.Builder
		fmt.Fprintln(&all, b)
		for _, v := range values(t, p) {
			fmt.Fprintln(&all, v)
			offset, value, _ := strings.Cut(v, ":")
			var o int
			fmt.Sscan(offset, &o)
			if o >= len(s.sequenced[n]) || s.sequenced[n][o] != value {
				t.Errorf("partition %d: offset %d holds %.20q", n, o, value)
			}
		}
		fmt.Fprintln(&all, p.Producers())
		contents = append(contents, all.String())
		// Counted over the script's memory, because a raised start hides some.
		together := 0
		for _, v := range s.sequenced[n][:b.High] {
			if strings.HasPrefix(v, "all-") {
				together++
			}
		}
		if pairs >= 0 && together != pairs {
			t.Errorf("partition %d: %d of the joint entries, others have %d", n, together, pairs)
		}
		pairs = together
	}
	if pairs < m.pairs {
		t.Errorf("%d joint entries, %d acknowledged", pairs, m.pairs)
	}
	return contents
}

var errTest = errors.New("the disk says no")
