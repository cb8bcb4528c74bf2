package storage

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/producer"
	"github.com/perigeemq/perigee/storage/segment"
)

// The payload of a checkpoint, big endian; the file around it has the checksum.
//
//	version 4 │ partitions 4 │ partition …
//
//	partition:  topic 16 │ number 4 │ start 8 │ end 8 │ cleaned 8
//	            epochs 4   │ { epoch 4 │ start 8 } …
//	            segments 4 │ { base 8 │ generation 4 │ size 8 │ next 8 │
//	                           max timestamp 8 │ its base 8 │ created 8 } …
//	            producers, see package producer
const (
	payloadVersion  = 1
	partitionBytes  = 16 + 4 + 3*8 + 3*4
	epochStartBytes = 12
	metaBytes       = 8 + 4 + 5*8
)

// partitionState is one partition as a checkpoint holds it.
type partitionState struct {
	tp                  model.TopicPartition
	start, end, cleaned model.Offset
	epochs              epochs
	segments            []segment.Meta
	producers           *producer.Table
}

func beginPayload(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, payloadVersion), 0)
}

func finishPayload(b []byte, partitions int) []byte {
	binary.BigEndian.PutUint32(b[4:], uint32(partitions))
	return b
}

// appendState encodes the sequenced state. The append lock is held.
func (p *Partition) appendState(b []byte, segments []*segment.Segment) []byte {
	be := binary.BigEndian
	b = append(b, p.tp.Topic[:]...)
	b = be.AppendUint32(b, uint32(p.tp.Partition))
	b = be.AppendUint64(b, uint64(p.mu.start))
	b = be.AppendUint64(b, uint64(p.end.Load()))
	b = be.AppendUint64(b, uint64(p.cleaned.Load()))
	history := *p.epochs.Load()
	b = be.AppendUint32(b, uint32(len(history)))
	for _, h := range history {
		b = be.AppendUint32(b, uint32(h.Epoch))
		b = be.AppendUint64(b, uint64(h.Start))
	}
	b = be.AppendUint32(b, uint32(len(segments)))
	for _, s := range segments {
		m := s.Meta()
		b = be.AppendUint64(b, uint64(m.Base))
		b = be.AppendUint32(b, m.Generation)
		b = be.AppendUint64(b, uint64(m.Size))
		b = be.AppendUint64(b, uint64(m.Next))
		b = be.AppendUint64(b, uint64(m.MaxTimestamp))
		b = be.AppendUint64(b, uint64(m.MaxTimestampBase))
		b = be.AppendUint64(b, uint64(m.Created))
	}
	return p.mu.producers.AppendTo(b)
}

var errPayload = errors.New("checkpoint payload")

// decodePayload calls fn for every partition of a checkpoint.
func decodePayload(b []byte, fn func(*partitionState) error) error {
	r := &cursor{b: b}
	if v := r.uint32(); v != payloadVersion {
		return fmt.Errorf("%w: version %d", errPayload, v)
	}
	for range r.count(partitionBytes) {
		s, err := decodeState(r)
		if err != nil {
			return err
		}
		if err := fn(s); err != nil {
			return err
		}
	}
	if r.short || len(r.b) > 0 {
		return fmt.Errorf("%w: cut off, or %d bytes too long", errPayload, len(r.b))
	}
	return nil
}

func decodeState(r *cursor) (*partitionState, error) {
	s := &partitionState{}
	copy(s.tp.Topic[:], r.take(len(s.tp.Topic)))
	s.tp.Partition = int32(r.uint32())
	s.start, s.end, s.cleaned = r.offset(), r.offset(), r.offset()
	for range r.count(epochStartBytes) {
		s.epochs = append(s.epochs, epochStart{Epoch: model.LeaderEpoch(r.uint32()), Start: r.offset()})
	}
	for range r.count(metaBytes) {
		s.segments = append(s.segments, segment.Meta{
			ID:   segment.ID{Base: r.offset(), Generation: r.uint32()},
			Size: int64(r.uint64()), Next: r.offset(),
			MaxTimestamp: model.Timestamp(r.uint64()), MaxTimestampBase: r.offset(),
			Created: int64(r.uint64()),
		})
	}
	if r.short || s.start < 0 || s.end < s.start {
		return nil, fmt.Errorf("%w: partition %s from %d to %d", errPayload, s.tp, s.start, s.end)
	}
	for i, m := range s.segments {
		if m.Base < 0 || m.Size < 0 || m.Next < m.Base || i > 0 && m.Base < s.segments[i-1].Next {
			return nil, fmt.Errorf("%w: partition %s, segment %d of %d bytes up to %d", errPayload, s.tp, m.Base, m.Size, m.Next)
		}
	}
	table, rest, err := producer.Decode(r.b)
	if err != nil {
		return nil, fmt.Errorf("%w: partition %s: %w", errPayload, s.tp, err)
	}
	s.producers, r.b = table, rest
	return s, nil
}

// cursor hands out numbers and remembers having run out of bytes.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if len(c.b) < n {
		c.b, c.short = nil, true
		return make([]byte, n)
	}
	taken := c.b[:n]
	c.b = c.b[n:]
	return taken
}

func (c *cursor) uint32() uint32       { return binary.BigEndian.Uint32(c.take(4)) }
func (c *cursor) uint64() uint64       { return binary.BigEndian.Uint64(c.take(8)) }
func (c *cursor) offset() model.Offset { return model.Offset(c.uint64()) }

// count reads a number of elements of at least size bytes each, 0 when so many
// cannot be there.
func (c *cursor) count(size int) int {
	n := int64(c.uint32())
	if n*int64(size) > int64(len(c.b)) {
		c.short = true
		return 0
	}
	return int(n)
}
