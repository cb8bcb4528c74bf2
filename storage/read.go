package storage

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"math"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// ReadRequest asks for whole batches from an offset on.
type ReadRequest struct {
	From        model.Offset
	MaxBytes    int
	MinOneBatch bool // return the first batch even if it is larger than MaxBytes
	Isolation   model.Isolation
}

// AbortedTxn is a rolled back transaction a read_committed reader has to hide.
type AbortedTxn = producer.Aborted

// maxAborted bounds the list of one read: far above what is met, far below what
// clients refuse (librdkafka: a million). The slice ends early instead.
const maxAborted = 10_000

// Read is what one read found. Release its Slice.
type Read struct {
	Slice  *Slice // nil when there is nothing to return
	Bounds model.Bounds
	// Aborted is nil unless read_committed, then not nil, sorted by First, for
	// [From, Next).
	Aborted []AbortedTxn
	Next    model.Offset // where to read on
}

// Read returns whole batches of one segment from the one that holds From. An
// offset between what is visible and End is not an error: there is nothing yet.
// Errors: ErrOffsetOutOfRange (with Bounds filled in), ErrPartitionDeleted,
// ErrPartitionOffline (also when this read found the damage), ErrStorageFull.
func (p *Partition) Read(r ReadRequest) (Read, error) {
	read, _, err := retryRemoved(func() (Read, bool, error) {
		v, err := p.view()
		if err != nil {
			return Read{}, false, err
		}
		read, err := p.readView(v, &r)
		return read, err == nil, err
	})
	return read, p.distrust(err)
}

// distrust takes the partition offline when a read met bytes that cannot be what
// was written, or files that cannot be read: what else of it is damaged nobody
// knows. A reader also meets what a writer does, because what gathers in memory
// goes to the file when somebody wants to read it; no space passes.
func (p *Partition) distrust(err error) error {
	if damage, ok := errors.AsType[*CorruptionError](err); ok {
		return p.offline(damage)
	}
	if _, ok := errors.AsType[*iofs.PathError](err); ok {
		return p.e.writeError(p, err)
	}
	return err
}

func (p *Partition) readView(v *view, r *ReadRequest) (Read, error) {
	read := Read{Bounds: v.Bounds, Next: r.From}
	if r.Isolation == model.ReadCommitted {
		read.Aborted = []AbortedTxn{}
	}
	if r.From < v.Start || r.From > v.End {
		return read, fmt.Errorf("%w: %d of %s, which has %d to %d", ErrOffsetOutOfRange, r.From, p.Name(), v.Start, v.End)
	}
	stop := v.Visible(r.Isolation)
	if r.From >= stop {
		return read, nil
	}
	at, ok, err := p.locate(v, r.From, stop)
	if err != nil {
		return read, err
	}
	if !ok {
		read.Next = stop
		return read, nil
	}
	s := v.segments[at.n]
	x, err := p.measure(v, at, r, stop)
	if err != nil {
		return read, err
	}
	if r.Isolation == model.ReadCommitted {
		chosen, upper := producer.SelectAborted(v.aborted, r.From, x.Next, maxAborted)
		if upper < x.Next {
			if x, err = p.measure(v, at, r, upper); err != nil {
				return read, err
			}
		}
		read.Aborted = chosen
	}
	p.remember(r.From, x.Next, place{s, x.End})
	if x.End == at.pos {
		return read, nil // not even one batch fits
	}
	f, err := s.Acquire()
	if err != nil {
		return read, err
	}
	read.Slice = &Slice{segment: s, file: f, pos: at.pos, n: int(x.End - at.pos)}
	read.Next = x.Next
	return read, nil
}

// measure decides where the slice ends: at the request's limit, at what may be
// seen, or at the segment's end.
func (p *Partition) measure(v *view, at located, r *ReadRequest, stop model.Offset) (segment.Extent, error) {
	end, next, err := p.visibleEnd(v, at.n, stop)
	if err != nil {
		return segment.Extent{}, err
	}
	if end-at.pos <= int64(r.MaxBytes) {
		return segment.Extent{End: end, Next: next}, nil
	}
	return v.segments[at.n].Measure(at.pos, int64(r.MaxBytes), r.MinOneBatch, end, stop)
}

// Available is how many bytes a read from there could return, over all segments; 0
// when it would fail.
func (p *Partition) Available(from model.Offset, i model.Isolation) int {
	n, _, err := retryRemoved(func() (int64, bool, error) {
		v, err := p.view()
		if err != nil {
			return 0, false, err
		}
		stop := v.Visible(i)
		if from < v.Start || from >= stop {
			return 0, false, nil
		}
		at, ok, err := p.locate(v, from, stop)
		if err != nil || !ok {
			return 0, false, err
		}
		p.remember(from, from, place{v.segments[at.n], at.pos})
		n := -at.pos
		for k := at.n; k < len(v.segments) && (k == at.n || v.segments[k].Base() < stop); k++ {
			end, _, err := p.visibleEnd(v, k, stop)
			if err != nil {
				return 0, false, err
			}
			n += end
		}
		return n, true, nil
	})
	if p.distrust(err) != nil {
		return 0
	}
	return int(min(n, math.MaxInt32))
}

// scanBytes is what Scan reads at once.
const scanBytes = 1 << 20

// Scan walks whole batches from an offset up to High, checking each checksum. The
// View is good until fn returns. An offset below Start begins at Start.
func (p *Partition) Scan(ctx context.Context, from model.Offset, fn func(batch.View) error) error {
	high := p.Bounds().High
	for from < high {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := p.Read(ReadRequest{From: from, MaxBytes: scanBytes, MinOneBatch: true})
		if errors.Is(err, ErrOffsetOutOfRange) && from < r.Bounds.Start {
			from = r.Bounds.Start
			continue
		}
		if err != nil {
			return err
		}
		if r.Slice != nil {
			if err := scanSlice(r.Slice, fn); err != nil {
				return p.distrust(err)
			}
		}
		from = r.Next
	}
	return nil
}

func scanSlice(s *Slice, fn func(batch.View) error) error {
	defer s.Release()
	b, err := s.Bytes()
	if err != nil {
		return err
	}
	for pos := s.pos; len(b) > 0; {
		v, rest, err := batch.Parse(b)
		if err != nil {
			return &CorruptionError{File: s.segment.Path(), Offset: pos, Reason: err.Error()}
		}
		if err := fn(v); err != nil {
			return err
		}
		pos, b = pos+int64(v.Len()), rest
	}
	return nil
}
