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

// rebuild makes a partition from nothing but its log files: for repairs, when what
// checkpoint and journal say does not fit them. It keeps whole batches with good
// checksums up to the first that is not, and cuts there. The files it gives up stay
// until a start after a crash tidies.
func (p *Partition) rebuild(now int64) (what string, err error) {
	ids, err := p.logFiles()
	if err != nil {
		return "", err
	}
	if err := p.dropIndexes(); err != nil {
		return "", err
	}
	for _, s := range p.vis.segments {
		// What the replay has put into it goes to the file. If that is not possible the
		// file does without.
		_ = s.Flush()
	}
	ids = trusted(ids, p.vis.segments)
	expected := model.Offset(p.end.Load())
	p.mu.active, p.mu.producers, p.vis.segments = nil, producer.Table{}, nil
	p.epochs.Store(&epochs{})
	next := model.NoOffset
	for n, id := range ids {
		if id.Base < next {
			continue // replaced by a compaction that reaches further
		}
		s, whole, err := p.rebuildSegment(id, now)
		if err != nil {
			return "", err
		}
		if s.Size() > 0 {
			p.vis.segments = append(p.vis.segments, s)
			next = s.Meta().Next
		}
		if !whole {
			what = fmt.Sprintf("cut %s at byte %d, gave up %d files behind it; ", s.Path(), s.Size(), len(ids)-n-1)
			break
		}
	}
	if n := len(p.vis.segments); n > 0 {
		p.mu.start = max(p.mu.start, p.vis.segments[0].Base())
		for _, s := range p.vis.segments[:n-1] {
			s.Seal()
		}
	}
	end := max(next, p.mu.start)
	p.mu.start = min(p.mu.start, end)
	p.end.Store(int64(end))
	p.cleaned.Store(0)
	return fmt.Sprintf("%soffsets %d to %d, expected up to %d", what, p.mu.start, end, expected), nil
}

// dropIndexes removes every index file. They describe what is about to be cut or
// given up, and a later segment of the same base and length would believe them; what
// is kept gets new ones.
func (p *Partition) dropIndexes() error {
	entries, err := p.e.o.FS.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, i := range entries {
		if _, isLog, ours := segment.ParseName(i.Name); ours && !isLog {
			if err := p.e.o.FS.Remove(p.dir + "/" + i.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// logFiles lists the log files by base, of one base the newest generation first.
func (p *Partition) logFiles() ([]segment.ID, error) {
	entries, err := p.e.o.FS.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []segment.ID
	for _, i := range entries {
		if id, isLog, ok := segment.ParseName(i.Name); ok && isLog {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b segment.ID) int {
		if a.Base != b.Base {
			return int(min(max(a.Base-b.Base, -1), 1))
		}
		return int(int64(b.Generation) - int64(a.Generation))
	})
	return ids, nil
}

// trusted leaves out files beside those that the partition was known to consist of:
// what a compaction that a crash interrupted has written so far, and what an earlier
// one has replaced. When some of the known files are missing the others may have what
// was in them; then only those of the same base are left out.
func trusted(ids []segment.ID, known []*segment.Segment) []segment.ID {
	listed, there := make(map[segment.ID]bool), make(map[model.Offset]bool)
	for _, s := range known {
		if listed[s.ID()] = true; slices.Contains(ids, s.ID()) {
			there[s.Base()] = true
		}
	}
	complete := len(known) > 0 && len(there) == len(known)
	return slices.DeleteFunc(ids, func(id segment.ID) bool { return !listed[id] && (complete || there[id.Base]) })
}

// rebuildSegment reads a log file batch by batch. whole is false when it has been
// cut.
func (p *Partition) rebuildSegment(id segment.ID, now int64) (s *segment.Segment, whole bool, err error) {
	s = p.newSegment(segment.Meta{ID: id})
	info, err := p.e.o.FS.Stat(s.Path())
	if err != nil {
		return nil, false, err
	}
	for pos := int64(0); pos < info.Size; pos = s.Size() {
		v, err := readBatch(s, pos, info.Size)
		if err != nil || v.BaseOffset() < s.Meta().Next {
			_, err := s.Cut()
			return s, false, err
		}
		h := v.Header()
		if h.ProducerID != model.NoProducerID {
			if b, err := describe(&h, v); err == nil {
				p.mu.producers.Apply(&b, p.mu.producers.Plan(&b), now)
			}
		}
		p.commitLocked(&h, s, now)
	}
	return s, true, nil
}

// readBatch reads one whole batch in front of position end.
func readBatch(s *segment.Segment, pos, end int64) (batch.View, error) {
	head := make([]byte, min(batch.HeaderBytes, end-pos))
	if err := s.Read(head, pos); err != nil {
		return batch.View{}, err
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return batch.View{}, err
	}
	if int64(h.Len) > end-pos {
		return batch.View{}, batch.ErrTruncated
	}
	b := make([]byte, h.Len)
	if err := s.Read(b, pos); err != nil {
		return batch.View{}, err
	}
	v, _, err := batch.Parse(b)
	return v, err
}
