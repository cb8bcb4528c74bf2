package batch_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// reseal makes damage under the checksum visible to what comes after it.
func reseal(b []byte) {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}

func TestViewReadsEveryField(t *testing.T) {
	v := build(t, batch.BuilderOptions{
		BaseOffset: 100, LeaderEpoch: 9, Codec: batch.DefaultCodec(batch.LZ4), Transactional: true,
		Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 77, Epoch: 2}, BaseSequence: math.MaxInt32 - 1},
	}, someRecords())
	parsed, rest, err := batch.Parse(append(slices.Clone(v.Bytes()), "rest"...))
	if err != nil || string(rest) != "rest" {
		t.Fatalf("parse: %v, rest %q", err, rest)
	}
	same(t, parsed.Header(), batch.Header{
		BaseOffset: 100, Len: v.Len(), LeaderEpoch: 9, CRC: v.CRC(), Attributes: 0x13, LastOffsetDelta: 4,
		BaseTimestamp: 1_700_000_000_500, MaxTimestamp: 1_700_000_009_000,
		ProducerID: 77, ProducerEpoch: 2, BaseSequence: math.MaxInt32 - 1, Count: 5,
	})
	h, err := batch.ParseHeader(v.Bytes()[:batch.HeaderBytes])
	if err != nil {
		t.Fatalf("parse header: %v", err)
	}
	same(t, h, parsed.Header())
	if h.LastOffset() != 104 || parsed.LastOffset() != 104 || h.NextOffset() != 105 || parsed.NextOffset() != 105 {
		t.Fatalf("last %d and %d, next %d and %d", h.LastOffset(), parsed.LastOffset(), h.NextOffset(), parsed.NextOffset())
	}
	if got := parsed.LastSequence(); got != 2 {
		t.Fatalf("last sequence %d, want 2: sequences wrap to 0 behind %d", got, math.MaxInt32)
	}
	if !v.IsTransactional() || v.IsControl() || v.HasDeleteHorizon() || v.TimestampType() != batch.CreateTime {
		t.Fatalf("attributes %x", v.Attributes())
	}
}

func TestOffsetAndEpochArePatchedOutsideTheChecksum(t *testing.T) {
	v := build(t, batch.BuilderOptions{}, someRecords())
	v.SetBaseOffset(1 << 40)
	v.SetLeaderEpoch(12)
	again, _, err := batch.Parse(v.Bytes())
	if err != nil {
		t.Fatalf("parse after patch: %v", err)
	}
	if again.BaseOffset() != 1<<40 || again.LeaderEpoch() != 12 {
		t.Fatalf("offset %d, epoch %d", again.BaseOffset(), again.LeaderEpoch())
	}
}

// The table of damages: how to break a batch, and what the reader says.
func TestParseRefusesDamage(t *testing.T) {
	put32 := func(pos int, n int32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[pos:], uint32(n)); reseal(b); return b }
	}
	setByte := func(pos int, n byte) func([]byte) []byte {
		return func(b []byte) []byte { b[pos] = n; return b }
	}
	damages := []struct {
		name  string
		spoil func([]byte) []byte
		want  error
	}{
		{"nothing", func([]byte) []byte { return nil }, batch.ErrTruncated},
		{"cut before the magic", func(b []byte) []byte { return b[:16] }, batch.ErrTruncated},
		{"cut in the header", func(b []byte) []byte { return b[:60] }, batch.ErrTruncated},
		{"cut in the records", func(b []byte) []byte { return b[:len(b)-1] }, batch.ErrTruncated},
		{"message set of format 0", setByte(16, 0), batch.ErrMessageSet},
		{"message set of format 1", setByte(16, 1), batch.ErrMessageSet},
		{"message set shorter than a header", func(b []byte) []byte { b[16] = 1; return b[:26] }, batch.ErrMessageSet},
		{"a format to come", setByte(16, 3), batch.ErrMagic},
		{"negative format", setByte(16, 0xff), batch.ErrMagic},
		{"length 0", put32(8, 0), batch.ErrCorrupt},
		{"length below the header", put32(8, 48), batch.ErrCorrupt},
		{"negative length", put32(8, -1), batch.ErrCorrupt},
		{"largest length", put32(8, math.MaxInt32), batch.ErrTruncated},
		{"negative last offset delta", put32(23, -1), batch.ErrCounts},
		{"negative count", put32(57, -1), batch.ErrCounts},
		{"more records than offsets", put32(57, 6), batch.ErrCounts},
		{"largest count", put32(57, math.MaxInt32), batch.ErrCounts},
		{"flipped bit in the checksum", setByte(17, 0x55), batch.ErrCorrupt},
		{"flipped bit in the attributes", setByte(21, 0x80), batch.ErrCorrupt},
		{"flipped bit in the last byte", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, batch.ErrCorrupt},
		{"codec 5", func(b []byte) []byte { b[22] = 5; reseal(b); return b }, batch.ErrCodec},
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			broken := d.spoil(slices.Clone(build(t, batch.BuilderOptions{}, someRecords()).Bytes()))
			_, rest, err := batch.Parse(broken)
			if !errors.Is(err, d.want) {
				t.Fatalf("got %v, want %v", err, d.want)
			}
			if len(rest) != len(broken) {
				t.Fatalf("refused batch consumed: %d of %d bytes left", len(rest), len(broken))
			}
		})
	}
}

