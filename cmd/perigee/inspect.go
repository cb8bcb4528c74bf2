package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/journal"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/segment"
	"github.com/perigeemq/perigee/storage/vfs"
)

// inspect shows what the files of a stopped broker say, through the readers the
// broker itself uses. It repairs nothing, replays nothing and trusts nothing: what
// cannot be read is reported where it stands.

func newInspectCommand(s *session) *cobra.Command {
	return newFamily("inspect", "Print the files of a stopped broker",
		newInspectSegmentsCommand(s), newInspectBatchesCommand(s), newInspectFactsCommand(s), newInspectJournalCommand(s))
}

// offlineFlags say where the data is.
type offlineFlags struct{ settings settingFlags }

func (f *offlineFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.settings.dataDir, "data-dir", "", "the data directory (default that of the settings, ./perigee-data)")
	flags.StringVar(&f.settings.config, "config", "", "YAML file that says where it is")
}

func (f *offlineFlags) open() (*vfs.Disk, string, error) {
	loaded, err := f.settings.load()
	if err != nil {
		return nil, "", err
	}
	disk, err := openDataDir(loaded.Broker.DataDir)
	return disk, loaded.Broker.DataDir, err
}

// dataDir is a data directory under the broker's own lock, so that nobody writes
// while it is read.
type dataDir struct {
	disk  *vfs.Disk
	lock  interface{ Close() error }
	files *segment.Files
	names map[model.TopicID]string
}

const (
	lockName       = "LOCK"   // see storage's package page for these names
	topicsName     = "topics" //
	indexInterval  = 4096     // bytes; of indexes in memory only
	openFilesLimit = 16
)

func (f *offlineFlags) lock() (*dataDir, error) {
	disk, _, err := f.open()
	if err != nil {
		return nil, err
	}
	lock, err := disk.Lock(lockName)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory: %w", err), disk.Close())
	}
	d := &dataDir{disk: disk, lock: lock, files: segment.NewFiles(disk, openFilesLimit)}
	if d.names, err = d.topicNames(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *dataDir) Close() error { return errors.Join(d.lock.Close(), d.disk.Close()) }

// storedPartition is a partition as its directory has it.
type storedPartition struct {
	model.TopicPartition
	name     string // the topic's, or its id when the catalog does not know it
	segments []storedSegment
}

type storedSegment struct {
	*segment.Segment
	indexed bool // there is an index file
}

