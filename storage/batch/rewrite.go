package batch

import (
	"encoding/binary"
	"io"
	"math"

	"github.com/perigeemq/perigee/storage/model"
)

// StampAppendTime makes now the timestamp of every record (KIP-32's
// LogAppendTime). It patches the attributes and the max timestamp in the shared
// bytes and recomputes the checksum; only the owner of the bytes may call it.
func (v View) StampAppendTime(now model.Timestamp) {
	binary.BigEndian.PutUint16(v.b[posAttributes:], uint16(v.Attributes()|attrLogAppendTime))
	v.setMaxTimestamp(now)
}

// setMaxTimestamp corrects the header of a producer that got it wrong, as Kafka
// does; time lookups rely on it.
func (v View) setMaxTimestamp(t model.Timestamp) {
	binary.BigEndian.PutUint64(v.b[posMaxTimestamp:], uint64(t))
	v.seal()
}

// Recompress returns the batch with its records in another codec, in memory of
// its own. Records pass through in a stream, so that memory is bounded by
// batchLimitBytes, which the result may not pass (ErrTooLarge; 0 is no limit),
// and not by what the records expand to (plainLimitBytes, ErrDecompressedTooLarge).
func (v View) Recompress(c Codec, batchLimitBytes int, plainLimitBytes int64) (View, error) {
	if batchLimitBytes <= 0 {
		batchLimitBytes = math.MaxInt32
	}
	return assemble(v.Header(), c, batchLimitBytes, func(w io.Writer) error {
		if v.Compression() == None {
			_, err := w.Write(v.payload())
			return err
		}
		r, err := decompress(v.Compression(), v.payload(), plainLimitBytes)
		if err != nil {
			return err
		}
		defer r.release()
		_, err = io.Copy(w, r)
		return err
	})
}

// Empty returns a batch without records, which takes offsets that are lost.
func Empty(from, to model.Offset) View {
	b := appendHeader(make([]byte, 0, HeaderBytes), &Header{
		BaseOffset: from, LastOffsetDelta: int32(to - from),
		BaseTimestamp: model.NoTimestamp, MaxTimestamp: model.NoTimestamp,
		ProducerID: model.NoProducerID, ProducerEpoch: model.NoProducerEpoch, BaseSequence: model.NoSequence,
	})
	return finish(b)
}

// FilterOptions says what compaction keeps of a batch.
type FilterOptions struct {
	// Keep is asked for every record in order. Its bytes are good during the call.
	Keep func(Record) bool
	// DeleteHorizon is set on the batch if it has none yet, unless it is
	// model.NoTimestamp (KIP-534): the time from which tombstones and markers in it may go.
	DeleteHorizon model.Timestamp
	// LimitBytes bounds the decompressed records; see MaxDecompressedBytes.
	LimitBytes int64
}

// Filter returns the batch without the records Keep refuses, and how many are
// left. Offsets, producer, sequences and the last offset stay as they were, also
// when nothing is left: whether an empty batch is still needed, for its
// producer's last sequence, is the caller's to say. Nothing to change
// returns v itself; otherwise the result has memory of its own.
func (v View) Filter(o FilterOptions) (View, int, error) {
	setHorizon := o.DeleteHorizon != model.NoTimestamp && !v.HasDeleteHorizon()
	h := v.Header()
	if setHorizon {
		h.Attributes |= attrDeleteHorizon
		h.BaseTimestamp = o.DeleteHorizon
	}
	var body []byte
	kept, latest := int32(0), model.NoTimestamp
	for r, err := range v.Records(o.LimitBytes) {
		if err != nil {
			return View{}, 0, err
		}
		if !o.Keep(r) {
			continue
		}
		delta := int32(r.Offset - h.BaseOffset)
		body = appendRecord(body, int64(r.Timestamp-h.BaseTimestamp), delta, r.Key, r.Value, r.Headers)
		kept, latest = kept+1, max(latest, r.Timestamp)
	}
	if kept == h.Count && !setHorizon {
		return v, int(kept), nil
	}
	h.Count = kept
	codec := DefaultCodec(v.Compression())
	if kept == 0 {
		codec, h.MaxTimestamp = Codec{}, model.NoTimestamp
	} else if v.TimestampType() == CreateTime {
		h.MaxTimestamp = latest
	}
	filtered, err := assemble(h, codec, math.MaxInt32, func(w io.Writer) error {
		_, err := w.Write(body)
		return err
	})
	return filtered, int(kept), err
}
