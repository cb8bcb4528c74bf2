package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
)

// Compaction keeps, of every key, the last record. One pass over a partition:
//
//	offsets   start         cleaned            end          active
//	            │─── clean ────│───── dirty ────│── not yet ──│────
//	  1 map                    ╰─ key → last offset ─╯            as many keys as memory holds
//	  2 rewrite ╰───────────── group by group ─────────╯          records older than the map's go
//	  3 swap                                                      cleaned := where the map ended
//
// End is where the first segment begins that compaction must not touch: the active
// one, one that reaches beyond Stable (so that every transaction in front of it has
// ended), or one with records younger than min.compaction.lag.ms.
//
// What else goes, see pass.keep: records of aborted transactions; tombstones and
// transaction markers once their delete horizon has passed (KIP-534: the horizon
// is written into the batch by the pass that found nothing else kept it). Offsets
// do not change, a batch that shrinks keeps its last offset and its codec. The
// partition's last batch stays, without records if it has to.
//
// The swap of a group is one change of the partition's list of segments, which the
// next checkpoint makes durable; until then a crash brings the old files back.
type compactor struct {
	e *Engine
	// horizons is when a partition has something to drop even if nothing new was
	// written: the earliest delete horizon in it. noHorizon: never; absent: nobody has
	// looked since the engine was opened. One turn of the job runs at a time.
	horizons map[*Partition]model.Timestamp
	// broken partitions hold bytes a pass could not read; they are left alone until the
	// next start.
	broken map[*Partition]bool
}

const noHorizon = model.Timestamp(1<<63 - 1)

func newCompactor(e *Engine) *compactor {
	return &compactor{e: e, horizons: make(map[*Partition]model.Timestamp), broken: make(map[*Partition]bool)}
}

// run compacts partitions, the one most in need first, until none is in need. One
// that a pass does not bring forward has to wait for the next turn.
func (c *compactor) run(ctx context.Context, id uint64) error {
	var errs []error
	stuck := make(map[*Partition]bool)
	for ctx.Err() == nil {
		p, w := c.choose(stuck)
		if p == nil {
			break
		}
		cleaned := p.cleaned.Load()
		if err := c.compact(ctx, id, p, w); err != nil {
			errs = append(errs, fmt.Errorf("compact %s: %w", p.Name(), err))
			_, c.broken[p] = errors.AsType[*CorruptionError](err)
		}
		stuck[p] = p.cleaned.Load() == cleaned
	}
	return errors.Join(errs...)
}

// choose finds the partition with the largest need.
func (c *compactor) choose(stuck map[*Partition]bool) (chosen *Partition, work cleanable) {
	all := c.e.all()
	c.forget(all)
	for _, p := range all {
		if !p.Config().Compact || p.Err() != nil || c.broken[p] || stuck[p] {
			continue
		}
		if w := c.need(p); w.due && (chosen == nil || work.ratio < w.ratio) {
			chosen, work = p, w
		}
	}
	return chosen, work
}

// forget drops what is known of partitions that are gone.
func (c *compactor) forget(all []*Partition) {
	for p := range c.horizons {
		if !slices.Contains(all, p) {
			delete(c.horizons, p)
		}
	}
	for p := range c.broken {
		if !slices.Contains(all, p) {
			delete(c.broken, p)
		}
	}
}

// need looks at one partition; segments that are due for compaction but still
// active are rolled first.
func (c *compactor) need(p *Partition) cleanable {
	config, now := p.Config(), c.e.nowMillis()
	segments := p.segments()
	if len(segments) == 0 {
		return cleanable{}
	}
	if last := segments[len(segments)-1]; p.aged(last, &config, now) || overdue(last.Meta(), config, now) {
		if p.roll(last, last.Meta().Next) {
			segments = p.segments()
		}
	}
	cleaned := model.Offset(p.cleaned.Load())
	w := chooseCleanable(describeSegments(segments), config, p.Bounds(), cleaned, now)
	if !w.due && w.segments > 0 {
		w.due = c.horizon(p, segments[:w.segments], cleaned) <= model.Timestamp(now)
	}
	return w
}

