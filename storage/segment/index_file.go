package segment

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"

	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

const (
	indexMagic       = "PRGINDX\n"
	indexVersion     = 1
	indexHeaderBytes = 32

	// smallLog is the size of a log below which it is read again rather than having an
	// index file.
	smallLog = 64 << 10

	// indexLimit is the size of an index file nobody writes: both tables of a 4 GiB
	// log with an entry for every smallest batch would be smaller.
	indexLimit = 2 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SaveIndex writes the index file, if not more than scanBytes of log have to be read
// for it. It is derived: there is no sync, and a failure costs time later, nothing
// else.
func (s *Segment) SaveIndex(scanBytes int64) error {
	size := s.size.Load()
	if s.index.saved.Load() == size || size < smallLog {
		return nil
	}
	if err := s.fill(scanBytes); err != nil || s.index.missing() {
		return err
	}
	f, err := s.files.fs.Create(s.path(s.id.IndexName()))
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(s.index.encode(size), 0); err != nil {
		return errors.Join(err, f.Close())
	}
	s.index.saved.Store(size)
	return f.Close()
}

// DropIndex removes the index file: it may describe what a crash took back, and later
// appends would make it look right again.
func (s *Segment) DropIndex() error {
	s.index.saved.Store(0)
	if err := s.files.fs.Remove(s.path(s.id.IndexName())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// encode describes the first size bytes of the log; entries made for appends that
// came since are left out.
func (x *index) encode(size int64) []byte {
	x.RLock()
	defer x.RUnlock()
	be := binary.BigEndian
	offsets, times := x.offsets, x.times
	for len(offsets) > 0 && int64(offsets[len(offsets)-1].position) >= size {
		if last := offsets[len(offsets)-1]; len(times) > 0 && times[len(times)-1].offset >= last.offset {
			times = times[:len(times)-1]
		}
		offsets = offsets[:len(offsets)-1]
	}
	b := make([]byte, 0, indexHeaderBytes+len(offsets)*offsetEntryBytes+len(times)*timeEntryBytes)
	b = append(b, indexMagic...)
	b = be.AppendUint32(b, indexVersion)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint64(b, uint64(size))
	b = be.AppendUint32(b, uint32(len(offsets)))
	b = be.AppendUint32(b, uint32(len(times)))
	for _, o := range offsets {
		b = be.AppendUint32(b, o.offset)
		b = be.AppendUint32(b, o.position)
	}
	for _, t := range times {
		b = be.AppendUint64(b, uint64(t.timestamp))
		b = be.AppendUint32(b, t.offset)
	}
	be.PutUint32(b[12:], crc32.Checksum(b[16:], castagnoli))
	return b
}

// readIndex reads the index file; covered is how many bytes of log it describes,
// 0 when there is none that can be used.
func (s *Segment) readIndex(limit int64) (x *index, covered int64) {
	b, err := vfs.ReadFile(s.files.fs, s.path(s.id.IndexName()), indexLimit)
	if err != nil {
		return &index{}, 0
	}
	x, covered, reason := decodeIndex(b)
	if reason != "" || covered > limit {
		return &index{}, 0
	}
	if covered == limit {
		s.index.saved.Store(covered)
	}
	return x, covered
}

// decodeIndex reads what encode wrote; reason says what is wrong with it.
func decodeIndex(b []byte) (x *index, covered int64, reason string) {
	be := binary.BigEndian
	if len(b) < indexHeaderBytes || string(b[:8]) != indexMagic {
		return nil, 0, "not an index"
	}
	if v := be.Uint32(b[8:]); v != indexVersion {
		return nil, 0, "unknown index version"
	}
	if be.Uint32(b[12:]) != crc32.Checksum(b[16:], castagnoli) {
		return nil, 0, "checksum differs"
	}
	covered = int64(be.Uint64(b[16:]))
	offsets, times := int(be.Uint32(b[24:])), int(be.Uint32(b[28:]))
	b = b[indexHeaderBytes:]
	if len(b) != offsets*offsetEntryBytes+times*timeEntryBytes || covered < 0 {
		return nil, 0, "lengths do not add up"
	}
	x = &index{offsets: make([]offsetEntry, offsets), times: make([]timeEntry, times)}
	for i := range x.offsets {
		e := offsetEntry{offset: be.Uint32(b), position: be.Uint32(b[4:])}
		if int64(e.position) >= covered || i > 0 && (e.offset <= x.offsets[i-1].offset || e.position <= x.offsets[i-1].position) {
			return nil, 0, "offsets do not ascend"
		}
		x.offsets[i], b = e, b[offsetEntryBytes:]
		x.entry = int64(e.position)
	}
	for i := range x.times {
		e := timeEntry{timestamp: model.Timestamp(be.Uint64(b)), offset: be.Uint32(b[8:])}
		if i > 0 && (e.timestamp < x.times[i-1].timestamp || e.offset < x.times[i-1].offset) {
			return nil, 0, "times do not ascend"
		}
		x.times[i], b = e, b[timeEntryBytes:]
	}
	return x, covered, ""
}
