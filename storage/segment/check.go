package segment

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// Check reads the whole log: every batch must be whole, its checksum right, its
// offsets behind those before it; together they must be what the meta says, and an
// index file must say where they are. fn sees every good batch; the View is good
// until it returns. Damage is handed to report, and ends the walk where nothing
// behind it can be found. The error is the disk's or fn's.
func (s *Segment) Check(fn func(v batch.View, pos int64) error, report func(*CorruptionError)) error {
	c := &checker{s: s, report: report, maxTimestamp: model.NoTimestamp, next: s.id.Base}
	if err := c.openIndex(); err != nil {
		return err
	}
	size := s.Size()
	for pos := int64(0); pos < size; {
		v, err := s.batchAt(pos, size)
		if damage, ok := errors.AsType[*CorruptionError](err); ok {
			report(damage)
			return nil
		}
		if err != nil {
			return err
		}
		c.batch(v, pos)
		if err := fn(v, pos); err != nil {
			return err
		}
		pos += int64(v.Len())
	}
	c.end()
	return nil
}

// batchAt reads one batch and checks it by itself.
func (s *Segment) batchAt(pos, end int64) (batch.View, error) {
	head := make([]byte, min(batch.HeaderBytes, end-pos))
	if err := s.Read(head, pos); err != nil {
		return batch.View{}, err
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return batch.View{}, s.corrupt(pos, err.Error())
	}
	if int64(h.Len) > end-pos {
		return batch.View{}, s.corrupt(pos, fmt.Sprintf("a batch of %d bytes, %d are left", h.Len, end-pos))
	}
	b := make([]byte, h.Len)
	if err := s.Read(b, pos); err != nil {
		return batch.View{}, err
	}
	v, _, err := batch.Parse(b)
	if err != nil {
		return batch.View{}, s.corrupt(pos, err.Error())
	}
	return v, nil
}

// checker compares a log, batch by batch, with its meta and its index file.
type checker struct {
	s            *Segment
	report       func(*CorruptionError)
	offsets      []offsetEntry // of the index file, those not met yet
	times        []timeEntry
	next         model.Offset
	maxTimestamp model.Timestamp
}

// openIndex loads the index file. None is no damage: it is derived.
func (c *checker) openIndex() error {
	path := c.s.path(c.s.id.IndexName())
	b, err := vfs.ReadFile(c.s.files.fs, path, indexLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	x, covered, reason := decodeIndex(b)
	switch {
	case reason != "":
		c.report(&CorruptionError{File: path, Reason: reason})
	case covered <= c.s.Size(): // a longer one is of what a crash took back, and not used
		c.offsets, c.times = x.offsets, x.times
	}
	return nil
}

func (c *checker) batch(v batch.View, pos int64) {
	base := v.BaseOffset()
	if base < c.next {
		c.report(&CorruptionError{File: c.s.Path(), Offset: pos, Reason: fmt.Sprintf("offset %d, at least %d expected", base, c.next)})
	}
	rel := uint32(base - c.s.id.Base)
	for len(c.offsets) > 0 && int64(c.offsets[0].position) <= pos {
		if e := c.offsets[0]; int64(e.position) != pos || e.offset != rel {
			c.wrongIndex(fmt.Sprintf("offset %d at byte %d, the log has %d at %d", e.offset, e.position, rel, pos))
		}
		c.offsets = c.offsets[1:]
	}
	for len(c.times) > 0 && c.times[0].offset <= rel {
		if t := c.times[0]; t.timestamp < c.maxTimestamp {
			c.wrongIndex(fmt.Sprintf("no timestamp above %d in front of offset %d, the log has %d", t.timestamp, t.offset, c.maxTimestamp))
		}
		c.times = c.times[1:]
	}
	c.next = v.NextOffset()
	c.maxTimestamp = max(c.maxTimestamp, v.MaxTimestamp())
}

func (c *checker) wrongIndex(reason string) {
	c.report(&CorruptionError{File: c.s.path(c.s.id.IndexName()), Reason: reason})
}

// end compares the whole with what checkpoints say of it.
func (c *checker) end() {
	m := c.s.Meta()
	if len(c.offsets) > 0 {
		c.wrongIndex(fmt.Sprintf("%d entries for batches the log does not have", len(c.offsets)))
	}
	if m.Next != c.next || m.MaxTimestamp != c.maxTimestamp {
		c.report(&CorruptionError{File: c.s.Path(), Offset: m.Size, Reason: fmt.Sprintf(
			"ends in front of offset %d with timestamps up to %d, known were %d and %d", c.next, c.maxTimestamp, m.Next, m.MaxTimestamp)})
	}
}
