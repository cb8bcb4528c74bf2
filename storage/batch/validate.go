package batch

import (
	"errors"
	"fmt"
	"math"

	"github.com/perigeemq/perigee/storage/model"
)

// What a produce request can be refused for, beside the errors of Parse and the
// decompression's. Kafka's code stands behind each; the front end owns the mapping.
var (
	// ErrBatchCount: not exactly one batch for the partition (INVALID_RECORD).
	ErrBatchCount = errors.New("expected exactly one batch per partition")
	// ErrTooLarge: the batch passes max.message.bytes (MESSAGE_TOO_LARGE).
	ErrTooLarge = errors.New("batch too large")
	// ErrReserved: what only a broker may set: control, delete horizon, a base offset
	// (INVALID_RECORD).
	ErrReserved = errors.New("reserved for the broker")
	// ErrProducer: producer id, epoch, sequence and transactional bit do not go
	// together (INVALID_RECORD).
	ErrProducer = errors.New("inconsistent producer fields")
	// ErrTimestamp: a timestamp outside message.timestamp.before.max.ms and
	// .after.max.ms, or a type only a broker may set (INVALID_TIMESTAMP).
	ErrTimestamp = errors.New("invalid timestamp")
	// ErrKeyRequired: a record without key for a compacted topic (INVALID_RECORD).
	ErrKeyRequired = errors.New("record without a key in a compacted topic")
)

// RecordError says what is wrong with one record of a batch.
type RecordError struct {
	Index   int32 // from 0, in the batch
	Message string
}

// RecordsError lists the records a batch was refused for (KIP-467). Nothing of the
// batch may be stored.
type RecordsError struct {
	Kind    error         // ErrTimestamp or ErrKeyRequired; what errors.Is finds
	Records []RecordError // in order; the first recordErrorsMax of them
	Total   int           // how many there were
}

// recordErrorsMax bounds the list, and so the reply: a client needs to see
// what is wrong, not a million times.
const recordErrorsMax = 1000

func (e *RecordsError) Error() string {
	return fmt.Sprintf("%v: %d records, the first at index %d: %s", e.Kind, e.Total, e.Records[0].Index, e.Records[0].Message)
}

func (e *RecordsError) Unwrap() error { return e.Kind }

// Rules are a topic's demands on a produced batch. The zero value asks only for
// well-formed bytes.
type Rules struct {
	MaxBatchBytes        int   // max.message.bytes, before and after recompression; 0: no limit
	MaxDecompressedBytes int64 // max.decompressed.message.bytes; 0: MaxDecompressedBytes

	// Records dated outside [TimestampMin, TimestampMax] are refused, those without
	// a date (-1) are not; see TimestampBounds. A TimestampMax of 0 turns both off.
	TimestampMin, TimestampMax model.Timestamp

	AppendTime model.Timestamp // not 0: message.timestamp.type is LogAppendTime and this is now
	KeyNeeded  bool            // cleanup.policy includes compact
	Recompress *Codec          // compression.type; nil: "producer", leave it
}

// TimestampBounds computes the bounds for a batch that arrives now, from
// message.timestamp.before.max.ms and .after.max.ms, without overflow.
func TimestampBounds(now model.Timestamp, beforeMaxMs, afterMaxMs int64) (lowest, highest model.Timestamp) {
	lowest, highest = 0, math.MaxInt64
	if beforeMaxMs < int64(now) {
		lowest = now - model.Timestamp(beforeMaxMs)
	}
	if afterMaxMs < math.MaxInt64-int64(now) {
		highest = now + model.Timestamp(afterMaxMs)
	}
	return lowest, highest
}

func (r *Rules) plainLimit() int64 {
	if r.MaxDecompressedBytes == 0 {
		return MaxDecompressedBytes
	}
	return r.MaxDecompressedBytes
}

// Accept is everything the produce path asks of one partition's bytes: one batch,
// parsed, validated, and rewritten where the topic wants that. The result aliases
// b unless it was recompressed. b may be patched: the caller owns it.
func Accept(b []byte, r Rules) (View, error) {
	v, err := parseOnly(b, r.MaxBatchBytes)
	if err != nil {
		return View{}, err
	}
	s, err := Validate(v, r)
	if err != nil {
		return View{}, err
	}
	if r.Recompress != nil && r.Recompress.Compression != v.Compression() {
		if v, err = v.Recompress(*r.Recompress, r.MaxBatchBytes, r.plainLimit()); err != nil {
			return View{}, fmt.Errorf("recompress with %s: %w", r.Recompress.Compression, err)
		}
	}
	switch {
	case r.AppendTime != 0:
		v.StampAppendTime(r.AppendTime)
	case s.MaxTimestamp != v.MaxTimestamp():
		v.setMaxTimestamp(s.MaxTimestamp)
	}
	return v, nil
}

