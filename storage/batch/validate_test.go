package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

func TestAcceptLeavesAGoodBatchAlone(t *testing.T) {
	for _, c := range codecs {
		v := build(t, batch.BuilderOptions{Codec: batch.DefaultCodec(c)}, someRecords())
		b := slices.Clone(v.Bytes())
		got, err := batch.Accept(b, batch.Rules{MaxBatchBytes: v.Len()})
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if &got.Bytes()[0] != &b[0] || !bytes.Equal(b, v.Bytes()) {
			t.Fatalf("%s: copied or changed", c)
		}
	}
}

// The cheap path of the produce path stays cheap.
func TestAcceptDoesNotAllocateForUncompressedBatches(t *testing.T) {
	b := build(t, batch.BuilderOptions{}, someRecords()).Bytes()
	rules := batch.Rules{MaxBatchBytes: 1 << 20, TimestampMax: math.MaxInt64}
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := batch.Accept(b, rules); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Fatalf("%v allocations", allocs)
	}
}

// rebuilt is a batch whose records are the given bytes, compressed.
func rebuilt(t *testing.T, c batch.Compression, count int32, body []byte) []byte {
	t.Helper()
	v := build(t, batch.BuilderOptions{}, someRecords()[:1])
	b := append(slices.Clone(v.Bytes()[:batch.HeaderBytes]), pack(t, c, body)...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint16(b[21:], uint16(c))
	binary.BigEndian.PutUint32(b[23:], uint32(count-1))
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	reseal(b)
	return b
}

// pack compresses with the libraries directly, snappy without framing.
func pack(t testing.TB, c batch.Compression, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch c {
	case batch.None:
		return plain
	case batch.Snappy:
		return s2.EncodeSnappy(nil, plain)
	case batch.Gzip:
		w = gzip.NewWriter(&out)
	case batch.LZ4:
		w = lz4.NewWriter(&out)
	case batch.Zstd:
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// varints is the numbers in the wire's zigzag form; 0 is also the byte 0.
func varints(all ...int64) []byte {
	var b []byte
	for _, n := range all {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// The table of malformed records, refused alike in every codec, by the checker
// and by the reader.
func TestMalformedRecordsAreRefused(t *testing.T) {
	good := varints(6, 0, 0, 0, -1, -1, 0)
	second := varints(6, 0, 0, 1, -1, -1, 0)
	cat := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	tenBytes := []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02}
	cases := []struct {
		name  string
		count int32
		body  []byte
	}{
		{"no records", 1, nil},
		{"one fewer than said", 2, good},
		{"one more than said", 1, cat(good, second)},
		{"garbage behind the last", 2, cat(good, second, []byte{0})},
		{"offset delta repeated", 2, cat(good, good)},
		{"offset deltas in reverse", 2, cat(second, good)},
		{"offset delta beyond the last", 2, cat(good, varints(6, 0, 0, 2, -1, -1, 0))},
		{"negative offset delta", 2, cat(varints(6, 0, 0, -1, -1, -1, 0), good)},
		{"negative length", 1, varints(-1, 0, 0, 0, -1, -1, 0)},
		{"length too short", 1, varints(5, 0, 0, 0, -1, -1, 0)},
		{"length too long", 1, varints(7, 0, 0, 0, -1, -1, 0)},
		{"length of the largest number", 1, varints(math.MaxInt32, 0, 0, 0, -1, -1, 0)},
		{"length past 32 bits", 1, varints(math.MaxInt64, 0, 0, 0, -1, -1, 0)},
		{"endless varint", 1, bytes.Repeat([]byte{0x80}, 20)},
		{"varint cut short", 1, []byte{0x80}},
		{"timestamp delta overflows", 1, cat([]byte{30, 0}, tenBytes, varints(0, -1, -1, 0))},
		{"offset delta longer than 32 bits need", 1, cat(varints(11), []byte{0, 0}, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, varints(-1, -1, 0))},
		{"key length below null", 1, varints(6, 0, 0, 0, -2, -1, 0)},
		{"key beyond the record", 1, cat(varints(6, 0, 0, 0, 9, -1, 0), make([]byte, 9))},
		{"value beyond the batch", 1, varints(8, 0, 0, 0, -1, math.MaxInt32, 0)},
		{"negative header count", 1, varints(6, 0, 0, 0, -1, -1, -1)},
		{"header count beyond the batch", 1, varints(10, 0, 0, 0, -1, -1, math.MaxInt32)},
		{"header without a key", 1, varints(8, 0, 0, 0, -1, -1, 1, -1, -1)},
		{"header key beyond the record", 1, varints(8, 0, 0, 0, -1, -1, 1, 40, -1)},
		{"header value below null", 1, varints(8, 0, 0, 0, -1, -1, 1, 0, -2)},
	}
	for _, c := range codecs {
		for _, tc := range cases {
			t.Run(c.String()+"/"+tc.name, func(t *testing.T) {
				b := rebuilt(t, c, tc.count, tc.body)
				if _, err := batch.Accept(b, batch.Rules{}); !errors.Is(err, batch.ErrRecord) {
					t.Fatalf("accept: got %v, want %v", err, batch.ErrRecord)
				}
				v, _, err := batch.Parse(b)
				if err != nil {
					t.Fatalf("parse: %v", err)
				}
				if err := walkAll(v, 1<<20); !errors.Is(err, batch.ErrRecord) {
					t.Fatalf("walk: got %v, want %v", err, batch.ErrRecord)
				}
			})
		}
	}
}

func walkAll(v batch.View, limitBytes int64) error {
	for _, err := range v.Records(limitBytes) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestHeadersOnlyABrokerMayWriteAreRefused(t *testing.T) {
	attributes := func(a uint16) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint16(b[21:], a) } }
	producer := func(id int64, epoch int16, sequence int32, a uint16) func([]byte) {
		return func(b []byte) {
			attributes(a)(b)
			binary.BigEndian.PutUint64(b[43:], uint64(id))
			binary.BigEndian.PutUint16(b[51:], uint16(epoch))
			binary.BigEndian.PutUint32(b[53:], uint32(sequence))
		}
	}
	cases := []struct {
		name  string
		spoil func([]byte)
		want  error
	}{
		{"control", attributes(0x20), batch.ErrReserved},
		{"transactional control", attributes(0x30), batch.ErrReserved},
		{"delete horizon", attributes(0x40), batch.ErrReserved},
		{"base offset", func(b []byte) { b[7] = 77 }, batch.ErrReserved},
		{"log append time", attributes(0x08), batch.ErrTimestamp},
		{"transactional without producer", attributes(0x10), batch.ErrProducer},
		{"producer without sequence", producer(5, 0, -1, 0), batch.ErrProducer},
		{"producer without epoch", producer(5, -1, 0, 0), batch.ErrProducer},
		{"idempotent producer", producer(5, 0, 0, 0), nil},
		{"transactional producer", producer(5, 0, 0, 0x10), nil},
		{"hole behind the last record", func(b []byte) { b[26]++ }, batch.ErrCounts},
		{"no records", func(b []byte) { b[60] = 0 }, batch.ErrCounts},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			b := slices.Clone(build(t, batch.BuilderOptions{}, someRecords()).Bytes())
			tc.spoil(b)
			reseal(b)
			if _, err := batch.Accept(b, batch.Rules{}); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestExactlyOneBatchPerPartition(t *testing.T) {
	one := build(t, batch.BuilderOptions{}, someRecords()).Bytes()
	for name, b := range map[string][]byte{"none": nil, "two": slices.Concat(one, one), "one and a byte": append(slices.Clone(one), 0)} {
		if _, err := batch.Accept(slices.Clone(b), batch.Rules{}); !errors.Is(err, batch.ErrBatchCount) {
			t.Errorf("%s: got %v, want %v", name, err, batch.ErrBatchCount)
		}
	}
}

func TestMaxBatchBytesComesBeforeTheChecksum(t *testing.T) {
	b := slices.Clone(build(t, batch.BuilderOptions{}, someRecords()).Bytes())
	b[len(b)-1] ^= 1
	_, err := batch.Accept(b, batch.Rules{MaxBatchBytes: len(b) - 1})
	if !errors.Is(err, batch.ErrTooLarge) || !strings.Contains(err.Error(), "max.message.bytes") {
		t.Fatalf("got %v, want %v naming the setting", err, batch.ErrTooLarge)
	}
}

// The bad records are listed, the good ones are not, and the kind is Kafka's.
func TestBadRecordsAreListed(t *testing.T) {
	rules := batch.Rules{KeyNeeded: true}
	_, err := batch.Accept(slices.Clone(build(t, batch.BuilderOptions{}, someRecords()).Bytes()), rules)
	bad, ok := errors.AsType[*batch.RecordsError](err)
	if !ok || !errors.Is(err, batch.ErrKeyRequired) {
		t.Fatalf("got %v", err)
	}
	same(t, indices(bad), []int32{1, 4})

	rules.TimestampMin, rules.TimestampMax = 1_700_000_000_400, 1_700_000_002_000
	_, err = batch.Accept(slices.Clone(build(t, batch.BuilderOptions{}, someRecords()).Bytes()), rules)
	bad, ok = errors.AsType[*batch.RecordsError](err)
	if !ok || !errors.Is(err, batch.ErrTimestamp) || errors.Is(err, batch.ErrKeyRequired) {
		t.Fatalf("got %v", err)
	}
	same(t, indices(bad), []int32{1, 1, 2, 4})
}

func indices(e *batch.RecordsError) []int32 {
	var all []int32
	for _, r := range e.Records {
		all = append(all, r.Index)
	}
	return all
}

func TestTheListOfBadRecordsIsBounded(t *testing.T) {
	b := batch.NewBuilder(batch.BuilderOptions{})
	for range 5000 {
		b.Add(batch.NewRecord{Value: []byte("no key")})
	}
	v, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	_, err = batch.Validate(v, batch.Rules{KeyNeeded: true})
	bad, ok := errors.AsType[*batch.RecordsError](err)
	if !ok || len(bad.Records) != 1000 || bad.Total != 5000 {
		t.Fatalf("%T, %d listed of %d", err, len(bad.Records), bad.Total)
	}
}

func TestTimestampBounds(t *testing.T) {
	now := model.Timestamp(1_700_000_000_000)
	for _, tc := range []struct{ before, after, low, high int64 }{
		{math.MaxInt64, 3_600_000, 0, 1_700_003_600_000},
		{1000, math.MaxInt64, 1_699_999_999_000, math.MaxInt64},
		{0, 0, 1_700_000_000_000, 1_700_000_000_000},
	} {
		low, high := batch.TimestampBounds(now, tc.before, tc.after)
		if int64(low) != tc.low || int64(high) != tc.high {
			t.Errorf("before %d, after %d: got %d to %d, want %d to %d", tc.before, tc.after, low, high, tc.low, tc.high)
		}
	}
	undated := build(t, batch.BuilderOptions{}, []plainRecord{{Timestamp: -1, Value: []byte("v")}})
	if _, err := batch.Validate(undated, batch.Rules{TimestampMin: 5, TimestampMax: 6}); err != nil {
		t.Errorf("undated record: %v", err)
	}
}

// Some producers write a wrong max timestamp. Time lookups trust the header, so it is corrected.
func TestAcceptCorrectsTheMaxTimestamp(t *testing.T) {
	b := slices.Clone(build(t, batch.BuilderOptions{}, someRecords()).Bytes())
	binary.BigEndian.PutUint64(b[35:], 1)
	reseal(b)
	v, err := batch.Accept(b, batch.Rules{})
	if err != nil || v.MaxTimestamp() != 1_700_000_009_000 {
		t.Fatalf("max timestamp %d, %v", v.MaxTimestamp(), err)
	}
	if _, _, err := batch.Parse(v.Bytes()); err != nil {
		t.Fatalf("parse: %v", err)
	}
}

func TestAcceptRewritesForTheTopic(t *testing.T) {
	b := slices.Clone(build(t, batch.BuilderOptions{Codec: batch.DefaultCodec(batch.Gzip)}, someRecords()).Bytes())
	codec := batch.DefaultCodec(batch.Zstd)
	// The records' own dates are outside the bounds, which do not count for append time.
	v, err := batch.Accept(b, batch.Rules{AppendTime: 99, TimestampMin: 1, TimestampMax: 2, Recompress: &codec})
	if err != nil {
		t.Fatal(err)
	}
	if v.Compression() != batch.Zstd || v.TimestampType() != batch.LogAppendTime || v.MaxTimestamp() != 99 {
		t.Fatalf("%s, %s, %d", v.Compression(), v.TimestampType(), v.MaxTimestamp())
	}
	if _, _, err := batch.Parse(v.Bytes()); err != nil {
		t.Fatalf("parse: %v", err)
	}

	plain := batch.Codec{}
	_, err = batch.Accept(slices.Clone(b), batch.Rules{MaxBatchBytes: 2000, Recompress: &plain})
	if !errors.Is(err, batch.ErrTooLarge) {
		t.Fatalf("uncompressed it is 160 kB: got %v, want %v", err, batch.ErrTooLarge)
	}
}

// A batch of a few kilobytes that expands to 64 MiB is refused without that much
// memory, as one large record and as many small ones.
func TestZipBombsAreRefusedInBoundedMemory(t *testing.T) {
	const size = 64 << 20
	oneRecord := slices.Concat(varints(size), make([]byte, size))
	tiny := varints(6, 0, 0, 0, -1, -1, 0)
	for _, c := range codecs[1:] {
		for name, body := range map[string][]byte{"one record": oneRecord, "many records": bytes.Repeat(tiny, size/len(tiny))} {
			t.Run(fmt.Sprintf("%s/%s", c, name), func(t *testing.T) {
				b := rebuilt(t, c, math.MaxInt32, body)
				v, _, err := batch.Parse(b)
				if err != nil {
					t.Fatal(err)
				}
				const limit = 1 << 20
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err = batch.Validate(v, batch.Rules{MaxDecompressedBytes: limit})
				runtime.ReadMemStats(&after)
				if !errors.Is(err, batch.ErrDecompressedTooLarge) && !errors.Is(err, batch.ErrRecord) {
					t.Fatalf("validate: got %v, want %v", err, batch.ErrDecompressedTooLarge)
				}
				if used := after.TotalAlloc - before.TotalAlloc; used > size/2 {
					t.Fatalf("validate allocated %d bytes", used)
				}
				if err := walkAll(v, limit); !errors.Is(err, batch.ErrDecompressedTooLarge) {
					t.Fatalf("walk: got %v, want %v", err, batch.ErrDecompressedTooLarge)
				}
				if _, err := v.Recompress(batch.Codec{}, limit, size*2); !errors.Is(err, batch.ErrTooLarge) {
					t.Fatalf("recompress: got %v, want %v", err, batch.ErrTooLarge)
				}
			})
		}
	}
}

// Snappy comes as one bare block or in xerial's framing; damage in either is refused.
func TestSnappyFramings(t *testing.T) {
	plain := bytes.Repeat(varints(6, 0, 0, 0, -1, -1, 0), 1)
	block := s2.EncodeSnappy(nil, plain)
	frame := func(blocks ...[]byte) []byte {
		b := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
		for _, block := range blocks {
			b = binary.BigEndian.AppendUint32(b, uint32(len(block)))
			b = append(b, block...)
		}
		return b
	}
	halves := frame(s2.EncodeSnappy(nil, plain[:3]), s2.EncodeSnappy(nil, nil), s2.EncodeSnappy(nil, plain[3:]))
	for _, tc := range []struct {
		name   string
		packed []byte
		want   error
	}{
		{"bare block", block, nil},
		{"one frame", frame(block), nil},
		{"a record over three frames, one empty", halves, nil},
		{"length cut short", frame(block)[:18], batch.ErrDecompress},
		{"block cut short", halves[:len(halves)-1], batch.ErrDecompress},
		{"length beyond the bytes", append(frame(), 0xff, 0xff, 0xff, 0xff), batch.ErrDecompress},
		{"no blocks", frame(), batch.ErrRecord},
		{"nothing", nil, batch.ErrRecord},
		{"block that declares 4 GiB", []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}, batch.ErrDecompressedTooLarge},
		{"block that declares too much for its size", []byte{0x80, 0x80, 0x04, 0}, batch.ErrDecompress},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := rebuilt(t, batch.None, 1, tc.packed)
			b[22] = byte(batch.Snappy)
			reseal(b)
			if _, err := batch.Accept(b, batch.Rules{MaxDecompressedBytes: 1 << 20}); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// Compressed bytes that are cut or flipped are refused, whatever the codec's own checks are.
func TestDamagedCompressionIsRefused(t *testing.T) {
	for _, c := range codecs[1:] {
		whole := build(t, batch.BuilderOptions{Codec: batch.DefaultCodec(c)}, someRecords()).Bytes()
		for _, cut := range []int{batch.HeaderBytes, batch.HeaderBytes + 3, batch.HeaderBytes + 30, len(whole) / 2, len(whole) - 20} {
			b := slices.Clone(whole[:cut])
			binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
			reseal(b)
			_, err := batch.Accept(b, batch.Rules{})
			if !errors.Is(err, batch.ErrDecompress) && !errors.Is(err, batch.ErrRecord) {
				t.Errorf("%s cut at %d of %d: got %v", c, cut, len(whole), err)
			}
		}
	}
}

func TestParseCompression(t *testing.T) {
	for name, want := range map[string]batch.Compression{"none": batch.None, "uncompressed": batch.None, "gzip": batch.Gzip, "Snappy": batch.Snappy, "LZ4": batch.LZ4, "zstd": batch.Zstd} {
		if got, err := batch.ParseCompression(name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "producer", "brotli"} {
		if _, err := batch.ParseCompression(name); !errors.Is(err, batch.ErrCodec) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
