package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
	"github.com/perigeemq/perigee/storage/vfs"
)

// CheckReport is what Check found.
type CheckReport struct {
	Partitions, Segments    int
	Batches, Records, Bytes int64
	JournalEntries          int64 // that the journal still has
	// Behind is how many of them no checkpoint covers: what the next start will replay.
	// They are checked for themselves; what they append is not looked for in segments.
	Behind int64
	// Stray files are in no list. The next start removes them.
	Stray []string
	// Damage is what is wrong, at most maxDamage of it.
	Damage []*CorruptionError
}

// maxDamage bounds the list: whoever reads it needs to know where to begin.
const maxDamage = 1000

// Check verifies everything in a data directory that no engine has open: the
// identity, the checkpoint, the journal as far back as it is kept, every batch of every segment with
// its checksums, offsets and records, the index files, and that the producers,
// transactions and epochs of the checkpoint are those the logs tell of. It changes
// nothing. Of the options it needs FS. Errors: *vfs.LockedError while an engine has the
// directory; the file system's. Damage is no error but in the report.
func Check(ctx context.Context, o Options) (*CheckReport, error) {
	o = o.withDefaults()
	lock, err := o.FS.Lock(lockFile)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	c := &check{ctx: ctx, report: &CheckReport{}, partitions: make(map[model.TopicPartition]*checkedPartition)}
	c.e = &Engine{o: o, files: segment.NewFiles(o.FS, o.MaxOpenFiles)}
	return c.report, errors.Join(c.run(), lock.Close())
}

type check struct {
	ctx        context.Context
	e          *Engine
	report     *CheckReport
	position   journal.LSN
	partitions map[model.TopicPartition]*checkedPartition
}

// checkedPartition is a partition as its checkpoint has it, and what its log says.
type checkedPartition struct {
	*Partition
	state    *partitionState
	segments []*segment.Segment
	rebuilt  producer.Table
	markers  []model.Offset // of aborted transactions
}

func (c *check) run() error {
	if _, err := c.e.readIdentity(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if err := c.blame(err); err != nil {
			return err
		}
	}
	if err := c.checkpoint(); err != nil {
		return err
	}
	for _, p := range c.sorted() {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err := c.partition(p); err != nil {
			return fmt.Errorf("check %s: %w", p.tp, err)
		}
	}
	if err := c.journal(); err != nil {
		return err
	}
	return c.strays()
}

func (c *check) sorted() []*checkedPartition {
	all := make([]*checkedPartition, 0, len(c.partitions))
	for _, p := range c.partitions {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *checkedPartition) int { return int(a.seq) - int(b.seq) })
	return all
}

func (c *check) damage(d *CorruptionError) {
	if len(c.report.Damage) < maxDamage {
		c.report.Damage = append(c.report.Damage, d)
	}
}

// blame sorts an error: damage goes into the report, anything else is returned.
func (c *check) blame(err error) error {
	if d, ok := errors.AsType[*CorruptionError](err); ok {
		c.damage(d)
		return nil
	}
	return err
}

func (c *check) checkpoint() error {
	p, err := journal.ReadCheckpoint(c.e.o.FS, root)
	if err != nil {
		return c.blame(err)
	}
	if p.Skipped != nil {
		c.blame(p.Skipped)
	}
	c.position = p.Position
	if p.Generation == 0 {
		return nil
	}
	err = decodePayload(p.Payload, func(s *partitionState) error {
		if c.partitions[s.tp] != nil {
			return fmt.Errorf("%w: partition %s twice", errPayload, s.tp)
		}
		cp := &checkedPartition{Partition: newPartition(c.e, s.tp, uint64(len(c.partitions))), state: s}
		for _, m := range s.segments {
			cp.segments = append(cp.segments, cp.newSegment(m))
		}
		c.partitions[s.tp] = cp
		return nil
	})
	if errors.Is(err, errPayload) {
		return c.blame(&CorruptionError{File: "checkpoint", Reason: err.Error()})
	}
	return err
}

// partition checks the segments and compares what they tell with the checkpoint.
func (c *check) partition(p *checkedPartition) error {
	c.report.Partitions++
	for _, s := range p.segments {
		if s.Size() == 0 {
			continue // its file may not exist yet
		}
		c.report.Segments++
		c.report.Bytes += s.Size()
		err := s.Check(func(v batch.View, pos int64) error { return c.batch(p, s, v, pos) }, c.damage)
		if errors.Is(err, fs.ErrNotExist) {
			err = &CorruptionError{File: s.Path(), Reason: "the file is missing"}
		}
		if err := c.blame(err); err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	c.compare(p)
	return nil
}

func (c *check) batch(p *checkedPartition, s *segment.Segment, v batch.View, pos int64) error {
	c.report.Batches++
	h := v.Header()
	wrong := func(format string, args ...any) {
		c.damage(&CorruptionError{File: s.Path(), Offset: pos, Reason: fmt.Sprintf(format, args...)})
	}
	if h.NextOffset() > p.state.end {
		wrong("a batch up to offset %d, the checkpoint ends at %d", h.LastOffset(), p.state.end)
	}
	if known := p.state.epochs.at(h.BaseOffset); known != h.LeaderEpoch && h.BaseOffset >= p.state.start {
		wrong("leader epoch %d at offset %d, the checkpoint has %d", h.LeaderEpoch, h.BaseOffset, known)
	}
	last, n := h.BaseOffset-1, int64(0)
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			wrong("%v", err)
			break
		}
		if r.Offset <= last || r.Offset > h.LastOffset() {
			wrong("record offset %d behind %d in a batch up to %d", r.Offset, last, h.LastOffset())
		}
		last, n = r.Offset, n+1
	}
	c.report.Records += n
	if h.ProducerID == model.NoProducerID {
		return nil
	}
	b, err := describe(&h, v)
	if err != nil {
		wrong("%v", err)
		return nil
	}
	if b.Marker && b.Abort {
		p.markers = append(p.markers, h.BaseOffset)
	}
	p.rebuilt.Apply(&b, p.rebuilt.Plan(&b), 0)
	return nil
}

