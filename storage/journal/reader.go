package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"slices"

	"github.com/perigeemq/perigee/storage/vfs"
)

// Record is an entry read back.
type Record struct {
	Start, End LSN
	// Items and the bytes in them are valid until the visitor returns.
	Items []Item
	// File and Offset say where the entry stands, for messages.
	File   string
	Offset int64
}

// RecoverOptions says what to replay.
type RecoverOptions struct {
	FS  vfs.FS
	Dir string // the zero value means Directory
	// From is where to begin: the start of an entry or the journal's end, as a
	// checkpoint named it. 0 is the beginning of the journal's life.
	From LSN
	// Keep is where the entries begin that must stay readable, see KeptFrom; files in
	// front of it may be used again. The zero value keeps everything until Trim.
	Keep LSN
	// Repair accepts what would be a *CorruptionError as the end of the journal:
	// everything behind it is lost.
	Repair bool
	// Progress, when not nil, is called now and then with bytes of journal files.
	Progress func(done, total int64)
}

// Recovered is what Recover found, and what Open goes on from.
type Recovered struct {
	// End is where the journal ends: the LSN of the next entry.
	End LSN
	// Entries and Bytes count what was replayed.
	Entries, Bytes int64
	// Tail says where and why the last file ends, when it does not end in zeros:
	// a write torn by a crash. Nothing that was promised is lost with it.
	Tail string
	// Damage is what Repair overlooked; nil otherwise.
	Damage *CorruptionError

	dir        string
	used       []span   // files that hold entries from Keep on, in order
	spares     []found  // files free for use
	dropped    []string // files behind the damage
	nextNumber uint64
}

// span is a file and the positions it holds.
type span struct {
	path       string
	start, end LSN
}

// Recover replays the journal from a position: visit is called with every entry
// in order. It changes nothing on the disk, so it may be stopped and started
// again; the offline tools use it too. An error of visit ends it and is returned
// as it is. Damage to what was durable is a *CorruptionError.
func Recover(o RecoverOptions, visit func(*Record) error) (*Recovered, error) {
	if o.Dir == "" {
		o.Dir = Directory
	}
	files, err := list(o.FS, o.Dir)
	if errors.Is(err, iofs.ErrNotExist) && o.From == 0 {
		return &Recovered{dir: o.Dir, nextNumber: 1}, nil
	}
	if err != nil {
		return nil, err
	}
	rp := &replayer{o: o, visit: visit, r: &Recovered{dir: o.Dir, End: o.From, nextNumber: 1}}
	if n := len(files); n > 0 {
		rp.r.nextNumber = files[n-1].number + 1
	}
	return rp.r, rp.run(files)
}

// replayer walks the chain of files.
type replayer struct {
	o           RecoverOptions
	visit       func(*Record) error
	r           *Recovered
	done, total int64
}

