package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is a codec, numbered as on the wire.
type Compression int8

const (
	None   Compression = 0
	Gzip   Compression = 1
	Snappy Compression = 2
	LZ4    Compression = 3
	Zstd   Compression = 4
)

var codecNames = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

func (c Compression) valid() bool { return c >= None && c <= Zstd }

func (c Compression) String() string {
	if c.valid() {
		return codecNames[c]
	}
	return fmt.Sprintf("codec(%d)", int8(c))
}

// ParseCompression reads a codec's name, "uncompressed" (as compression.type
// spells it) included. "producer" is not a codec; callers handle it before.
func ParseCompression(name string) (Compression, error) {
	if strings.EqualFold(name, "uncompressed") {
		return None, nil
	}
	for c, n := range codecNames {
		if strings.EqualFold(name, n) {
			return Compression(c), nil
		}
	}
	return None, fmt.Errorf("%w: %q", ErrCodec, name)
}

var (
	// ErrDecompress: the compressed bytes do not follow their codec's format.
	ErrDecompress = errors.New("undecodable compressed records")
	// ErrDecompressedTooLarge: decompressed records pass max.decompressed.message.bytes.
	ErrDecompressedTooLarge = errors.New("decompressed records exceed the limit")
)

// ---- decompression

// decoder is a pooled decompressor of one codec.
type decoder interface {
	io.Reader
	// reset points the decoder at src; limitBytes lets it refuse a piece that
	// declares more than that before memory is made for it.
	reset(src []byte, limitBytes int64) error
	// detach forgets src, which belongs to a request and not to the pool.
	detach()
}

// One pool per codec. Decoders start no goroutines, so the collector may drop
// them.
var decoders = [...]sync.Pool{
	Gzip:   {New: func() any { return new(gzipDecoder) }},
	Snappy: {New: func() any { return new(snappyDecoder) }},
	LZ4:    {New: func() any { return &lz4Decoder{lz4: lz4.NewReader(nil)} }},
	Zstd:   {New: func() any { return newZstdDecoder() }},
}

// plainReader streams decompressed records and stops with
// ErrDecompressedTooLarge behind the limit. Memory stays bounded whatever the
// input expands to: a window of the codec's choosing, a block for snappy.
type plainReader struct {
	codec     Compression
	decoder   decoder
	leftBytes int64
	limit     int64
}

// decompress starts reading src. The reader must be released, and src stay
// untouched until then.
func decompress(c Compression, src []byte, limitBytes int64) (*plainReader, error) {
	if !c.valid() || c == None {
		return nil, fmt.Errorf("%w: %d", ErrCodec, c)
	}
	r := &plainReader{codec: c, decoder: decoders[c].Get().(decoder), leftBytes: limitBytes, limit: limitBytes}
	if err := r.decoder.reset(src, limitBytes); err != nil {
		err = r.wrap(err)
		r.release()
		return nil, err
	}
	return r, nil
}

func (r *plainReader) Read(p []byte) (int, error) {
	n, err := r.decoder.Read(p)
	r.leftBytes -= int64(n)
	if r.leftBytes < 0 {
		return 0, fmt.Errorf("%w of %d bytes", ErrDecompressedTooLarge, r.limit)
	}
	if err != nil && err != io.EOF {
		err = r.wrap(err)
	}
	return n, err
}

func (r *plainReader) wrap(err error) error {
	if errors.Is(err, ErrDecompressedTooLarge) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrDecompress, r.codec, err)
}

func (r *plainReader) release() {
	r.decoder.detach()
	decoders[r.codec].Put(r.decoder)
}

type gzipDecoder struct {
	src  bytes.Reader
	gzip gzip.Reader
}

func (d *gzipDecoder) reset(src []byte, _ int64) error {
	d.src.Reset(src)
	return d.gzip.Reset(&d.src)
}

func (d *gzipDecoder) detach() { d.src.Reset(nil) }

func (d *gzipDecoder) Read(p []byte) (int, error) { return d.gzip.Read(p) }

type lz4Decoder struct {
	src bytes.Reader
	lz4 *lz4.Reader
}

