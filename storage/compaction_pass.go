package storage

import (
	"context"
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// pass is one compaction of one partition. It belongs to one goroutine.
type pass struct {
	p        *Partition
	segments []*segment.Segment
	aborted  []producer.Aborted
	now      model.Timestamp
	fresh    model.Timestamp // the delete horizon of what becomes droppable now

	keys *keyMap
	// from and end bound the records in the map: first the dirty ones, cut short when
	// the map is full.
	from, end model.Offset

	// last is the partition's last offset. Its batch stays, without records if need be: a
	// client that reads up to the end learns from batches where it is, and nobody may
	// ever write again.
	last model.Offset

	// unended are the producers with records of a transaction whose marker has not been
	// met yet.
	unended map[model.ProducerID]bool
	ended   []model.Offset  // abort markers of the current group that are dropped
	horizon model.Timestamp // the earliest in what was kept

	before, after, removed int64
}

// newPass looks at the sealed segments that end at or in front of an offset.
func newPass(p *Partition, v *view, end model.Offset, now model.Timestamp, memoryBytes int64) *pass {
	n := 0
	for n+1 < len(v.segments) && v.segments[n+1].Base() <= end {
		n++
	}
	ps := &pass{
		p: p, segments: v.segments[:n], aborted: v.aborted,
		now: now, fresh: now + model.Timestamp(p.Config().DeleteRetention.Milliseconds()),
		keys: newKeyMap(memoryBytes), from: max(model.Offset(p.cleaned.Load()), v.Start),
		last: v.High - 1, unended: make(map[model.ProducerID]bool), horizon: noHorizon,
	}
	if n > 0 {
		ps.end = v.segments[n].Base()
	}
	return ps
}

// fillMap reads the dirty records. When the map is full the pass ends in front of
// the record it had no room for, inside a batch if need be.
func (ps *pass) fillMap(ctx context.Context) error {
	for _, s := range ps.segments {
		if s.Meta().Next <= ps.from {
			continue
		}
		full := false
		err := scanSegment(ctx, s, func(v batch.View, pos int64) (bool, error) {
			if v.LastOffset() < ps.from || v.IsControl() || ps.isAborted(v) {
				return true, nil
			}
			var err error
			full, err = ps.addKeys(v)
			return !full, at(s, pos, err)
		})
		if err != nil || full {
			return err
		}
	}
	return nil
}

func (ps *pass) addKeys(v batch.View) (full bool, err error) {
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		switch {
		case err != nil:
			return false, err
		case r.Key == nil || r.Offset < ps.from:
		case !ps.keys.put(r.Key, r.Offset):
			ps.end = r.Offset
			return true, nil
		}
	}
	return false, nil
}

// isAborted reports whether a batch belongs to a transaction that was rolled back:
// one of its producer that began at or before it and ended behind it.
func (ps *pass) isAborted(v batch.View) bool {
	if !v.IsTransactional() || v.IsControl() {
		return false
	}
	o, id := v.BaseOffset(), v.ProducerID()
	i := sort.Search(len(ps.aborted), func(i int) bool { return ps.aborted[i].Last > o })
	for ; i < len(ps.aborted); i++ {
		a := &ps.aborted[i]
		if a.ProducerID == id && a.First <= o {
			return true
		}
		if a.Stable > o {
			return false // every later one begins behind the batch
		}
	}
	return false
}

// verdict is what becomes of a batch.
type verdict uint8

const (
	keepWhole verdict = iota
	keepPart          // through Filter
	dropWhole
)

// decision is a verdict with what Filter needs to carry it out.
type decision struct {
	verdict verdict
	keep    []bool          // by record
	horizon model.Timestamp // to be set, or model.NoTimestamp
}

// judge decides about a batch; it is asked for every batch in order of offsets.
func (ps *pass) judge(v batch.View) (decision, error) {
	if v.IsControl() {
		return ps.judgeMarker(v), nil
	}
	if ps.isAborted(v) {
		ps.removed += int64(v.Count())
		return decision{verdict: dropWhole}, nil
	}
	d, kept, err := ps.judgeRecords(v)
	if err != nil {
		return d, err
	}
	ps.removed += int64(v.Count()) - int64(kept)
	switch {
	case kept > 0:
	case v.LastOffset() < ps.last:
		return decision{verdict: dropWhole}, nil
	case v.Count() == 0:
		return decision{}, nil
	}
	if v.IsTransactional() && kept > 0 {
		ps.unended[v.ProducerID()] = true
	}
	if kept < int(v.Count()) || d.horizon != model.NoTimestamp {
		d.verdict = keepPart
	}
	return d, nil
}

