package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// mend is a repair's look at every batch of a partition of which checkpoint and
// journal know everything but the bytes. A segment with damage is written again, as
// compaction would, without what cannot be read:
//
//	file  │ sound │ damaged │ sound │ sound │ cut off
//	new   │ sound │ sound │ sound │             offsets as they were, with holes
//
// Bounds, producers and epochs stay what they were. The old files go once two
// checkpoints do without them, so that a crash in between changes nothing.
func (r *recovery) mend(p *Partition) error {
	old := p.vis.segments
	segments := make([]*segment.Segment, 0, len(old)+1)
	for i, s := range old {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		m := mender{p: p, s: s, next: s.Base(), bound: model.Offset(p.end.Load())}
		if i+1 < len(old) {
			m.bound = old[i+1].Base()
		}
		mended, err := m.run()
		if err != nil {
			return fmt.Errorf("mend %s: %w", s.Path(), err)
		}
		if mended != s {
			r.repaired, r.mended[s.Path()] = true, true
			p.e.discard([]*segment.Segment{s}, nil, 0)
			p.e.o.Events.partitionRecovered(p.tp, fmt.Sprintf("mended %s: %s", s.Path(), m.what()))
		}
		if mended != nil {
			segments = append(segments, mended)
		}
	}
	if p.mu.active != nil && !slices.Contains(segments, p.mu.active) {
		// What comes next goes into a new one: positions in a mended file are not those
		// the journal has named.
		p.mu.active = p.newSegment(segment.Meta{ID: segment.ID{Base: model.Offset(p.end.Load())}, Created: r.now})
		segments = append(segments, p.mu.active)
	}
	p.vis.segments = segments
	return nil
}

// mender looks at one segment.
type mender struct {
	p     *Partition
	s     *segment.Segment
	raw   *segment.Segment // the same file, of which nothing is believed
	size  int64            // of the file, as far as it belongs to the log
	next  model.Offset     // where the log goes on behind the pieces
	bound model.Offset     // of the segment's offsets

	pieces []piece
	// What is wrong: bytes that cannot be read, and batches whose offset or epoch is
	// another, for which no checksum speaks.
	lost      int64
	corrected int
}

// piece is a run of sound batches as they stand, or a single one to be put right.
type piece struct {
	from, to int64
	fixed    batch.View
}

func (m *mender) what() string {
	return fmt.Sprintf("%d bytes cannot be read, %d batches had a wrong offset or epoch", m.lost, m.corrected)
}

