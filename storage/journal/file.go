package journal

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Directory is where the journal's files stand, relative to the data directory.
const Directory = "journal"

const (
	fileMagic     = "PRGJRNL\n"
	formatVersion = 1
	// fileHeaderBytes is a whole page, so that writing entries never rewrites the
	// header.
	fileHeaderBytes = 4096
	fileHeaderUsed  = 40
	fileSuffix      = ".journal"
	damagedSuffix   = ".damaged"
	pageBytes       = 4096
)

// notStarted is the start of a file that is only prepared.
const notStarted LSN = -1

type fileHeader struct {
	number uint64
	salt   uint64
	start  LSN // of the first entry, or notStarted
}

// encode returns aligned memory, see vfs.FS.OpenDirect.
func (h fileHeader) encode() []byte {
	b := vfs.Aligned(fileHeaderBytes)
	copy(b, fileMagic)
	binary.BigEndian.PutUint32(b[8:], formatVersion)
	binary.BigEndian.PutUint64(b[16:], h.number)
	binary.BigEndian.PutUint64(b[24:], h.salt)
	binary.BigEndian.PutUint64(b[32:], uint64(h.start))
	binary.BigEndian.PutUint32(b[12:], headerChecksum(b))
	return b
}

func headerChecksum(b []byte) uint32 {
	sum := bytes.Clone(b[:fileHeaderUsed])
	clear(sum[12:16])
	return Checksum(sum)
}

// VersionError says that a file was written by a later release.
type VersionError struct {
	File    string
	Version uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this release reads up to %d", e.File, e.Version, formatVersion)
}

var (
	errHeaderDamaged = errors.New("file header is damaged")
	errNotAJournal   = errors.New("not a journal file")
)

func parseFileHeader(name string, b []byte) (h fileHeader, err error) {
	if len(b) < fileHeaderUsed || string(b[:len(fileMagic)]) != fileMagic {
		return h, errNotAJournal
	}
	if headerChecksum(b) != binary.BigEndian.Uint32(b[12:]) {
		return h, errHeaderDamaged
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != formatVersion {
		return h, &VersionError{File: name, Version: v}
	}
	h.number = binary.BigEndian.Uint64(b[16:])
	h.salt = binary.BigEndian.Uint64(b[24:])
	h.start = LSN(binary.BigEndian.Uint64(b[32:]))
	return h, nil
}

func newSalt() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return binary.BigEndian.Uint64(b[:])
}

func fileName(number uint64) string { return fmt.Sprintf("%020d%s", number, fileSuffix) }

func parseFileName(name string) (number uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}

// found is a file of the journal as it stands in the directory.
type found struct {
	path   string
	number uint64 // by its name
	size   int64
	header fileHeader
	// state says what the header makes of it.
	state fileState
	why   error // for fileDamaged
}

type fileState uint8

const (
	fileUsed    fileState = iota // holds entries from header.start on
	fileSpare                    // prepared, or an old one on its way to a new name
	fileDamaged                  // the header cannot be read
)

// list finds the journal's files in order of their numbers.
func list(fs vfs.FS, dir string) ([]found, error) {
	infos, err := fs.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	var files []found
	for _, i := range infos {
		number, ok := parseFileName(i.Name)
		if !ok || i.Dir {
			continue
		}
		f := found{path: dir + "/" + i.Name, number: number, size: i.Size}
		if err := f.classify(fs); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b found) int { return cmp.Compare(a.number, b.number) })
	return files, nil
}

func (f *found) classify(fs vfs.FS) error {
	file, err := fs.Open(f.path)
	if err != nil {
		return fmt.Errorf("open journal file: %w", err)
	}
	defer file.Close()
	var b [fileHeaderUsed]byte
	n, err := file.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read journal file header: %w", err)
	}
	f.header, err = parseFileHeader(f.path, b[:n])
	if _, later := errors.AsType[*VersionError](err); later {
		return err
	}
	switch {
	case err != nil:
		f.state, f.why = fileDamaged, err
	case f.header.number != f.number || f.header.start == notStarted:
		f.state = fileSpare
	default:
		f.state = fileUsed
	}
	return nil
}