// horizon is the earliest delete horizon below cleaned; after a start it is looked
// up in the batches' headers.
func (c *compactor) horizon(p *Partition, segments []*segment.Segment, cleaned model.Offset) model.Timestamp {
	if h, known := c.horizons[p]; known {
		return h
	}
	earliest := noHorizon
	for _, s := range segments {
		if s.Base() >= cleaned {
			break
		}
		// An error is met again, and reported, by the next pass.
		_ = s.Headers(0, s.Size(), func(h *batch.Header, _ int64) bool {
			if h.Attributes.HasDeleteHorizon() {
				earliest = min(earliest, h.BaseTimestamp)
			}
			return true
		})
	}
	c.horizons[p] = earliest
	return earliest
}

// cleanable is what a pass would look at.
type cleanable struct {
	segments int          // from the oldest on
	end      model.Offset // where they end
	ratio    float64      // of their bytes, how many no pass has seen
	due      bool
}

// overdue says that a segment's first record has waited for compaction as long as
// max.compaction.lag.ms lets it.
func overdue(m segment.Meta, c PartitionConfig, now int64) bool {
	return c.MaxCompactionLag > 0 && m.Size > 0 && now-m.Created >= c.MaxCompactionLag.Milliseconds()
}

// chooseCleanable decides how far a pass may go and whether it is worth it.
func chooseCleanable(segments []segment.Meta, c PartitionConfig, b model.Bounds, cleaned model.Offset, now int64) (w cleanable) {
	var dirty, all int64
	late := false
	for i, m := range segments[:max(len(segments)-1, 0)] {
		if endOf(segments, i) > min(b.Stable, b.High) {
			break
		}
		if lag := c.MinCompactionLag.Milliseconds(); lag > 0 && now-youngest(segments, i, now) < lag {
			break
		}
		w.segments, w.end, all = i+1, endOf(segments, i), all+m.Size
		if endOf(segments, i) > cleaned {
			dirty += m.Size
			late = late || overdue(m, c, now)
		}
	}
	if all > 0 {
		w.ratio = float64(dirty) / float64(all)
	}
	w.due = dirty > 0 && (w.ratio >= c.MinDirtyRatio || late)
	return w
}

// compact makes one pass over a partition.
func (c *compactor) compact(ctx context.Context, id uint64, p *Partition, w cleanable) error {
	began := time.Now()
	v, err := p.view()
	if err != nil {
		return nil // deleted meanwhile
	}
	ps := newPass(p, v, w.end, model.Timestamp(c.e.nowMillis()), c.e.o.CleanerMemoryBytes)
	if err := ps.fillMap(ctx); err != nil {
		return err
	}
	for _, group := range groupSegments(ps.segments, p.Config().SegmentBytes) {
		if done, err := ps.rewrite(ctx, group); err != nil || !done {
			return err
		}
	}
	p.setCleaned(ps.end)
	c.horizons[p] = ps.horizon
	if report := c.e.o.Events.Compacted; report != nil {
		report(Compacted{
			Job: id, Partition: p.tp, BytesBefore: ps.before, BytesAfter: ps.after, RecordsRemoved: ps.removed, Took: time.Since(began),
		})
	}
	return nil
}

// setCleaned is called when the segments in the list are clean up to an offset. The
// append lock orders it behind the swap for whoever captures both under that lock.
func (p *Partition) setCleaned(o model.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleaned.Store(max(int64(o), p.cleaned.Load()))
}

// groupSegments splits segments into runs that fit into one each, so that what many
// passes have thinned out does not stay in many files.
func groupSegments(segments []*segment.Segment, limit int64) (groups [][]*segment.Segment) {
	var size int64
	for _, s := range segments {
		n := len(groups)
		if n == 0 || size+s.Size() > min(limit, maxSegmentBytes) || !groups[n-1][0].Fits(s.Meta().Next) {
			groups, size = append(groups, nil), 0
			n++
		}
		groups[n-1] = append(groups[n-1], s)
		size += s.Size()
	}
	return groups
}