// partitions lists what is on the disk, in order of name and number.
func (d *dataDir) partitions() ([]storedPartition, error) {
	topics, err := d.disk.ReadDir(topicsName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var all []storedPartition
	for _, t := range topics {
		id, err := model.ParseTopicID(t.Name)
		if err != nil {
			continue
		}
		numbers, err := d.disk.ReadDir(topicsName + "/" + t.Name)
		if err != nil {
			return nil, fmt.Errorf("list partitions: %w", err)
		}
		for _, n := range numbers {
			number, err := strconv.ParseInt(n.Name, 10, 32)
			if err != nil || !n.Dir {
				continue
			}
			p := storedPartition{TopicPartition: model.TopicPartition{Topic: id, Partition: int32(number)}, name: d.nameOf(id)}
			if p.segments, err = d.segments(p.TopicPartition); err != nil {
				return nil, err
			}
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b storedPartition) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return all, nil
}

func (d *dataDir) nameOf(id model.TopicID) string {
	if name, ok := d.names[id]; ok {
		return name
	}
	return id.String()
}

// segments lists a partition's log files. Of one that compaction has rewritten the
// newest generation counts.
func (d *dataDir) segments(tp model.TopicPartition) ([]storedSegment, error) {
	dir := fmt.Sprintf("%s/%s/%d", topicsName, tp.Topic, tp.Partition)
	entries, err := d.disk.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	newest, indexed := map[model.Offset]segment.Meta{}, map[segment.ID]bool{}
	for _, e := range entries {
		id, isLog, ok := segment.ParseName(e.Name)
		switch {
		case !ok:
		case !isLog:
			indexed[id] = true
		case newest[id.Base].Size == 0 || newest[id.Base].Generation < id.Generation:
			newest[id.Base] = segment.Meta{ID: id, Size: e.Size}
		}
	}
	var all []storedSegment
	for _, base := range slices.Sorted(maps.Keys(newest)) {
		m := newest[base]
		all = append(all, storedSegment{segment.New(d.files, dir, []string{dir}, m, indexInterval), indexed[m.ID]})
	}
	return all, nil
}

// batches walks a segment's batches; damage ends the walk and is returned.
func (s storedSegment) batches(fn func(v batch.View, pos int64) error) error {
	var failure error
	err := s.Headers(0, s.Size(), func(h *batch.Header, pos int64) bool {
		b := make([]byte, h.Len)
		if failure = s.Read(b, pos); failure != nil {
			return false
		}
		v, _, err := batch.Parse(b)
		if err != nil {
			failure = &segment.CorruptionError{File: s.Path(), Offset: pos, Reason: err.Error()}
			return false
		}
		failure = fn(v, pos)
		return failure == nil
	})
	return errors.Join(failure, err, s.Close())
}

// topicNames replays the catalog as a start does.
func (d *dataDir) topicNames() (map[model.TopicID]string, error) {
	loaded, err := config.Load(config.Sources{})
	if err != nil {
		return nil, err
	}
	var snapshot atomic.Pointer[catalog.Snapshot]
	replayed := catalog.New(loaded.Static, loaded.Broker, &snapshot)
	segments, err := d.segments(model.TopicPartition{Topic: catalog.InternalID(catalog.CatalogTopic)})
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		// A catalog that cannot be read to its end still names most topics; the
		// damage shows when it is printed.
		_ = s.batches(func(v batch.View, _ int64) error {
			return eachFact(v, func(r machine.Record) error {
				if f, err := (catalog.Codec{}).Decode(r); err == nil {
					replayed.Apply(f, r.Offset)
				}
				return nil
			})
		})
	}
	names := map[model.TopicID]string{}
	for _, t := range snapshot.Load().Topics() {
		names[t.ID] = t.Name
	}
	return names, nil
}

// withDataDir runs a verb on a locked directory.
func (s *session) withDataDir(f *offlineFlags, verb func(d *dataDir, out *output, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		out, err := s.output(c)
		if err != nil {
			return err
		}
		d, err := f.lock()
		if err != nil {
			return err
		}
		if err := errors.Join(verb(d, out, args), d.Close()); err != nil {
			return err
		}
		return out.end()
	}
}

// chosen returns the partitions that TOPIC[:PARTITION,...] arguments name; all
// without any.
func (d *dataDir) chosen(args []string) ([]storedPartition, error) {
	selection, err := parseSelection(args)
	if err != nil {
		return nil, err
	}
	all, err := d.partitions()
	if err != nil || len(args) == 0 {
		return all, err
	}
	found := map[string]bool{}
	chosen := slices.DeleteFunc(all, func(p storedPartition) bool {
		numbers, named := selection[p.name]
		keep := named && (len(numbers) == 0 || slices.Contains(numbers, p.Partition))
		found[p.name] = found[p.name] || keep
		return !keep
	})
	for _, name := range sortedKeys(selection) {
		if !found[name] {
			return nil, fmt.Errorf("%s: no such data on the disk", name)
		}
	}
	return chosen, nil
}

// ---- segments

type segmentReport struct {
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	File         string `json:"file"`
	Bytes        int64  `json:"bytes"`
	Batches      int    `json:"batches"`
	Records      int64  `json:"records"`
	First        int64  `json:"first_offset"`
	Last         int64  `json:"last_offset"`   // -1: no batch
	MaxTimestamp int64  `json:"max_timestamp"` // likewise
	Indexed      bool   `json:"indexed"`
	Error        string `json:"error,omitempty"`
}

func newInspectSegmentsCommand(s *session) *cobra.Command {
	var f offlineFlags
	c := &cobra.Command{
		Use:   "segments [TOPIC[:PARTITION,...]...]",
		Short: "Print the log files with what is in them",
		RunE: s.withDataDir(&f, func(d *dataDir, out *output, args []string) error {
			partitions, err := d.chosen(args)
			if err != nil {
				return err
			}
			results := []segmentReport{}
			t := table{header: []string{"TOPIC", "PARTITION", "FIRST", "LAST", "BATCHES", "RECORDS", "BYTES", "MAX-TIMESTAMP", "INDEX", "FILE"}}
			for _, p := range partitions {
				for _, seg := range p.segments {
					r := describeSegment(out, p, seg)
					results = append(results, r)
					t.add(r.Topic, r.Partition, r.First, noneIsDash(r.Last), r.Batches, r.Records, r.Bytes, noneIsDash(r.MaxTimestamp), r.Indexed, r.File)
				}
			}
			return out.print(results, t)
		}),
	}
	f.add(c.Flags())
	return c
}

func describeSegment(out *output, p storedPartition, s storedSegment) segmentReport {
	r := segmentReport{Topic: p.name, Partition: p.Partition, File: s.Path(), Bytes: s.Size(), First: int64(s.Base()), Last: -1, MaxTimestamp: -1, Indexed: s.indexed}
	err := s.batches(func(v batch.View, _ int64) error {
		r.Batches++
		r.Records += int64(v.Count())
		r.Last = int64(v.LastOffset())
		r.MaxTimestamp = max(r.MaxTimestamp, int64(v.MaxTimestamp()))
		return nil
	})
	if err != nil {
		r.Error = message(err)
		out.item(s.Path(), err)
	}
	return r
}

// ---- batches

type batchReport struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	File      string `json:"file"`
	Position  int64  `json:"position"`
	First     int64  `json:"first_offset"`
	Last      int64  `json:"last_offset"`
	Records   int32  `json:"records"`
	Bytes     int    `json:"bytes"`
	Codec     string `json:"codec"`
	Epoch     int32  `json:"leader_epoch"`
	Timestamp int64  `json:"max_timestamp"`
	Producer  int64  `json:"producer_id"`
	ProdEpoch int16  `json:"producer_epoch"`
	Sequence  int32  `json:"base_sequence"`
	Kind      string `json:"kind"` // data, transactional, commit, abort, control
}