// compare holds the producers of the checkpoint against those of the log. The log
// may know less: retention and compaction remove batches, and the checkpoint
// forgets producers that have been silent for long. It never knows more.
func (c *check) compare(p *checkedPartition) {
	wrong := func(format string, args ...any) {
		c.damage(&CorruptionError{File: "checkpoint", Reason: p.tp.String() + ": " + fmt.Sprintf(format, args...)})
	}
	if s := p.state; s.cleaned > s.end {
		wrong("compacted up to %d, ends at %d", s.cleaned, s.end)
	}
	known := make(map[model.ProducerID]producer.State)
	for _, s := range p.state.producers.States() {
		known[s.ID] = s
	}
	for _, log := range p.rebuilt.States() {
		s, ok := known[log.ID]
		switch {
		case !ok && log.TxnStart != model.NoOffset:
			wrong("producer %d has a transaction open since offset %d that the checkpoint does not know", log.ID, log.TxnStart)
		case !ok:
		case s.Epoch < log.Epoch, s.Epoch == log.Epoch && s.CoordinatorEpoch < log.CoordinatorEpoch:
			wrong("producer %d has epoch %d, coordinator epoch %d; the log has %d and %d", log.ID, s.Epoch, s.CoordinatorEpoch, log.Epoch, log.CoordinatorEpoch)
		case s.TxnStart != log.TxnStart && log.TxnStart >= p.state.start:
			wrong("producer %d has a transaction open since offset %d, in the log since %d", log.ID, s.TxnStart, log.TxnStart)
		}
	}
	for _, a := range p.state.producers.Aborted() {
		if _, there := slices.BinarySearch(p.markers, a.Last); !there && a.Last >= p.firstOffset() {
			wrong("producer %d aborted a transaction at offset %d, where the log has no marker", a.ProducerID, a.Last)
		}
	}
	for _, a := range p.rebuilt.Aborted() {
		if a.Last >= p.state.start && !slices.ContainsFunc(p.state.producers.Aborted(), func(k producer.Aborted) bool { return k.Last == a.Last && k.ProducerID == a.ProducerID }) {
			wrong("producer %d aborted a transaction at offset %d that the checkpoint does not know", a.ProducerID, a.Last)
		}
	}
}

// firstOffset is where the log on the disk begins.
func (p *checkedPartition) firstOffset() model.Offset {
	if len(p.segments) == 0 {
		return p.state.end
	}
	return p.segments[0].Base()
}

// journal replays what is kept into nothing, and compares what the checkpoint
// covers with the segments.
func (c *check) journal() error {
	from, err := journal.KeptFrom(c.e.o.FS, root)
	if err != nil {
		return c.blame(err)
	}
	_, err = journal.Recover(journal.RecoverOptions{FS: c.e.o.FS, From: min(from, c.position)}, func(r *journal.Record) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.report.JournalEntries++
		if r.Start >= c.position {
			c.report.Behind++
			return nil
		}
		for i := range r.Items {
			if err := c.item(r, &r.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return c.blame(err)
}

// item looks for an append in the segment it names, unless that is gone or
// compaction has rewritten it.
func (c *check) item(r *journal.Record, it *journal.Item) error {
	p := c.partitions[it.Partition]
	if p == nil || it.Kind == journal.KindSetStart || it.Offset < p.state.start {
		return nil
	}
	at := slices.IndexFunc(p.segments, func(s *segment.Segment) bool { return s.ID() == segment.ID{Base: it.SegmentBase} })
	if at < 0 {
		return nil
	}
	s := p.segments[at]
	length, sum := int64(it.Length), it.CRC
	if it.Kind == journal.KindInline {
		length, sum = int64(len(it.Bytes)), journal.Checksum(it.Bytes)
	}
	if it.Position+length > s.Size() {
		c.damage(&CorruptionError{File: s.Path(), Offset: s.Size(), Reason: fmt.Sprintf(
			"ends in front of the batch of offset %d that byte %d of %s appends", it.Offset, r.Offset, r.File)})
		return nil
	}
	b := make([]byte, length)
	if err := s.Read(b, it.Position); err != nil {
		return c.blame(err)
	}
	if journal.Checksum(b) != sum {
		c.damage(&CorruptionError{File: s.Path(), Offset: it.Position, Reason: fmt.Sprintf(
			"not the batch of offset %d that byte %d of %s appends", it.Offset, r.Offset, r.File)})
	}
	return nil
}

// strays lists the files of partitions that no checkpoint names.
func (c *check) strays() error {
	return c.e.eachDirectory(func(tp model.TopicPartition) error {
		dir := newPartition(c.e, tp, 0).dir
		infos, err := c.e.o.FS.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, i := range infos {
			if !c.names(tp, i) {
				c.report.Stray = append(c.report.Stray, dir+"/"+i.Name)
			}
		}
		return nil
	})
}

func (c *check) names(tp model.TopicPartition, file vfs.Info) bool {
	p := c.partitions[tp]
	return p != nil && slices.ContainsFunc(p.segments, func(s *segment.Segment) bool {
		return file.Name == s.ID().LogName() || file.Name == s.ID().IndexName()
	})
}