// A marker's bytes are part of Kafka's protocol: this is one, written out.
func TestMarkerBytes(t *testing.T) {
	m := batch.Marker{Type: batch.Commit, Producer: model.ProducerIdentity{ID: 0x1122, Epoch: 7}, CoordinatorEpoch: 3, Timestamp: 0x18c}
	want := strings.Join([]string{
		"0000000000000000", "00000042", "00000000", "02", "CRC:    ", "0030", "00000000",
		"000000000000018c", "000000000000018c", "0000000000001122", "0007", "ffffffff", "00000001",
		"20", "00", "00", "00", // length 16, attributes, timestamp delta, offset delta
		"08", "0000", "0001", // key: version 0, commit
		"0c", "0000", "00000003", // value: version 0, coordinator epoch
		"00",
	}, "")
	v := batch.NewMarker(m)
	got := hex.EncodeToString(v.Bytes())
	if got = got[:34] + "CRC:    " + got[42:]; got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	parsed, _, err := batch.Parse(v.Bytes())
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	read, err := parsed.Marker()
	if err != nil {
		t.Fatalf("read marker: %v", err)
	}
	same(t, read, m)
	if !v.IsControl() || !v.IsTransactional() || v.LastSequence() != model.NoSequence {
		t.Fatalf("attributes %x, last sequence %d", v.Attributes(), v.LastSequence())
	}
	if records := readWithKgo(t, v); len(records) != 1 || records[0].Offset != 0 {
		t.Fatalf("kgo reads %v", records)
	}
}

func TestMarkerRefusesOtherControlBatches(t *testing.T) {
	abort := func() []byte { return slices.Clone(batch.NewMarker(batch.Marker{Type: batch.Abort}).Bytes()) }
	const key = batch.HeaderBytes + 5
	for name, spoil := range map[string]func([]byte){
		"data":            func(b []byte) { b[22] &^= 0x20 },
		"another version": func(b []byte) { b[key+1] = 1 },
		"a leader change": func(b []byte) { b[key+3] = 2 },
		"a short key":     func(b []byte) { b[key-1] = 2 << 1; b[key+2] = 8 << 1 },
	} {
		t.Run(name, func(t *testing.T) {
			b := abort()
			spoil(b)
			reseal(b)
			v, _, err := batch.Parse(b)
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			if m, err := v.Marker(); !errors.Is(err, batch.ErrNotMarker) {
				t.Fatalf("got %v and %v, want %v", m, err, batch.ErrNotMarker)
			}
		})
	}
}

func TestBuilderNeedsARecordAndForgetsOnReset(t *testing.T) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	if _, err := b.Build(); !errors.Is(err, batch.ErrEmpty) {
		t.Fatalf("empty build: %v", err)
	}
	b.Add(batch.NewRecord{Timestamp: 5, Value: []byte("first")})
	first, err := b.Build()
	if err != nil || first.Len() != b.Len() || b.Count() != 1 {
		t.Fatalf("%v; %d bytes, foretold %d", err, first.Len(), b.Len())
	}
	b.Reset(batch.BuilderOptions{BaseOffset: 1})
	b.Add(batch.NewRecord{Timestamp: 3, Value: []byte("second")})
	second, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	same(t, collect(t, first), []plainRecord{{Offset: 0, Timestamp: 5, Value: []byte("first")}})
	same(t, collect(t, second), []plainRecord{{Offset: 1, Timestamp: 3, Value: []byte("second")}})
}

func TestHeadersFindTheLastOfAKey(t *testing.T) {
	h := batch.EncodeHeaders([]batch.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte("2")}})
	if v, ok := h.Get("a"); !ok || string(v) != "2" {
		t.Fatalf("a: %q, %v", v, ok)
	}
	if v, ok := h.Get("b"); !ok || v != nil {
		t.Fatalf("b: %q, %v", v, ok)
	}
	if _, ok := h.Get("c"); ok || h.Len() != 3 {
		t.Fatalf("c found, or %d headers", h.Len())
	}
}

