package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
)

// recovery turns a data directory into partitions:
//
//	checkpoint ──► partitions as they were captured
//	journal    ──► each append behind the captured end, again: an inline one is written at
//	               its named position, a referenced one is verified there
//	unclean    ──► files are cut behind the last replayed append; what no list names goes
//
// Doing it twice gives the same bytes: positions are named, not found.
//
// Damage of the journal or the checkpoint refuses the start unless Options.Repair
// is set. Damage of one partition's files takes that partition offline when it is
// met; the others go on. Repair looks for it everywhere: what can be read is kept (see
// mend, and rebuild when journal and files do not fit), and a checkpoint says so before
// anything is appended.
type recovery struct {
	e       *Engine
	ctx     context.Context
	began   time.Time
	result  RecoveryResult
	damaged map[*Partition]error
	// ignored partitions were deleted before the checkpoint was captured; the journal
	// still has the end of them.
	ignored map[model.TopicPartition]bool
	// repaired: what the files hold is no longer what the checkpoint says. mended are
	// files that it names still.
	repaired bool
	mended   map[string]bool
	told     int64
	now      int64  // Unix milliseconds, for everything that is replayed
	scratch  []byte // for a batch that the journal refers to
}

// recover brings the partitions back and says where the journal goes on.
// repaired asks for a checkpoint before the first append.
func (e *Engine) recover(ctx context.Context, clean bool) (recovered *journal.Recovered, repaired bool, err error) {
	r := &recovery{
		e: e, ctx: ctx, began: time.Now(), now: e.nowMillis(),
		damaged: make(map[*Partition]error), ignored: make(map[model.TopicPartition]bool), mended: make(map[string]bool),
	}
	position, err := r.begin()
	if err != nil {
		return nil, false, err
	}
	recovered, err = r.replay(position)
	if err != nil {
		return nil, false, err
	}
	r.result.Clean = clean && recovered.Entries == 0 && recovered.Damage == nil && len(r.damaged) == 0
	if err := r.settle(); err != nil {
		return nil, false, err
	}
	r.result.Partitions = len(e.partitions.known)
	r.result.Took = time.Since(r.began)
	e.o.Events.recovered(r.result)
	return recovered, r.repaired, nil
}

// begin finds where the replay starts. Without a checkpoint or a journal where there
// must be one, Repair takes what the segments hold.
func (r *recovery) begin() (journal.LSN, error) {
	if err := r.e.mustHaveJournal(); err != nil {
		return 0, r.salvage(err)
	}
	position, err := r.checkpoint()
	if err != nil {
		return 0, r.salvage(err)
	}
	return position, nil
}

// salvage makes every partition from its files.
func (r *recovery) salvage(cause error) error {
	if !r.e.o.Repair {
		return cause
	}
	clear(r.e.partitions.known)
	return r.e.eachDirectory(func(tp model.TopicPartition) error {
		p := r.e.knownLocked(tp).Partition
		return r.damage(p, cause)
	})
}

// checkpoint loads the newest checkpoint.
func (r *recovery) checkpoint() (journal.LSN, error) {
	c, err := journal.ReadCheckpoint(r.e.o.FS, root)
	if err == nil && c.Generation > 0 {
		err = decodePayload(c.Payload, r.restore)
		if errors.Is(err, errPayload) {
			err = &CorruptionError{File: "checkpoint", Reason: err.Error()}
		}
	}
	if err == nil {
		if c.Skipped != nil {
			r.e.o.Events.partitionRecovered(model.TopicPartition{}, "passed over the newest checkpoint: "+c.Skipped.Error())
		}
		return c.Position, nil
	}
	return 0, err
}

// restore makes a partition from its captured state.
func (r *recovery) restore(s *partitionState) error {
	p := r.e.knownLocked(s.tp).Partition
	p.end.Store(int64(s.end))
	p.cleaned.Store(int64(s.cleaned))
	p.epochs.Store(&s.epochs)
	p.mu.start = s.start
	p.mu.producers = *s.producers
	for i, m := range s.segments {
		m.Touched = r.now
		seg := p.newSegment(m)
		if i < len(s.segments)-1 {
			seg.Seal()
		}
		p.vis.segments = append(p.vis.segments, seg)
		p.mu.active = seg
	}
	return nil
}

