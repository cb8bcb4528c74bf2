package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// Identity names a data directory and this start of it.
type Identity struct {
	ClusterID   string            // 22 characters of URL-safe base64; for ever the same
	Incarnation model.LeaderEpoch // grows by one at every start, from 0 as Kafka's leader epochs do; the epoch of everything appended now
	CleanStart  bool              // the last run ended with Close, or there was none
}

// formatVersion is the version of the layout of the data directory. Files with a
// format of their own have their own version besides.
const formatVersion = 1

// firstIncarnation is that of the start which made the directory.
const firstIncarnation model.LeaderEpoch = 0

// identityLimit bounds what is read of an identity file.
const identityLimit = 64 << 10

// identityRecord is identity.json.
type identityRecord struct {
	Format      int               `json:"format"`
	Cluster     string            `json:"cluster"`
	Incarnation model.LeaderEpoch `json:"incarnation"`
	Clean       bool              `json:"clean"` // Close was the last thing to happen
	// Sum is the CRC-32C of the others, see seal. Files from before it was there have
	// none.
	Sum string `json:"sum,omitempty"`
}

// seal is what Sum must be.
func (r *identityRecord) seal() string {
	return fmt.Sprintf("%08x", journal.Checksum(fmt.Appendf(nil, "%d %s %d %t", r.Format, r.Cluster, r.Incarnation, r.Clean)))
}

// ForeignDirectoryError says that the data directory holds something else.
type ForeignDirectoryError struct{ Found string }

func (e *ForeignDirectoryError) Error() string {
	return fmt.Sprintf("the data directory has no %s but holds %q: it is not a data directory of this broker", identityFile, e.Found)
}

// VersionError says that the directory was written by a newer version.
type VersionError struct{ Found, Known int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("the data directory has format %d, this version knows up to %d: it was written by a newer version", e.Found, e.Known)
}

// identify reads who the directory is, or makes it ours when it is empty, and
// counts this start. The count is durable before anything is appended under it.
func (e *Engine) identify() (clean bool, err error) {
	record, err := e.readIdentity()
	if damage, ok := errors.AsType[*CorruptionError](err); ok && e.o.Repair {
		record, err = e.guessIdentity(record, damage), nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		record, err = e.newIdentity()
	}
	if err != nil {
		return false, err
	}
	return record.Clean, e.count(record)
}

// count makes the next start the current one.
func (e *Engine) count(record identityRecord) error {
	clean := record.Clean
	record.Clean = false
	record.Incarnation++
	if err := e.writeIdentity(record); err != nil {
		return err
	}
	e.identity = Identity{ClusterID: record.Cluster, Incarnation: record.Incarnation, CleanStart: clean}
	return nil
}

// guessIdentity makes the best of a damaged record. The count may be too low, see
// outnumber.
func (e *Engine) guessIdentity(r identityRecord, damage *CorruptionError) identityRecord {
	what := "cluster id " + r.Cluster + " is kept"
	if _, err := model.ParseTopicID(r.Cluster); err != nil {
		r.Cluster = model.NewTopicID().String()
		what = "the cluster id is lost, the new one is " + r.Cluster
	}
	r.Format, r.Incarnation, r.Clean = formatVersion, max(r.Incarnation, firstIncarnation), false
	e.o.Events.partitionRecovered(model.TopicPartition{}, damage.Error()+"; "+what)
	return r
}

// outnumber puts this start above every one that has left batches in the logs: the
// record may have been damaged, or come from a backup.
func (e *Engine) outnumber() error {
	highest := model.NoLeaderEpoch
	for _, p := range e.all() {
		if known := *p.epochs.Load(); len(known) > 0 {
			highest = max(highest, known[len(known)-1].Epoch)
		}
	}
	if highest < e.identity.Incarnation {
		return nil
	}
	return e.count(identityRecord{Format: formatVersion, Cluster: e.identity.ClusterID, Incarnation: highest, Clean: e.identity.CleanStart})
}

func (e *Engine) readIdentity() (identityRecord, error) {
	var r identityRecord
	b, err := vfs.ReadFile(e.o.FS, identityFile, identityLimit)
	if err != nil {
		return r, fmt.Errorf("read identity: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, &CorruptionError{File: identityFile, Reason: err.Error()}
	}
	if r.Format > formatVersion { // which may count its checksum in another way
		return r, &VersionError{Found: r.Format, Known: formatVersion}
	}
	if r.Sum != "" && r.Sum != r.seal() {
		return r, &CorruptionError{File: identityFile, Reason: fmt.Sprintf("checksum %s, computed %s", r.Sum, r.seal())}
	}
	if _, err := model.ParseTopicID(r.Cluster); err != nil || r.Format < 1 || r.Incarnation < 0 {
		return r, &CorruptionError{File: identityFile, Reason: fmt.Sprintf("format %d, cluster %q, incarnation %d", r.Format, r.Cluster, r.Incarnation)}
	}
	return r, nil
}

// newIdentity begins a directory that holds nothing yet.
func (e *Engine) newIdentity() (identityRecord, error) {
	entries, err := e.o.FS.ReadDir(root)
	if err != nil {
		return identityRecord{}, fmt.Errorf("list data directory: %w", err)
	}
	for _, i := range entries {
		// The lock is ours; the temporary file a crash of the very first start; and a
		// volume of its own has lost+found.
		if i.Name != lockFile && i.Name != "lost+found" && !strings.HasPrefix(i.Name, identityFile) {
			return identityRecord{}, &ForeignDirectoryError{Found: i.Name}
		}
	}
	return identityRecord{Format: formatVersion, Cluster: model.NewTopicID().String(), Incarnation: firstIncarnation - 1, Clean: true}, nil
}

func (e *Engine) writeIdentity(r identityRecord) error {
	r.Sum = r.seal()
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode identity: %w", err)
	}
	if err := vfs.WriteFile(e.o.FS, root, identityFile, append(b, '\n')); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return nil
}

// markClean says that the checkpoint is the whole truth.
func (e *Engine) markClean() error {
	return e.writeIdentity(identityRecord{
		Format: formatVersion, Cluster: e.identity.ClusterID, Incarnation: e.identity.Incarnation, Clean: true,
	})
}

// mustHaveJournal refuses a directory that is in use and has lost its journal:
// recovering from nothing would take every segment for a leftover.
func (e *Engine) mustHaveJournal() error {
	if e.identity.Incarnation == firstIncarnation {
		return nil
	}
	_, err := e.o.FS.Stat(journal.Directory)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := e.o.FS.Stat(topicsDirectory); errors.Is(err, fs.ErrNotExist) {
		return nil // the first start ended before it had one
	}
	return &CorruptionError{File: journal.Directory, Reason: "the journal is missing"}
}
