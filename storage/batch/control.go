package batch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/perigeemq/perigee/storage/model"
)

// MarkerType says how a transaction ended. The numbers are the wire's.
type MarkerType int16

const (
	Abort  MarkerType = 0
	Commit MarkerType = 1
)

func (t MarkerType) String() string {
	switch t {
	case Abort:
		return "abort"
	case Commit:
		return "commit"
	}
	return fmt.Sprintf("marker(%d)", int16(t))
}

// Marker is the end of one producer's transaction on one partition. In the log it
// is a batch of its own with one record:
//
//	key    version, 2 bytes, 0 │ type, 2 bytes
//	value  version, 2 bytes, 0 │ coordinator epoch, 4 bytes
//
// transactional and control bits set, uncompressed, base sequence -1, no headers.
// It takes one offset.
type Marker struct {
	Type             MarkerType
	Producer         model.ProducerIdentity
	CoordinatorEpoch int32
	Timestamp        model.Timestamp
}

const (
	markerVersion    = 0
	markerKeyBytes   = 4
	markerValueBytes = 6
	// markerBatchBytes is the exact size: 10 bytes of key and value, 7 of varints
	// and attributes.
	markerBatchBytes = HeaderBytes + 17
)

// ErrNotMarker: a control batch whose record is not a transaction marker.
var ErrNotMarker = errors.New("not a transaction marker")

// NewMarker returns the marker's batch, base offset 0 and leader epoch 0 until
// the log sets them.
func NewMarker(m Marker) View {
	var key [markerKeyBytes]byte
	binary.BigEndian.PutUint16(key[0:], markerVersion)
	binary.BigEndian.PutUint16(key[2:], uint16(m.Type))
	var value [markerValueBytes]byte
	binary.BigEndian.PutUint16(value[0:], markerVersion)
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	h := Header{
		Attributes:    attrTransactional | attrControl,
		BaseTimestamp: m.Timestamp,
		MaxTimestamp:  m.Timestamp,
		ProducerID:    m.Producer.ID,
		ProducerEpoch: m.Producer.Epoch,
		BaseSequence:  model.NoSequence,
		Count:         1,
	}
	b := appendHeader(make([]byte, 0, markerBatchBytes), &h)
	return finish(appendRecord(b, 0, 0, key[:], value[:], Headers{}))
}

// Marker reads the marker from a control batch. A key of another version or type
// is ErrNotMarker: Kafka's rule is to skip such a batch. It is the
// caller who knows whether it made the batch, and so whether that is corruption.
func (v View) Marker() (Marker, error) {
	if !v.IsControl() {
		return Marker{}, fmt.Errorf("%w: a batch of data", ErrNotMarker)
	}
	for r, err := range v.Records(int64(v.Len())) {
		if err != nil {
			return Marker{}, fmt.Errorf("read marker: %w", err)
		}
		return parseMarker(v, r)
	}
	return Marker{}, fmt.Errorf("%w: emptied by compaction", ErrNotMarker)
}

func parseMarker(v View, r Record) (Marker, error) {
	if len(r.Key) < markerKeyBytes {
		return Marker{}, fmt.Errorf("%w: key of %d bytes", ErrNotMarker, len(r.Key))
	}
	version := binary.BigEndian.Uint16(r.Key)
	m := Marker{
		Type:      MarkerType(binary.BigEndian.Uint16(r.Key[2:])),
		Producer:  model.ProducerIdentity{ID: v.ProducerID(), Epoch: v.ProducerEpoch()},
		Timestamp: r.Timestamp,
	}
	if version != markerVersion || m.Type != Abort && m.Type != Commit {
		return Marker{}, fmt.Errorf("%w: version %d, type %d", ErrNotMarker, version, m.Type)
	}
	if len(r.Value) < markerValueBytes {
		return Marker{}, fmt.Errorf("%w: value of %d bytes", ErrNotMarker, len(r.Value))
	}
	m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	return m, nil
}
