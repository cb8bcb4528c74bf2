package batch

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is a codec with its level. The zero value stores records as they are.
type Codec struct {
	Compression Compression
	// Level has the codec's own range and default, see LevelRange; snappy and none
	// have no levels and ignore it. Values outside the range act like its ends.
	Level int
}

// DefaultCodec is the codec at Kafka's default level for it.
func DefaultCodec(c Compression) Codec {
	_, _, level := LevelRange(c)
	return Codec{Compression: c, Level: level}
}

// LevelRange is what Kafka's compression.<codec>.level settings accept, both
// ends included, and their default; zeros for a codec without levels. Gzip's
// range has a hole: 0 is not accepted.
func LevelRange(c Compression) (low, high, standard int) {
	switch c {
	case Gzip:
		return -1, 9, -1
	case LZ4:
		return 1, 17, 9
	case Zstd:
		return -131072, 22, 3
	}
	return 0, 0, 0
}

// compressor is what every codec's writer can do. Reset makes it ready again
// after Close.
type compressor interface {
	io.WriteCloser
	Reset(io.Writer)
}

type compressorKey struct {
	compression Compression
	level       int // the library's, of which there are few
}

// compressors holds a *sync.Pool per compressorKey, about thirty at most.
// Compressors start no goroutines, so the collector may drop them.
var compressors sync.Map

// writeTo compresses everything fill writes into out.
func (c Codec) writeTo(out io.Writer, fill func(io.Writer) error) error {
	if c.Compression == None {
		return fill(out)
	}
	key := compressorKey{c.Compression, c.libraryLevel()}
	stored, ok := compressors.Load(key)
	if !ok {
		stored, _ = compressors.LoadOrStore(key, new(sync.Pool))
	}
	pool := stored.(*sync.Pool)
	w, ok := pool.Get().(compressor)
	if !ok {
		var err error
		if w, err = newCompressor(key); err != nil {
			return fmt.Errorf("compress with %s: %w", c.Compression, err)
		}
	}
	// A compressor that failed half way goes back as well: Reset cleans it.
	defer pool.Put(w)
	w.Reset(out)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("compress with %s: %w", c.Compression, err)
	}
	return nil
}

// libraryLevel maps Kafka's levels to the libraries'. Gzip's are the same. Zstd has
// four. LZ4 has nine thorough ones and a fast one, and the fast one is what the
// default gets: a broker that recompresses must keep up with its producers.
func (c Codec) libraryLevel() int {
	low, high, standard := LevelRange(c.Compression)
	level := min(max(c.Level, low), high)
	switch c.Compression {
	case Gzip:
		if level == 0 {
			return standard
		}
		return level
	case LZ4:
		if level == standard {
			return int(lz4.Fast)
		}
		return int(lz4.Level1) << (min(level, 9) - 1)
	case Zstd:
		return int(zstd.EncoderLevelFromZstd(level))
	}
	return 0
}

func newCompressor(key compressorKey) (compressor, error) {
	switch key.compression {
	case Gzip:
		return gzip.NewWriterLevel(nil, key.level)
	case Snappy:
		return new(xerialWriter), nil
	case LZ4:
		w := lz4.NewWriter(nil)
		// Blocks of 64 KiB, as Kafka's clients write, keep readers' memory small.
		return w, w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1),
			lz4.CompressionLevelOption(lz4.CompressionLevel(key.level)))
	case Zstd:
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevel(key.level)), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	}
	return nil, fmt.Errorf("%w: %d", ErrCodec, key.compression)
}

// xerialWriter writes the framing drawn in compress.go.
type xerialWriter struct {
	out    io.Writer
	block  []byte // collected, not yet written; at most xerialBlockBytes
	packed []byte
	begun  bool // the header is out
}

func (w *xerialWriter) Reset(out io.Writer) {
	w.out, w.block, w.begun = out, w.block[:0], false
}

func (w *xerialWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), xerialBlockBytes-len(w.block))
		w.block = append(w.block, p[:n]...)
		p = p[n:]
		written += n
		if len(w.block) == xerialBlockBytes {
			if err := w.flush(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

func (w *xerialWriter) Close() error { return w.flush() }

// flush writes what has been collected, and the header before the first block.
func (w *xerialWriter) flush() error {
	w.packed = w.packed[:0]
	if !w.begun {
		w.packed = append(w.packed, xerialMagic...)
		w.packed = binary.BigEndian.AppendUint32(w.packed, xerialVersion)
		w.packed = binary.BigEndian.AppendUint32(w.packed, xerialVersion)
		w.begun = true
	}
	if len(w.block) > 0 {
		room := s2.MaxEncodedLen(xerialBlockBytes)
		at := len(w.packed)
		w.packed = append(w.packed, make([]byte, 4+room)...)
		packed := s2.EncodeSnappy(w.packed[at+4:], w.block)
		binary.BigEndian.PutUint32(w.packed[at:], uint32(len(packed)))
		w.packed = w.packed[:at+4+len(packed)]
		w.block = w.block[:0]
	}
	_, err := w.out.Write(w.packed)
	return err
}