// judgeMarker keeps a marker while a record of its transaction is there, and then
// until the horizon set by the pass that found none. A reader that has met such a
// record meets the marker too, unless it rests for delete.retention.ms in between.
func (ps *pass) judgeMarker(v batch.View) decision {
	id := v.ProducerID()
	needed := ps.unended[id]
	delete(ps.unended, id)
	horizon, set := v.DeleteHorizon()
	switch {
	case needed:
		return decision{}
	case !set:
		ps.horizon = min(ps.horizon, ps.fresh)
		return decision{verdict: keepPart, keep: []bool{true}, horizon: ps.fresh}
	case ps.now < horizon:
		ps.horizon = min(ps.horizon, horizon)
		return decision{}
	case v.LastOffset() >= ps.last:
		return decision{}
	}
	ps.removed++
	ps.ended = append(ps.ended, v.BaseOffset())
	return decision{verdict: dropWhole}
}

func (ps *pass) judgeRecords(v batch.View) (d decision, kept int, err error) {
	d = decision{keep: make([]bool, 0, v.Count()), horizon: model.NoTimestamp}
	horizon, set := v.DeleteHorizon()
	waiting := false // for the horizon
	for r, err := range v.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			return d, 0, err
		}
		keep := ps.keep(r, set, horizon)
		if keep {
			kept++
			waiting = waiting || r.Value == nil && r.Offset < ps.end
		}
		d.keep = append(d.keep, keep)
	}
	switch {
	case waiting && set:
		ps.horizon = min(ps.horizon, horizon)
	case waiting:
		d.horizon = ps.fresh
		ps.horizon = min(ps.horizon, ps.fresh)
	}
	return d, kept, nil
}

// keep decides about one record of a batch without or with a delete horizon.
func (ps *pass) keep(r batch.Record, set bool, horizon model.Timestamp) bool {
	if r.Offset >= ps.end {
		return true // the next pass's
	}
	if r.Key == nil {
		return false // nothing could ever replace it
	}
	if last, known := ps.keys.last(r.Key); known && last > r.Offset {
		return false
	}
	return r.Value != nil || !set || ps.now < horizon
}

// rewrite puts what is left of a group of segments into one file and swaps it in.
// false: the partition has changed or died meanwhile, and the pass with it.
func (ps *pass) rewrite(ctx context.Context, group []*segment.Segment) (done bool, err error) {
	ps.ended = ps.ended[:0]
	out := &output{p: ps.p, group: group}
	for _, s := range group {
		ps.before += s.Size()
		err := scanSegment(ctx, s, func(v batch.View, pos int64) (bool, error) {
			d, err := ps.judge(v)
			if err != nil {
				return false, at(s, pos, err)
			}
			return true, out.add(s, pos, v, d)
		})
		if err != nil {
			return false, errors.Join(err, out.discard())
		}
	}
	if out.unchanged() {
		ps.after += group[0].Size()
		return true, nil
	}
	if err := out.finish(); err != nil {
		return false, errors.Join(err, out.discard())
	}
	if err := ps.p.forgetAborted(ctx, ps.ended); err != nil {
		return false, errors.Join(err, out.discard())
	}
	if !ps.p.replaceSegments(group, out.segment) {
		return false, out.discard()
	}
	if out.segment != nil {
		ps.after += out.segment.Size()
	}
	return true, nil
}

// forgetAborted takes aborted transactions off the list before their markers go. A
// reader that is told of one waits for its marker: without it, it would hide
// what the producer wrote later. The other way round is harmless, for the records
// have gone in an earlier pass.
//
// Appends under way carry the list from before; it is visible until they are done.
func (p *Partition) forgetAborted(ctx context.Context, markers []model.Offset) error {
	if len(markers) == 0 {
		return nil
	}
	p.mu.Lock()
	p.mu.producers.Forget(markers)
	p.mu.Unlock()
	if err := p.e.Barrier().Wait(ctx); err != nil {
		return err
	}
	p.vis.Lock()
	defer p.vis.Unlock()
	p.vis.aborted = producer.Without(p.vis.aborted, markers)
	return nil
}

// output is the file a group is rewritten into. Batches that stay as they are are
// remembered as a run of bytes and copied together; a group of one segment that
// consists of nothing else needs no file.
type output struct {
	p       *Partition
	group   []*segment.Segment
	segment *segment.Segment // nil until there is something to write
	run     run
}

