package moonmq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// One read of a log takes what the records still wanted might need, within these
// bounds: more would be read again by the next call.
const (
	readLeast, readMost = 64 << 10, 1 << 20
	recordGuess         = 512
)

// pushBytes bounds one round of a push: every subscriber may hold as much.
const pushBytes = 128 << 10

// deliveryBytes bounds one delivery: what is behind it comes with the next. It
// leaves room in the output limit for one more record of any size.
func (f *FrontEnd) deliveryBytes() int { return f.limits.MaxPendingBytes / 4 * 3 }

// delivery is a set of records on their way to the client.
type delivery struct {
	records []wire.Record // their bytes alias what was read for this delivery
	bytes   int           // of the records as frames
	limit   int           // of bytes
	moved   []movedPosition
}

// movedPosition is where a partition continues after the delivery.
type movedPosition struct {
	partitionAt
	to        model.Offset
	delivered int
}

// collectLocked reads up to limit records, of about maxBytes, for the connection
// and moves its positions. On an error nothing has moved.
func (s *session) collectLocked(ctx context.Context, limit, maxBytes int, withHeaders bool) (*delivery, error) {
	d := &delivery{limit: maxBytes}
	if limit <= 0 {
		return d, nil
	}
	partitions, err := s.pollLocked(ctx)
	if err != nil || len(partitions) == 0 {
		return d, err
	}
	share := max(1, (limit+len(partitions)-1)/len(partitions))
	for _, at := range partitions {
		left := min(share, limit-len(d.records))
		if left <= 0 || d.bytes >= d.limit {
			break
		}
		if err := s.readPartition(ctx, d, at, left, withHeaders); err != nil {
			return nil, err
		}
	}
	for _, m := range d.moved {
		m.positions[m.partition] = m.to
	}
	return d, nil
}

// readPartition adds up to limit records of one partition to the delivery.
func (s *session) readPartition(ctx context.Context, d *delivery, at partitionAt, limit int, withHeaders bool) error {
	p, err := s.front.coordinator.Partition(at.topic, at.partition)
	if err != nil {
		return nil // deleted since the poll
	}
	r := &partitionReader{session: s, delivery: d, at: at, max: limit, withHeaders: withHeaders, next: at.positions[at.partition]}
	for !r.full() {
		before := r.next
		read, err := p.Read(storage.ReadRequest{From: r.next, MaxBytes: r.readBytes(), MinOneBatch: true, Isolation: s.consumer.isolation})
		switch {
		case errors.Is(err, storage.ErrOffsetOutOfRange):
			if start := p.Bounds().Start; r.next < start {
				r.next = start
				continue
			}
		case errors.Is(err, storage.ErrPartitionDeleted):
		case err != nil:
			return fail(wire.Internal, fmt.Sprintf("failed to read message: %v", err))
		case read.Slice != nil:
			err = r.walk(ctx, read)
			read.Slice.Release()
			if err != nil {
				return err
			}
		default:
			r.next = max(r.next, read.Next)
		}
		if r.next == before {
			break
		}
	}
	if r.next != at.positions[at.partition] {
		d.moved = append(d.moved, movedPosition{at, r.next, r.count})
	}
	return nil
}

// partitionReader walks batches of one partition.
type partitionReader struct {
	*session
	*delivery
	at          partitionAt
	max         int // records
	withHeaders bool

	next    model.Offset // where to read on
	count   int          // records delivered
	stopped bool         // at a record that has to wait
}

// walk delivers what one read found.
func (r *partitionReader) walk(ctx context.Context, read storage.Read) error {
	rest, err := read.Slice.Bytes()
	for err == nil && len(rest) > 0 && !r.full() {
		var view batch.View
		if view, rest, err = batch.Parse(rest); err == nil {
			err = r.walkBatch(ctx, view, read.Aborted)
		}
	}
	var said *wire.Error
	if err != nil && !errors.As(err, &said) {
		return fail(wire.Internal, fmt.Sprintf("failed to read message: %v", err))
	}
	return err
}

func (r *partitionReader) full() bool {
	return r.count >= r.max || r.bytes >= r.delivery.limit || r.stopped
}

func (r *partitionReader) readBytes() int {
	return min(max((r.max-r.count)*recordGuess, readLeast), readMost, max(r.delivery.limit-r.bytes, readLeast))
}

// walkBatch delivers the records of one batch. Markers are skipped, and for
// readers of committed data the records of aborted transactions.
func (r *partitionReader) walkBatch(ctx context.Context, view batch.View, aborted []storage.AbortedTxn) error {
	if view.IsControl() || view.IsTransactional() && hidden(aborted, view) {
		r.next = max(r.next, view.NextOffset())
		return nil
	}
	for record, err := range view.Records(int64(r.at.topic.Settings.MaxDecompressedBytes)) {
		if err != nil {
			return fail(wire.Internal, fmt.Sprintf("decompress %s/partition-%d offset %d: %v",
				r.at.name, wirePartition(r.at.partition), r.next, err))
		}
		if record.Offset < r.next {
			continue
		}
		if r.full() {
			return nil
		}
		if !r.deliver(ctx, record) {
			r.stopped = true
			return nil
		}
		r.next = record.Offset + 1
	}
	r.next = max(r.next, view.NextOffset())
	return nil
}

// hidden reports whether a batch belongs to an aborted transaction.
func hidden(aborted []storage.AbortedTxn, view batch.View) bool {
	return slices.ContainsFunc(aborted, func(a storage.AbortedTxn) bool {
		return a.ProducerID == view.ProducerID() && a.First <= view.BaseOffset() && view.BaseOffset() <= a.Last
	})
}

// deliver adds one record. False: it has to wait, and what is behind it too.
func (r *partitionReader) deliver(ctx context.Context, record batch.Record) bool {
	out := wire.Record{
		Topic: r.at.name, Partition: wirePartition(r.at.partition), Offset: uint64(record.Offset),
		Timestamp: uint64(max(record.Timestamp, 0)),
		Key:       record.Key, Value: r.front.visibleValue(r.at.name, record), WithHeaders: r.withHeaders,
	}
	if len(out.Key) > wire.MaxString || len(out.Value) > wire.MaxString {
		return r.passOversize(ctx, record.Offset, len(out.Key), len(out.Value))
	}
	if r.withHeaders {
		out.Headers = visibleHeaders(record.Headers)
	}
	r.records = append(r.records, out)
	r.bytes += out.Size(r.withHeaders)
	r.count++
	return true
}

// visibleHeaders are the headers a client of this protocol can be shown.
func visibleHeaders(headers batch.Headers) wire.Headers {
	out := wire.Headers{}
	for h := range headers.All() {
		if len(h.Key) > wire.MaxHeaderName || len(h.Value) > wire.MaxString || len(out) == 65535 {
			continue
		}
		out = append(out, wire.Header{Name: h.Key, Value: h.Value})
	}
	return out
}