func TestAppendTimeIsEveryRecordsTimestamp(t *testing.T) {
	v := build(t, batch.BuilderOptions{}, someRecords())
	v.StampAppendTime(42)
	again, _, err := batch.Parse(v.Bytes())
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	if again.TimestampType() != batch.LogAppendTime || again.MaxTimestamp() != 42 {
		t.Fatalf("%s, max %d", again.TimestampType(), again.MaxTimestamp())
	}
	for _, r := range collect(t, again) {
		if r.Timestamp != 42 {
			t.Fatalf("record %d dated %d", r.Offset, r.Timestamp)
		}
	}
	same(t, readWithKgo(t, again), collect(t, again))
}

func TestRecompressChangesOnlyTheCodec(t *testing.T) {
	for _, from := range codecs {
		for _, to := range codecs {
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				before := build(t, batch.BuilderOptions{BaseOffset: 8, Codec: batch.DefaultCodec(from)}, someRecords())
				after, err := before.Recompress(batch.DefaultCodec(to), 0, batch.MaxDecompressedBytes)
				if err != nil {
					t.Fatal(err)
				}
				same(t, collect(t, after), collect(t, before))
				h, want := after.Header(), before.Header()
				want.Len, want.CRC, want.Attributes = h.Len, h.CRC, batch.Attributes(to)
				same(t, h, want)
				if _, _, err := batch.Parse(after.Bytes()); err != nil {
					t.Fatalf("parse: %v", err)
				}
			})
		}
	}
}

func TestFilterKeepsOffsetsProducerAndLastOffset(t *testing.T) {
	for _, c := range codecs {
		t.Run(c.String(), func(t *testing.T) {
			before := build(t, batch.BuilderOptions{BaseOffset: 50, LeaderEpoch: 4, Codec: batch.DefaultCodec(c),
				Producer: &batch.Producer{ProducerIdentity: model.ProducerIdentity{ID: 1, Epoch: 1}, BaseSequence: 9}}, someRecords())
			keep := func(r batch.Record) bool { return r.Offset == 51 || r.Offset == 54 }
			after, kept, err := before.Filter(batch.FilterOptions{Keep: keep, DeleteHorizon: model.NoTimestamp, LimitBytes: batch.MaxDecompressedBytes})
			if err != nil || kept != 2 {
				t.Fatalf("kept %d: %v", kept, err)
			}
			all := collect(t, before)
			same(t, collect(t, after), []plainRecord{all[1], all[4]})
			if after.LastOffset() != 54 || after.LastSequence() != 13 || after.BaseOffset() != 50 || after.ProducerID() != 1 || after.LeaderEpoch() != 4 {
				t.Fatalf("header %+v", after.Header())
			}
			if after.MaxTimestamp() != 1_700_000_001_000 {
				t.Fatalf("max timestamp %d is of a removed record", after.MaxTimestamp())
			}
			if _, _, err := batch.Parse(after.Bytes()); err != nil {
				t.Fatalf("parse: %v", err)
			}
		})
	}
}

func TestFilterCanEmptyABatch(t *testing.T) {
	before := build(t, batch.BuilderOptions{Codec: batch.DefaultCodec(batch.Zstd)}, someRecords())
	after, kept, err := before.Filter(batch.FilterOptions{Keep: func(batch.Record) bool { return false }, DeleteHorizon: model.NoTimestamp, LimitBytes: 1 << 20})
	if err != nil || kept != 0 {
		t.Fatalf("kept %d: %v", kept, err)
	}
	parsed, _, err := batch.Parse(after.Bytes())
	if err != nil || parsed.Len() != batch.HeaderBytes || parsed.Count() != 0 || parsed.LastOffset() != 4 {
		t.Fatalf("%v: %+v", err, parsed.Header())
	}
	if records := collect(t, parsed); records != nil {
		t.Fatalf("records %v", records)
	}
}

func TestFilterSetsTheDeleteHorizonOnce(t *testing.T) {
	all := func(batch.Record) bool { return true }
	before := build(t, batch.BuilderOptions{}, someRecords())
	same1, _, err := before.Filter(batch.FilterOptions{Keep: all, DeleteHorizon: model.NoTimestamp, LimitBytes: 1 << 20})
	if err != nil || &same1.Bytes()[0] != &before.Bytes()[0] {
		t.Fatalf("nothing to change made a copy: %v", err)
	}
	after, _, err := before.Filter(batch.FilterOptions{Keep: all, DeleteHorizon: 9_000, LimitBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := after.DeleteHorizon(); !ok || h != 9_000 {
		t.Fatalf("horizon %d, %v", h, ok)
	}
	same(t, collect(t, after), collect(t, before))
	same(t, readWithKgo(t, after), collect(t, before))
	again, _, err := after.Filter(batch.FilterOptions{Keep: all, DeleteHorizon: 10_000, LimitBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if h, _ := again.DeleteHorizon(); h != 9_000 {
		t.Fatalf("horizon moved to %d", h)
	}
}