// replay walks the journal.
func (r *recovery) replay(position journal.LSN) (*journal.Recovered, error) {
	keep, err := journal.KeptFrom(r.e.o.FS, root)
	if err != nil {
		return nil, err
	}
	recovered, err := journal.Recover(journal.RecoverOptions{
		FS: r.e.o.FS, From: position, Keep: keep, Repair: r.e.o.Repair, Progress: r.progress,
	}, r.entry)
	if err != nil {
		return nil, fmt.Errorf("replay journal: %w", err)
	}
	r.result.Entries, r.result.JournalBytes, r.result.Tail = recovered.Entries, recovered.Bytes, recovered.Tail
	if recovered.Damage != nil {
		r.result.Damage = recovered.Damage.Error()
	}
	return recovered, nil
}

// progressBytes is how much is read between two reports: some ten milliseconds'
// work of a fast disk and a second's of a slow one.
const progressBytes = 8 << 20

func (r *recovery) progress(done, total int64) {
	if done-r.told >= progressBytes || done < r.told {
		r.told = done
		r.e.o.Events.recovery(RecoveryProgress{JournalBytes: done, JournalTotal: total, Entries: r.result.Entries})
	}
}

// entry applies one journal entry.
func (r *recovery) entry(rec *journal.Record) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	r.result.Entries++
	for i := range rec.Items {
		it := &rec.Items[i]
		if len(r.ignored) > 0 && r.ignored[it.Partition] {
			continue
		}
		k := r.e.partitions.known[it.Partition]
		if k == nil && it.Offset > 0 {
			r.ignored[it.Partition] = true
			continue
		}
		if k == nil {
			k = r.e.knownLocked(it.Partition)
		}
		p := k.Partition
		if len(r.damaged) > 0 && r.damaged[p] != nil {
			continue
		}
		err := r.item(p, it)
		if isDamage(err) {
			r.damaged[p] = fmt.Errorf("replay byte %d of %s: %w", rec.Offset, rec.File, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("replay %s: %w", it.Partition, err)
		}
	}
	return nil
}

// isDamage reports whether an error is about one partition's bytes, not about the
// disk as a whole.
func isDamage(err error) bool {
	_, corrupt := errors.AsType[*CorruptionError](err)
	return corrupt || errors.Is(err, fs.ErrNotExist)
}

// item does again what the journal says was done to a partition.
func (r *recovery) item(p *Partition, it *journal.Item) error {
	if it.Kind == journal.KindSetStart {
		if it.Offset > p.mu.start {
			p.setStartLocked(it.Offset)
		}
		return nil
	}
	end := model.Offset(p.end.Load())
	if it.Offset < end {
		return nil // captured already, and synced before the checkpoint was written
	}
	s := p.mu.active
	if s == nil || s.Base() != it.SegmentBase {
		s = p.newSegment(segment.Meta{ID: segment.ID{Base: it.SegmentBase}})
		s.MarkNew()
		if it.SegmentBase == it.Offset {
			p.vis.segments = append(p.vis.segments, s)
		}
	}
	if it.Offset != end || it.Position != s.Size() {
		return &CorruptionError{File: s.Path(), Offset: it.Position, Reason: fmt.Sprintf(
			"the journal appends offset %d there, but offset %d at byte %d is next", it.Offset, end, s.Size())}
	}
	v, err := r.bytes(it, s)
	if h, told := r.lost(it, err); told {
		p.commitLocked(&h, s, r.now)
		return nil
	}
	if err != nil {
		return err
	}
	h := v.Header()
	if h.ProducerID != model.NoProducerID {
		b, err := describe(&h, v)
		if err != nil {
			return &CorruptionError{File: s.Path(), Offset: it.Position, Reason: err.Error()}
		}
		p.mu.producers.Apply(&b, p.mu.producers.Plan(&b), r.now)
	}
	p.commitLocked(&h, s, r.now)
	return nil
}

// lost reports whether a repair goes on behind a referenced batch that is damaged: its
// header must tell where. It is mend that takes the batch out.
func (r *recovery) lost(it *journal.Item, err error) (h batch.Header, told bool) {
	if !isDamage(err) || !r.e.o.Repair || it.Kind != journal.KindReference {
		return h, false
	}
	h, err = batch.ParseHeader(r.scratch)
	return h, err == nil && h.BaseOffset == it.Offset && h.Len == int(it.Length)
}

