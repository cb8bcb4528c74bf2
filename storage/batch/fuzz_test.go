package batch_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// FuzzParse feeds bytes as a socket or a damaged disk would: nothing panics, and a
// batch that parses is as long as it says.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add(build(f, batch.BuilderOptions{}, someRecords()[:3]).Bytes())
	f.Add(batch.NewMarker(batch.Marker{Type: batch.Commit}).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		v, rest, err := batch.Parse(b)
		if err != nil {
			return
		}
		if v.Len()+len(rest) != len(b) || v.Len() < batch.HeaderBytes || v.Count() < 0 || v.LastOffsetDelta() < 0 {
			t.Fatalf("%d bytes and %d left of %d, count %d, delta %d", v.Len(), len(rest), len(b), v.Count(), v.LastOffsetDelta())
		}
		if h, err := batch.ParseHeader(b); err != nil || h != v.Header() {
			t.Fatalf("header %+v, view's %+v, %v", h, v.Header(), err)
		}
	})
}

// FuzzRecords makes the given bytes a batch's records, with lengths and checksum
// right, and holds the readers together: what the checker accepts the reader
// reads whole and without holes, and filtering and recompressing keep it.
func FuzzRecords(f *testing.F) {
	for _, c := range codecs {
		v := build(f, batch.BuilderOptions{Codec: batch.DefaultCodec(c)}, someRecords()[:4])
		f.Add(uint8(c), int32(4), v.Bytes()[batch.HeaderBytes:])
	}
	f.Add(uint8(0x30), int32(1), batch.NewMarker(batch.Marker{}).Bytes()[batch.HeaderBytes:])
	f.Fuzz(func(t *testing.T, attributes uint8, count int32, body []byte) {
		const limit = 1 << 20
		b := slices.Concat(build(t, batch.BuilderOptions{}, someRecords()[:1]).Bytes()[:batch.HeaderBytes], body)
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
		b[22] = attributes
		binary.BigEndian.PutUint32(b[23:], uint32(count-1))
		binary.BigEndian.PutUint32(b[57:], uint32(count))
		reseal(b)
		v, _, err := batch.Parse(b)
		if err != nil {
			return
		}
		if _, err := v.Marker(); err == nil && !v.IsControl() {
			t.Fatal("a marker in a batch of data")
		}
		summary, refusal := batch.Validate(v, batch.Rules{MaxDecompressedBytes: limit})
		read, latest := int32(0), model.NoTimestamp
		for r, err := range v.Records(limit) {
			if err != nil {
				if refusal == nil {
					t.Fatalf("accepted, but record %d of %d is unreadable: %v", read, count, err)
				}
				return
			}
			if refusal == nil && r.Offset != model.Offset(read) {
				t.Fatalf("accepted, but record %d has offset %d", read, r.Offset)
			}
			for range r.Headers.All() {
			}
			read, latest = read+1, max(latest, r.Timestamp)
		}
		if refusal != nil {
			if errors.Is(refusal, batch.ErrDecompress) || errors.Is(refusal, batch.ErrDecompressedTooLarge) {
				t.Fatalf("read to the end, but refused: %v", refusal)
			}
			return
		}
		if read != count || latest != summary.MaxTimestamp {
			t.Fatalf("read %d of %d, latest %d, summary %d", read, count, latest, summary.MaxTimestamp)
		}
		again, err := v.Recompress(batch.DefaultCodec(batch.Snappy), 0, limit)
		if err != nil {
			t.Fatalf("recompress: %v", err)
		}
		if _, err := batch.Validate(again, batch.Rules{MaxDecompressedBytes: limit}); err != nil {
			t.Fatalf("recompressed: %v", err)
		}
		half, kept, err := v.Filter(batch.FilterOptions{Keep: func(r batch.Record) bool { return r.Offset%2 == 0 }, DeleteHorizon: 5, LimitBytes: limit})
		if err != nil || kept != int(count+1)/2 || walkAll(half, limit) != nil {
			t.Fatalf("filter: kept %d of %d, %v, %v", kept, count, err, walkAll(half, limit))
		}
	})
}