// parseOnly parses b as exactly one batch of at most limitBytes (0: any). The
// limit comes before the checksum, which is work for every byte.
func parseOnly(b []byte, limitBytes int) (View, error) {
	if len(b) == 0 {
		return View{}, fmt.Errorf("%w: none", ErrBatchCount)
	}
	h, err := ParseHeader(b)
	if err != nil {
		return View{}, err
	}
	if limitBytes > 0 && h.Len > limitBytes {
		return View{}, fmt.Errorf("%w: %d bytes, the limit (max.message.bytes) is %d", ErrTooLarge, h.Len, limitBytes)
	}
	v, rest, err := Parse(b)
	if err != nil {
		return View{}, err
	}
	if len(rest) > 0 {
		return View{}, fmt.Errorf("%w: %d bytes behind the first", ErrBatchCount, len(rest))
	}
	return v, nil
}

// Summary is what Validate learned on the way.
type Summary struct {
	MaxTimestamp model.Timestamp // of the records; the header's may be wrong
}

// Validate says whether a producer may append the batch. It changes nothing and
// reads every record: without allocation when they are uncompressed, in a stream
// of bounded memory when they are not. MaxBatchBytes, AppendTime's rewrite and
// Recompress are Accept's.
func Validate(v View, r Rules) (Summary, error) {
	if err := validateHeader(v); err != nil {
		return Summary{}, err
	}
	s, err := newScanner(v, r.plainLimit())
	if err != nil {
		return Summary{}, err
	}
	defer s.release()
	summary, bad := Summary{MaxTimestamp: model.NoTimestamp}, offences{}
	for i := range v.Count() {
		record := s.record()
		if s.err != nil {
			return Summary{}, fmt.Errorf("record %d of %d: %w", i, v.Count(), s.err)
		}
		if record.offsetDelta != int64(i) {
			return Summary{}, fmt.Errorf("%w: record %d has offset delta %d", ErrRecord, i, record.offsetDelta)
		}
		timestamp := v.BaseTimestamp() + model.Timestamp(record.timestampDelta)
		summary.MaxTimestamp = max(summary.MaxTimestamp, timestamp)
		bad.check(&r, i, timestamp, record.keyed)
	}
	if err := s.end(); err != nil {
		return Summary{}, fmt.Errorf("after %d records: %w", v.Count(), err)
	}
	return summary, bad.err()
}

// validateHeader checks what a producer may say about the whole batch.
func validateHeader(v View) error {
	switch a := v.Attributes(); {
	case a.IsControl():
		return fmt.Errorf("%w: control batch", ErrReserved)
	case v.BaseOffset() != 0:
		return fmt.Errorf("%w: base offset %d", ErrReserved, v.BaseOffset())
	case a.HasDeleteHorizon():
		return fmt.Errorf("%w: delete horizon", ErrReserved)
	case a.TimestampType() == LogAppendTime:
		return fmt.Errorf("%w: producers may not set the type to LogAppendTime", ErrTimestamp)
	case v.Count() == 0 || v.LastOffsetDelta() != v.Count()-1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrCounts, v.Count(), v.LastOffsetDelta())
	case v.ProducerID() < 0 && a.IsTransactional():
		return fmt.Errorf("%w: transactional without a producer id", ErrProducer)
	case v.ProducerID() >= 0 && (v.BaseSequence() < 0 || v.ProducerEpoch() < 0):
		return fmt.Errorf("%w: producer %d with epoch %d, sequence %d", ErrProducer, v.ProducerID(), v.ProducerEpoch(), v.BaseSequence())
	}
	return nil
}

// offences collects what single records are refused for.
type offences struct{ found RecordsError }

func (o *offences) check(r *Rules, index int32, timestamp model.Timestamp, keyed bool) {
	if r.KeyNeeded && !keyed {
		o.add(ErrKeyRequired, RecordError{index, "Compacted topic cannot accept message without key."})
	}
	if r.TimestampMax != 0 && r.AppendTime == 0 && timestamp != model.NoTimestamp && (timestamp < r.TimestampMin || timestamp > r.TimestampMax) {
		o.add(ErrTimestamp, RecordError{index, fmt.Sprintf("Timestamp %d of message is out of range [%d, %d].", timestamp, r.TimestampMin, r.TimestampMax)})
	}
}

// add notes one. As in Kafka a bad timestamp decides the kind of the whole.
func (o *offences) add(kind error, e RecordError) {
	o.found.Total++
	if o.found.Kind != ErrTimestamp {
		o.found.Kind = kind
	}
	if len(o.found.Records) < recordErrorsMax {
		o.found.Records = append(o.found.Records, e)
	}
}

func (o *offences) err() error {
	if o.found.Total == 0 {
		return nil
	}
	found := o.found // only now on the heap
	return &found
}