// bytes brings an item's bytes to, or finds them at, their place. Their checksum is
// compared once: the journal has compared an inline one's with its entry's.
func (r *recovery) bytes(it *journal.Item, s *segment.Segment) (batch.View, error) {
	b := it.Bytes
	if it.Kind == journal.KindReference {
		r.scratch = slices.Grow(r.scratch[:0], int(it.Length))[:it.Length]
		clear(r.scratch[:min(batch.HeaderBytes, len(r.scratch))])
		b = r.scratch
		r.e.checkpoints.unsaved.Add(int64(it.Length))
		if err := s.Read(b, it.Position); err != nil {
			return batch.View{}, err
		}
		if sum := journal.Checksum(b); sum != it.CRC {
			return batch.View{}, &CorruptionError{File: s.Path(), Offset: it.Position,
				Reason: fmt.Sprintf("the batch of offset %d has checksum %08x, the journal says %08x", it.Offset, sum, it.CRC)}
		}
	}
	v, rest, err := batch.Trust(b)
	if err != nil || len(rest) > 0 || v.BaseOffset() != it.Offset {
		return batch.View{}, &CorruptionError{File: s.Path(), Offset: it.Position,
			Reason: fmt.Sprintf("the batch of offset %d cannot be read: %v", it.Offset, err)}
	}
	if it.Kind == journal.KindInline {
		err = s.Write(b, it.Position)
	}
	return v, err
}

// settle makes the partitions visible and their files agree with them.
func (r *recovery) settle() error {
	repair := r.e.o.Repair // believes no file
	for _, p := range r.e.all() {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		err := r.damaged[p]
		if err == nil && repair {
			err = r.mend(p)
		}
		if err == nil && (repair || !r.result.Clean) {
			err = r.tidy(p)
		}
		if isDamage(err) {
			err = r.damage(p, err)
		}
		if err != nil {
			return err
		}
		p.settleRecovered()
	}
	if r.result.Clean {
		return nil
	}
	return r.sweep()
}

// settleRecovered makes everything that was recovered visible: it is durable.
func (p *Partition) settleRecovered() {
	v := &p.vis
	v.start, v.high = p.mu.start, model.Offset(p.end.Load())
	v.stable = v.high
	if first := p.mu.producers.FirstOpen(); first != model.NoOffset {
		v.stable = min(v.stable, first)
	}
	v.aborted = p.mu.producers.Aborted()
	if s := p.mu.active; s != nil {
		v.highAt = place{s, s.Size()}
	}
	if n := belowStart(v.segments, v.start); n > 0 {
		p.e.discard(v.segments[:n], nil, 0)
		v.segments = v.segments[n:]
	}
}

// tidy cuts what was written behind the partition's end and never acknowledged,
// checks that the other segments are all there, and removes files no list names.
func (r *recovery) tidy(p *Partition) error {
	entries, err := r.e.o.FS.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) && len(p.vis.segments) == 0 {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sizes := make(map[string]int64, len(entries))
	for _, i := range entries {
		sizes[i.Name] = i.Size
	}
	for _, s := range p.vis.segments {
		log, index := s.ID().LogName(), s.ID().IndexName()
		// Most files are as they should be, and need not be opened to see that.
		if size, there := sizes[log]; !there || size != s.Size() {
			cut, err := s.Cut()
			if err != nil {
				return err
			}
			r.result.CutBytes += cut
		}
		if _, there := sizes[index]; there && s == p.mu.active {
			if err := s.DropIndex(); err != nil {
				return err
			}
		}
		delete(sizes, log)
		delete(sizes, index)
	}
	for name, size := range sizes {
		if _, _, ours := segment.ParseName(name); ours && !r.mended[p.dir+"/"+name] {
			if err := r.e.o.FS.Remove(p.dir + "/" + name); err != nil {
				return err
			}
			r.result.CutBytes += size
		}
	}
	return nil
}

// damage deals with a partition whose files cannot be what they were.
func (r *recovery) damage(p *Partition, cause error) error {
	if !r.e.o.Repair {
		p.offline(cause)
		return nil
	}
	r.repaired = true
	what, err := p.rebuild(r.e.nowMillis())
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", p.tp, err)
	}
	r.e.o.Events.partitionRecovered(p.tp, fmt.Sprintf("%v; rebuilt from its files: %s", cause, what))
	return nil
}

// sweep removes the directories of partitions that neither the checkpoint nor the
// journal knows: their first append was never acknowledged, or they were deleted.
// At once, because the coordinator may be about to open them.
func (r *recovery) sweep() error {
	return r.e.eachDirectory(func(tp model.TopicPartition) error {
		if r.e.partitions.known[tp] != nil {
			return nil
		}
		_, err := r.e.remove(obsolete{dirs: newPartition(r.e, tp, 0).parents[:2]})
		return err
	})
}
