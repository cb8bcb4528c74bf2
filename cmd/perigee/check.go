package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/vfs"
)

type checkReport struct {
	DataDir        string         `json:"data_dir"`
	Healthy        bool           `json:"healthy"`
	Partitions     int            `json:"partitions"`
	Segments       int            `json:"segments"`
	Batches        int64          `json:"batches"`
	Records        int64          `json:"records"`
	Bytes          int64          `json:"bytes"`
	JournalEntries int64          `json:"journal_entries"`
	ToReplay       int64          `json:"journal_entries_to_replay"`
	Stray          []string       `json:"stray_files"`
	Damage         []damageReport `json:"damage"`
}

type damageReport struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"` // byte in the file
	Reason string `json:"reason"`
}

func newCheckCommand(s *session) *cobra.Command {
	var f offlineFlags
	c := &cobra.Command{
		Use:   "check",
		Short: "Verify the data directory of a stopped broker",
		Long: "Verify every checksum, offset and index of a data directory, and that its parts agree.\n" +
			"Nothing is changed. Exits with 1 when anything is damaged, a line for each on stderr.",
		Example: "  perigee check --data-dir /var/lib/perigee",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := s.output(c)
			if err != nil {
				return err
			}
			disk, dir, err := f.open()
			if err != nil {
				return err
			}
			defer disk.Close()
			found, err := storage.Check(c.Context(), storage.Options{FS: disk})
			if err != nil {
				return fmt.Errorf("check %s: %w", dir, err)
			}
			if err := printCheck(out, newCheckReport(dir, found)); err != nil {
				return err
			}
			return out.end()
		},
	}
	f.add(c.Flags())
	return c
}

func newCheckReport(dir string, found *storage.CheckReport) checkReport {
	r := checkReport{
		DataDir: dir, Healthy: len(found.Damage) == 0, Partitions: found.Partitions, Segments: found.Segments,
		Batches: found.Batches, Records: found.Records, Bytes: found.Bytes,
		JournalEntries: found.JournalEntries, ToReplay: found.Behind, Stray: found.Stray, Damage: []damageReport{},
	}
	if r.Stray == nil {
		r.Stray = []string{}
	}
	for _, d := range found.Damage {
		r.Damage = append(r.Damage, damageReport{d.File, d.Offset, d.Reason})
	}
	return r
}

func printCheck(out *output, r checkReport) error {
	for _, d := range r.Damage {
		out.item(fmt.Sprintf("%s:%d", d.File, d.Offset), errors.New(d.Reason))
	}
	t := table{title: "CHECK"}
	t.add("DATA-DIR", r.DataDir)
	t.add("HEALTHY", r.Healthy)
	t.add("PARTITIONS", r.Partitions)
	t.add("SEGMENTS", r.Segments)
	t.add("BATCHES", r.Batches)
	t.add("RECORDS", r.Records)
	t.add("BYTES", r.Bytes)
	t.add("JOURNAL-ENTRIES", r.JournalEntries)
	t.add("TO-REPLAY", r.ToReplay)
	t.add("STRAY-FILES", len(r.Stray))
	t.add("DAMAGE", len(r.Damage))
	return out.print(r, t)
}

// openDataDir opens a directory that must be there already and hold a broker's data.
func openDataDir(dir string) (*vfs.Disk, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	disk, err := vfs.OpenDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	if _, err := disk.Stat("identity.json"); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("%s is not a data directory of perigee: it has no identity.json", dir), disk.Close())
	}
	return disk, nil
}