func (rp *replayer) run(files []found) error {
	first := rp.first(files)
	if first < 0 {
		return rp.start(files)
	}
	for i, f := range files[:first] {
		after := files[i+1:]
		end := after[next(after)].header.start
		if f.state == fileUsed && end > rp.o.Keep {
			rp.r.used = append(rp.r.used, span{path: f.path, start: f.header.start, end: end})
		} else {
			rp.r.spares = append(rp.r.spares, f)
		}
	}
	files = files[first:]
	for _, f := range files {
		rp.total += f.size
	}
	for len(files) > 0 {
		n, err := rp.file(files)
		if err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

// first is the file that holds From, or -1.
func (rp *replayer) first(files []found) int {
	at := -1
	for i, f := range files {
		if f.state == fileUsed && f.header.start <= rp.o.From {
			at = i
		}
	}
	return at
}

// start handles a directory in which no file holds From: a new journal, or one
// that has lost its files.
func (rp *replayer) start(files []found) error {
	if rp.o.From > 0 {
		return rp.damaged(&CorruptionError{File: rp.o.Dir, Reason: fmt.Sprintf("no file holds position %d", rp.o.From)}, files)
	}
	return rp.behind(files, rp.o.Dir, 0, "no file begins the journal")
}

// file replays the first of files, which continues the journal, and looks at the
// ones behind it as far as needed to know whether it ends where it should. It
// returns how many files it is done with.
func (rp *replayer) file(files []found) (int, error) {
	f := files[0]
	s, err := rp.replay(f)
	if err != nil {
		return 0, err
	}
	if s.lsn < rp.o.From {
		return len(files), rp.damaged(&CorruptionError{File: f.path, Offset: s.offset,
			Reason: fmt.Sprintf("no entry begins at position %d, which a checkpoint names", rp.o.From)}, files)
	}
	rp.done += f.size
	rp.r.used = append(rp.r.used, span{path: f.path, start: f.header.start, end: s.lsn})
	if n := next(files[1:]); n >= 0 && files[1+n].header.start == s.lsn {
		// Whatever follows the stop here was given up when that file was begun.
		rp.r.spares = append(rp.r.spares, files[1:1+n]...)
		return 1 + n, nil
	}
	if s.proof >= 0 {
		return len(files), rp.damaged(&CorruptionError{File: f.path, Offset: s.offset,
			Reason: fmt.Sprintf("%s, yet byte %d holds an entry written after it was durable", s.reason, s.proof)}, files[1:])
	}
	if s.reason != endOfEntries {
		rp.r.Tail = fmt.Sprintf("byte %d of %s: %s", s.offset, f.path, s.reason)
	}
	return len(files), rp.behind(files[1:], f.path, s.offset, s.reason)
}

// next is the first file that holds entries, or -1.
func next(files []found) int {
	return slices.IndexFunc(files, func(f found) bool { return f.state == fileUsed })
}

// behind looks at the files behind the journal's end: they must be free. stopped
// is where the journal ends and why.
func (rp *replayer) behind(files []found, stopped string, offset int64, reason string) error {
	for i, f := range files {
		switch f.state {
		case fileUsed:
			return rp.damaged(&CorruptionError{File: stopped, Offset: offset,
				Reason: fmt.Sprintf("%s, yet %s goes on at position %d", reason, f.path, f.header.start)}, files[i:])
		case fileDamaged:
			proof, err := rp.prove(f, fileHeader{number: f.number, start: rp.r.End}, fileHeaderBytes, false)
			if err != nil {
				return err
			}
			if proof >= 0 {
				return rp.damaged(&CorruptionError{File: f.path, Reason: f.why.Error()}, files[i:])
			}
		case fileSpare:
		}
		rp.r.spares = append(rp.r.spares, f)
	}
	return nil
}

// damaged ends the replay at the damage: an error, or with Repair the loss of the
// files behind it.
func (rp *replayer) damaged(c *CorruptionError, behind []found) error {
	if !rp.o.Repair {
		return c
	}
	rp.r.Damage = c
	for _, f := range behind {
		if f.state == fileSpare {
			rp.r.spares = append(rp.r.spares, f)
		} else {
			rp.r.dropped = append(rp.r.dropped, f.path)
		}
	}
	return nil
}

// stop is where a file's entries end.
type stop struct {
	lsn    LSN
	offset int64
	reason string
	proof  int64 // offset of an entry that proves the bytes at offset were durable, or -1
}

// replay visits a file's entries from End on. In the first file it finds its way
// there from header to header, which shows that End is the start of an entry.
func (rp *replayer) replay(f found) (stop, error) {
	file, err := rp.o.FS.Open(f.path)
	if err != nil {
		return stop{}, fmt.Errorf("open journal file: %w", err)
	}
	defer file.Close()
	w := &window{f: file, size: f.size}
	rec := &Record{File: f.path}
	at := stop{lsn: f.header.start, offset: fileHeaderBytes, proof: -1}
	for at.lsn < rp.o.From {
		h, reason, err := rp.header(w, f.header, at)
		if err != nil {
			return at, fmt.Errorf("read journal: %w", err)
		}
		if reason != "" || at.lsn+LSN(h.size()) > rp.o.From {
			return at, nil
		}
		at.lsn, at.offset = at.lsn+LSN(h.size()), at.offset+h.size()
	}
	for {
		size, reason, err := rp.entry(w, f.header, at, rec)
		if err != nil {
			return at, fmt.Errorf("read journal: %w", err)
		}
		if size == 0 {
			at.reason = reason
			break
		}
		if err := rp.visit(rec); err != nil {
			return at, err
		}
		at.lsn, at.offset = rec.End, at.offset+size
		rp.r.Entries, rp.r.Bytes = rp.r.Entries+1, rp.r.Bytes+size
		if rp.o.Progress != nil {
			rp.o.Progress(rp.done+at.offset, rp.total)
		}
	}
	rp.r.End = at.lsn
	at.proof, err = rp.prove(f, f.header, at.offset+alignment, true)
	return at, err
}

// header reads the entry header at a position. When there is no valid one reason
// says why.
func (rp *replayer) header(w *window, file fileHeader, at stop) (h header, reason string, err error) {
	b, err := w.read(at.offset, entryHeaderBytes)
	if err != nil || allZero(b) {
		return h, endOfEntries, err
	}
	h, reason = parseHeader(b)
	switch {
	case reason != "":
	case h.salt != file.salt:
		reason = "remains of an earlier use of the file"
	case h.lsn != at.lsn:
		reason = fmt.Sprintf("entry says it stands at %d, not %d", h.lsn, at.lsn)
	case at.offset+h.size() > w.size:
		reason = "entry cut off by the end of the file"
	}
	return h, reason, nil
}

// endOfEntries is the reason when zeros or the end of the file follow.
const endOfEntries = "no more entries"

// entry reads the entry at a position into rec. size is 0 when there is no valid
// one; then reason says why.
func (rp *replayer) entry(w *window, file fileHeader, at stop, rec *Record) (size int64, reason string, err error) {
	h, reason, err := rp.header(w, file, at)
	if err != nil || reason != "" {
		return 0, reason, err
	}
	b, err := w.read(at.offset+entryHeaderBytes, int(h.length))
	if err != nil {
		return 0, "", err
	}
	if Checksum(b) != h.bodyCRC {
		return 0, "entry checksum differs", nil
	}
	items, err := parseItems(rec.Items[:0], b, h.items)
	if err != nil {
		return 0, err.Error(), nil
	}
	rec.Start, rec.End, rec.Offset, rec.Items = at.lsn, at.lsn+LSN(h.size()), at.offset, items
	return h.size(), "", nil
}

// prove looks from an offset on for an entry header, standing at its own
// position, that was written after End was durable. It returns its offset, or
// -1. The salt is compared unless the file's own header is unreadable.
func (rp *replayer) prove(f found, h fileHeader, from int64, salted bool) (int64, error) {
	file, err := rp.o.FS.Open(f.path)
	if err != nil {
		return -1, fmt.Errorf("open journal file: %w", err)
	}
	defer file.Close()
	w := &window{f: file, size: f.size}
	for from < f.size {
		b, err := w.read(from, windowBytes)
		if err != nil {
			return -1, fmt.Errorf("read journal: %w", err)
		}
		position := h.start + LSN(from-fileHeaderBytes)
		i := 0
		for ; i+entryHeaderBytes <= len(b); i += alignment {
			if LSN(binary.BigEndian.Uint64(b[i+8:])) != position+LSN(i) {
				continue
			}
			e, reason := parseHeader(b[i:])
			if reason == "" && e.synced > rp.r.End && (e.salt == h.salt || !salted) {
				return from + int64(i), nil
			}
		}
		if i == 0 {
			break
		}
		from += int64(i)
	}
	return -1, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// windowBytes is how much of a file is read at once: large enough for the disk to
// stream, small beside an entry that needs more.
const windowBytes = 1 << 20

// window reads a file in large pieces.
type window struct {
	f    vfs.File
	size int64
	buf  []byte
	at   int64 // offset of buf[0]
}

// read returns n bytes at off, fewer at the end of the file. They are valid until
// the next call. The caller has compared n with the file's size.
func (w *window) read(off int64, n int) ([]byte, error) {
	if off < w.at || off+int64(n) > w.at+int64(len(w.buf)) {
		if err := w.fill(off, max(n, windowBytes)); err != nil {
			return nil, err
		}
	}
	b := w.buf[min(off-w.at, int64(len(w.buf))):]
	return b[:min(n, len(b))], nil
}

func (w *window) fill(off int64, n int) error {
	n = int(max(0, min(int64(n), w.size-off)))
	if cap(w.buf) < n {
		w.buf = make([]byte, n)
	}
	got, err := w.f.ReadAt(w.buf[:n], off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	w.buf, w.at = w.buf[:got], off
	return nil
}