// run returns the segment itself when it is sound, else what takes its place: nil
// when nothing of it can be read.
func (m *mender) run() (*segment.Segment, error) {
	if m.s.Size() == 0 {
		return m.s, nil
	}
	// What the replay has put into it goes to the file, unless that is damaged itself.
	if err := m.s.Flush(); err != nil && !isDamage(err) {
		return nil, err
	}
	info, err := m.p.e.o.FS.Stat(m.s.Path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	m.size = min(info.Size, m.s.Size())
	m.lost = m.s.Size() - m.size
	m.raw = m.p.newSegment(segment.Meta{ID: m.s.ID()})
	if m.size > 0 {
		if err := m.survey(); err != nil {
			return nil, errors.Join(err, m.raw.Close())
		}
	}
	m.mark(m.bound)
	if end := model.Offset(m.p.end.Load()); m.bound == end && m.next < end {
		// Clients that read up to the end have to get there, see pass.last.
		v := batch.Empty(m.next, end-1)
		v.SetLeaderEpoch(m.p.EpochAt(m.next))
		m.pieces = append(m.pieces, piece{fixed: v})
	}
	if m.lost == 0 && m.corrected == 0 {
		return m.s, m.raw.Close()
	}
	out := output{p: m.p, group: []*segment.Segment{m.s}}
	err = m.write(&out)
	if err == nil {
		err = out.finish()
	}
	if err != nil {
		return nil, errors.Join(err, out.discard(), m.raw.Close())
	}
	if out.segment != nil {
		out.segment.Seal()
	}
	return out.segment, m.raw.Close()
}

// survey walks the file from sound batch to sound batch.
func (m *mender) survey() error {
	for pos := int64(0); pos < m.size; {
		at, v, err := m.find(pos)
		if err != nil {
			return err
		}
		m.lost += at - pos
		if v.IsZero() {
			return nil
		}
		pos = at + int64(v.Len())
		base, ok, err := m.place(v, pos)
		switch {
		case err != nil:
			return err
		case !ok:
			m.lost += int64(v.Len())
		default:
			m.keep(v, at, base)
		}
	}
	return nil
}

func (m *mender) keep(v batch.View, at int64, base model.Offset) {
	m.mark(base)
	epoch := v.LeaderEpoch()
	if known := m.p.EpochAt(base); known != model.NoLeaderEpoch && base >= m.p.mu.start {
		epoch = known
	}
	switch n := len(m.pieces); {
	case base != v.BaseOffset() || epoch != v.LeaderEpoch():
		v.SetBaseOffset(base)
		v.SetLeaderEpoch(epoch)
		m.corrected++
		m.pieces = append(m.pieces, piece{fixed: v})
	case n > 0 && m.pieces[n-1].to == at && at > 0:
		m.pieces[n-1].to = at + int64(v.Len())
	default:
		m.pieces = append(m.pieces, piece{from: at, to: at + int64(v.Len())})
	}
	m.next = v.NextOffset()
}

// mark puts back the markers of rolled back transactions that stood in front of an
// offset, behind what was kept: a reader that is told of the transaction waits for it.
func (m *mender) mark(to model.Offset) {
	aborted := m.p.mu.producers.Aborted()
	i, _ := slices.BinarySearchFunc(aborted, m.next, func(a producer.Aborted, o model.Offset) int { return int(min(max(a.Last-o, -1), 1)) })
	for ; i < len(aborted) && aborted[i].Last < to; i++ {
		a := aborted[i]
		identity := model.ProducerIdentity{ID: a.ProducerID}
		for _, s := range m.p.mu.producers.States() {
			if s.ID == a.ProducerID {
				identity.Epoch = s.Epoch
			}
		}
		v := batch.NewMarker(batch.Marker{Type: batch.Abort, Producer: identity, Timestamp: m.s.Meta().MaxTimestamp})
		v.SetBaseOffset(a.Last)
		v.SetLeaderEpoch(m.p.EpochAt(a.Last))
		m.pieces = append(m.pieces, piece{fixed: v})
		m.next = a.Last + 1
	}
}

// place says at which offset a batch stands that ends at a position; false when that
// cannot be told. The offset is not under the batch's checksum, so that it must fit
// between what comes before and behind it.
func (m *mender) place(v batch.View, end int64) (base model.Offset, ok bool, err error) {
	n := model.Offset(v.LastOffsetDelta()) + 1
	base = v.BaseOffset()
	if base == m.next && base+n <= m.bound {
		return base, true, nil
	}
	limit := m.bound
	if end < m.size {
		follower, err := m.sound(end)
		if err != nil {
			return 0, false, err
		}
		if !follower.IsZero() && follower.BaseOffset() >= m.next+n && follower.BaseOffset() < m.bound {
			limit = follower.BaseOffset()
		}
	}
	if base >= m.next && base+n <= limit {
		return base, true, nil
	}
	return m.next, m.next+n == limit, nil
}

// find is the first sound batch from a position on, a zero View when there is none.
func (m *mender) find(pos int64) (at int64, v batch.View, err error) {
	if v, err = m.sound(pos); err != nil || !v.IsZero() {
		return pos, v, err
	}
	// The length may be right though something else is not.
	head := make([]byte, batch.HeaderBytes)
	if m.size-pos >= batch.HeaderBytes && m.raw.Read(head, pos) == nil {
		if h, err := batch.ParseHeader(head); err == nil && int64(h.Len) <= m.size-pos {
			at = pos + int64(h.Len)
			if v, err = m.sound(at); err != nil || !v.IsZero() || at == m.size {
				return at, v, err
			}
		}
	}
	return m.scan(pos + 1)
}

// scan looks for a sound batch byte by byte.
func (m *mender) scan(pos int64) (at int64, v batch.View, err error) {
	for m.size-pos >= batch.HeaderBytes {
		window := make([]byte, min(scanBytes, m.size-pos))
		if err := m.raw.Read(window, pos); err != nil {
			return 0, batch.View{}, err
		}
		i := 0
		for ; i+batch.HeaderBytes <= len(window); i++ {
			h, err := batch.ParseHeader(window[i:])
			if err != nil || h.BaseOffset < m.next || h.NextOffset() > m.bound {
				continue
			}
			if v, err = m.sound(pos + int64(i)); err != nil || !v.IsZero() {
				return pos + int64(i), v, err
			}
		}
		pos += int64(i)
	}
	return m.size, batch.View{}, nil
}

// sound is the batch at a position if it is whole and its checksum right, in memory
// of its own.
func (m *mender) sound(pos int64) (batch.View, error) {
	if pos >= m.size {
		return batch.View{}, nil
	}
	v, err := readBatch(m.raw, pos, m.size)
	if _, failed := errors.AsType[*fs.PathError](err); failed {
		return batch.View{}, err
	}
	if err != nil {
		return batch.View{}, nil
	}
	return v, nil
}

// write copies the pieces.
func (m *mender) write(out *output) error {
	for _, part := range m.pieces {
		if !part.fixed.IsZero() {
			if err := out.write(part.fixed.Bytes()); err != nil {
				return err
			}
			continue
		}
		for pos := part.from; pos < part.to; {
			v, err := readBatch(m.raw, pos, part.to)
			if err != nil {
				return err
			}
			if err := out.write(v.Bytes()); err != nil {
				return err
			}
			pos += int64(v.Len())
		}
	}
	return nil
}