// run is bytes of a segment that are to be copied as they are.
type run struct {
	segment  *segment.Segment
	from, to int64
}

func (o *output) add(s *segment.Segment, pos int64, v batch.View, d decision) error {
	switch d.verdict {
	case keepWhole:
		end := pos + int64(v.Len())
		if o.run.segment == s && o.run.to == pos {
			o.run.to = end
			return nil
		}
		if err := o.flush(); err != nil {
			return err
		}
		o.run = run{segment: s, from: pos, to: end}
		return nil
	case dropWhole:
		return nil
	}
	i := -1
	filtered, _, err := v.Filter(batch.FilterOptions{
		Keep:          func(batch.Record) bool { i++; return d.keep[i] },
		DeleteHorizon: d.horizon, LimitBytes: batch.MaxDecompressedBytes,
	})
	if err != nil {
		return err
	}
	if err := o.flush(); err != nil {
		return err
	}
	return o.write(filtered.Bytes())
}

// unchanged reports whether the group is one segment of which everything stays.
func (o *output) unchanged() bool {
	s := o.group[0]
	return len(o.group) == 1 && o.segment == nil && o.run == run{segment: s, from: 0, to: s.Size()}
}

// copyBytes is how much of a run is in memory at once.
const copyBytes = 1 << 20

// flush copies the run.
func (o *output) flush() error {
	r := o.run
	o.run = run{}
	if r.segment == nil {
		return nil
	}
	return eachPiece(r.segment, r.from, r.to, copyBytes, o.write)
}

// write appends whole batches.
func (o *output) write(b []byte) error {
	if o.segment == nil {
		o.begin()
	}
	pos := o.segment.Size()
	if err := o.segment.Write(b, pos); err != nil {
		return err
	}
	for len(b) > 0 {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return err
		}
		o.segment.Append(&h, o.group[0].Meta().Created)
		b = b[h.Len:]
	}
	return nil
}

func (o *output) begin() {
	id := segment.ID{Base: o.group[0].Base()}
	for _, s := range o.group {
		id.Generation = max(id.Generation, s.ID().Generation)
	}
	id.Generation++
	o.segment = o.p.newSegment(segment.Meta{ID: id})
}

// finish writes what is left over. The file is synced here, while nobody waits,
// rather than by the checkpoint.
func (o *output) finish() error {
	if err := o.flush(); err != nil || o.segment == nil {
		return err
	}
	if _, err := o.segment.Sync(); err != nil {
		return o.p.e.writeError(o.p, err)
	}
	// A failure costs the next reader time and nothing else.
	_ = o.segment.SaveIndex(math.MaxInt64)
	return nil
}

// discard gives up a file that is in no list.
func (o *output) discard() error {
	if o.segment == nil {
		return nil
	}
	_, err := o.segment.Remove()
	return err
}

// scanSegment walks the batches of a sealed segment, checking each checksum, until
// fn says enough. The View is good until fn returns.
func scanSegment(ctx context.Context, s *segment.Segment, fn func(v batch.View, pos int64) (more bool, err error)) error {
	pos := int64(0)
	return stopped(eachPiece(s, 0, s.Size(), scanBytes, func(b []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		for len(b) > 0 {
			v, rest, err := batch.Parse(b)
			if err != nil {
				return at(s, pos, err)
			}
			more, err := fn(v, pos)
			if err != nil {
				return err
			}
			if !more {
				return errEnough
			}
			pos, b = pos+int64(v.Len()), rest
		}
		return nil
	}))
}

var errEnough = errors.New("enough")

func stopped(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// eachPiece reads part of a segment, which begins and ends with a batch, in pieces of
// whole batches of about the given size. The bytes are good until fn returns.
func eachPiece(s *segment.Segment, from, to int64, size int, fn func([]byte) error) error {
	var buf []byte
	for from < to {
		x, err := s.Measure(from, int64(size), true, to, model.Offset(math.MaxInt64))
		if err != nil {
			return err
		}
		n := int(x.End - from)
		buf = slices.Grow(buf[:0], n)[:n]
		if err := s.Read(buf, from); err != nil {
			return err
		}
		if err := fn(buf); err != nil {
			return err
		}
		from = x.End
	}
	return nil
}

// at says where in a segment something unreadable stands.
func at(s *segment.Segment, pos int64, err error) error {
	if err == nil {
		return nil
	}
	return &CorruptionError{File: s.Path(), Offset: pos, Reason: err.Error()}
}