func newInspectBatchesCommand(s *session) *cobra.Command {
	var f offlineFlags
	var from int64
	var limit int
	c := &cobra.Command{
		Use:   "batches TOPIC[:PARTITION,...]...",
		Short: "Print the batches of log files",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: s.withDataDir(&f, func(d *dataDir, out *output, args []string) error {
			partitions, err := d.chosen(args)
			if err != nil {
				return err
			}
			results := []batchReport{}
			for _, p := range partitions {
				for _, seg := range p.segments {
					err := seg.batches(func(v batch.View, pos int64) error {
						if int64(v.LastOffset()) < from {
							return nil
						}
						if limit > 0 && len(results) == limit {
							return errEnough
						}
						results = append(results, describeBatch(p, seg, v, pos))
						return nil
					})
					if err != nil && !errors.Is(err, errEnough) {
						out.item(seg.Path(), err)
					}
				}
			}
			t := table{header: []string{"TOPIC", "PARTITION", "FIRST", "LAST", "RECORDS", "BYTES", "CODEC", "EPOCH", "TIMESTAMP", "PRODUCER", "P-EPOCH", "SEQUENCE", "KIND", "POSITION"}}
			for _, r := range results {
				t.add(r.Topic, r.Partition, r.First, r.Last, r.Records, r.Bytes, r.Codec, r.Epoch, r.Timestamp, r.Producer, r.ProdEpoch, r.Sequence, r.Kind, r.Position)
			}
			return out.print(results, t)
		}),
	}
	f.add(c.Flags())
	c.Flags().Int64Var(&from, "from", 0, "only batches that reach this offset")
	c.Flags().IntVarP(&limit, "num", "n", 0, "at most this many")
	return c
}

var errEnough = errors.New("enough")

func describeBatch(p storedPartition, s storedSegment, v batch.View, pos int64) batchReport {
	h := v.Header()
	return batchReport{
		p.name, p.Partition, s.Path(), pos, int64(h.BaseOffset), int64(h.LastOffset()), h.Count, h.Len,
		v.Compression().String(), int32(h.LeaderEpoch), int64(h.MaxTimestamp),
		int64(h.ProducerID), int16(h.ProducerEpoch), int32(h.BaseSequence), batchKind(v),
	}
}

func batchKind(v batch.View) string {
	switch {
	case v.IsControl():
		if m, err := v.Marker(); err == nil {
			return m.Type.String()
		}
		return "control"
	case v.IsTransactional():
		return "transactional"
	}
	return "data"
}

// ---- journal

type journalReport struct {
	LSN       int64  `json:"lsn"`
	File      string `json:"file"`
	Offset    int64  `json:"offset"`
	Item      int    `json:"item"`
	Kind      string `json:"kind"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Base      int64  `json:"base_offset"`
	Segment   int64  `json:"segment"`
	Position  int64  `json:"position"`
	Bytes     int64  `json:"bytes"`
}

func newInspectJournalCommand(s *session) *cobra.Command {
	var f offlineFlags
	c := &cobra.Command{
		Use:   "journal",
		Short: "Print the journal's entries that are still there, an item a line",
		Args:  arguments(cobra.NoArgs),
		RunE: s.withDataDir(&f, func(d *dataDir, out *output, _ []string) error {
			from, err := journal.KeptFrom(d.disk, ".")
			if err != nil {
				out.item("checkpoint", err)
			}
			results := []journalReport{}
			_, err = journal.Recover(journal.RecoverOptions{FS: d.disk, From: from}, func(r *journal.Record) error {
				for i, it := range r.Items {
					results = append(results, journalReport{
						int64(r.Start), r.File, r.Offset, i, it.Kind.String(), d.nameOf(it.Partition.Topic), it.Partition.Partition,
						int64(it.Offset), int64(it.SegmentBase), it.Position, max(int64(len(it.Bytes)), int64(it.Length)),
					})
				}
				return nil
			})
			if err != nil {
				out.item("journal", err)
			}
			t := table{header: []string{"LSN", "ITEM", "KIND", "TOPIC", "PARTITION", "OFFSET", "BYTES", "SEGMENT", "POSITION", "FILE"}}
			for _, r := range results {
				t.add(r.LSN, r.Item, r.Kind, r.Topic, r.Partition, r.Base, r.Bytes, r.Segment, r.Position, r.File)
			}
			return out.print(results, t)
		}),
	}
	f.add(c.Flags())
	return c
}