func (d *lz4Decoder) reset(src []byte, _ int64) error {
	d.src.Reset(src)
	d.lz4.Reset(&d.src)
	return nil
}

func (d *lz4Decoder) detach() { d.src.Reset(nil) }

func (d *lz4Decoder) Read(p []byte) (int, error) { return d.lz4.Read(p) }

type zstdDecoder struct {
	src  bytes.Reader
	zstd *zstd.Decoder
}

// zstdWindowBytesMax is the largest window a frame may ask for: what the
// reference implementation writes at level 22, its highest.
const zstdWindowBytesMax = 128 << 20

func newZstdDecoder() *zstdDecoder {
	// Concurrency 1 decodes on the caller's goroutine. The options are constants,
	// so the constructor cannot refuse them.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindowBytesMax))
	if err != nil {
		panic(err)
	}
	return &zstdDecoder{zstd: d}
}

func (d *zstdDecoder) reset(src []byte, _ int64) error {
	d.src.Reset(src)
	return d.zstd.Reset(&d.src)
}

func (d *zstdDecoder) detach() { d.src.Reset(nil) }

func (d *zstdDecoder) Read(p []byte) (int, error) { return d.zstd.Read(p) }

// Snappy has no stream format of its own. Kafka's Java client frames blocks the
// way xerial's library does:
//
//	82 'S' 'N' 'A' 'P' 'P' 'Y' 00 │ version, 4 bytes │ lowest compatible version, 4 bytes
//	{ length, 4 bytes │ one snappy block } …
//
// librdkafka and others send one bare block. Both are read; the framing is
// written, because every client reads that.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeaderBytes = 16
	xerialVersion     = 1
	// xerialBlockBytes is how much goes into one block, as in xerial's library.
	xerialBlockBytes = 32 << 10
	// snappyRatioMax: the densest element of the format makes 64 bytes of 3. A
	// block that declares more lies, and gets no memory.
	snappyRatioMax = 22
	// snappyKeepBytes: a decoder whose block was larger gives it back.
	snappyKeepBytes = 1 << 20
)

var errSnappyLength = errors.New("impossible block length")

type snappyDecoder struct {
	src        []byte
	framed     bool
	limitBytes int64
	block      []byte // memory of the current block
	unread     []byte // what of it has not been read
}

func (d *snappyDecoder) reset(src []byte, limitBytes int64) error {
	d.src, d.limitBytes, d.unread, d.framed = src, limitBytes, nil, false
	if len(src) >= xerialHeaderBytes && bytes.HasPrefix(src, xerialMagic) {
		d.src, d.framed = src[xerialHeaderBytes:], true
	}
	return nil
}

func (d *snappyDecoder) detach() {
	d.src, d.unread = nil, nil
	if cap(d.block) > snappyKeepBytes {
		d.block = nil
	}
}

func (d *snappyDecoder) Read(p []byte) (int, error) {
	for len(d.unread) == 0 {
		if len(d.src) == 0 {
			return 0, io.EOF
		}
		if err := d.nextBlock(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.unread)
	d.unread = d.unread[n:]
	return n, nil
}

func (d *snappyDecoder) nextBlock() error {
	packed := d.src
	if d.framed {
		if len(d.src) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(d.src)
		if int64(n) > int64(len(d.src)-4) {
			return io.ErrUnexpectedEOF
		}
		packed = d.src[4 : 4+n]
		d.src = d.src[4+n:]
	} else {
		d.src = nil
	}
	n, err := s2.DecodedLen(packed)
	switch {
	case err != nil:
		return err
	case int64(n) > d.limitBytes:
		return fmt.Errorf("%w of %d bytes: a block declares %d", ErrDecompressedTooLarge, d.limitBytes, n)
	case n > len(packed)*snappyRatioMax:
		return fmt.Errorf("%w: %d bytes out of %d", errSnappyLength, n, len(packed))
	case n > cap(d.block):
		d.block = make([]byte, n)
	}
	d.unread, err = s2.Decode(d.block[:cap(d.block)], packed)
	return err
}
