package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

func newDLQCommand(s *session) *cobra.Command {
	return newFamily("dlq", "List, look into, redrive and purge dead-letter topics",
		newDLQListCommand(s), newDLQPeekCommand(s), newDLQStatsCommand(s), newDLQRedriveCommand(s), newDLQPurgeCommand(s))
}

// deadLetterSuffixes are how dead-letter topics end: Perigee's and MoonMQ's, and
// Spring's two. "error." and "dlq." at the start are Spring Cloud Stream's and
// Kafka's share groups'.
var (
	deadLetterSuffixes = []string{".dlq", ".DLT", "-dlt"}
	deadLetterPrefixes = []string{"error.", "dlq."}
)

func isDeadLetterTopic(name string) bool {
	return slices.ContainsFunc(deadLetterSuffixes, func(s string) bool { return strings.HasSuffix(name, s) }) ||
		slices.ContainsFunc(deadLetterPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// ---- list

type listedDLQ struct {
	Topic      string `json:"topic"`
	Partitions int    `json:"partitions"`
	Records    int64  `json:"records"`
}

func newDLQListCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List dead-letter topics and how many records they hold",
		Long:    "List the topics whose names are those of dead-letter topics: *" + strings.Join(deadLetterSuffixes, ", *") + ", " + strings.Join(deadLetterPrefixes, "*, ") + "*.",
		Example: "  perigee dlq list",
		Args:    arguments(cobra.NoArgs),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
			topics, err := admin.ListTopics(ctx)
			if err != nil {
				return fmt.Errorf("list topics: %w", err)
			}
			results := []listedDLQ{}
			t := table{header: []string{"TOPIC", "PARTITIONS", "RECORDS"}}
			for _, d := range topics.Sorted() {
				if !isDeadLetterTopic(d.Topic) {
					continue
				}
				spans, err := deadSpans(ctx, admin, d.Topic, nil)
				if err != nil {
					out.item(d.Topic, err)
					continue
				}
				r := listedDLQ{Topic: d.Topic, Partitions: len(d.Partitions)}
				for _, s := range spans {
					r.Records += int64(s.To - s.From)
				}
				results = append(results, r)
				t.add(r.Topic, r.Partitions, r.Records)
			}
			return out.print(results, t)
		}),
	}
}

// deadSpans are the partitions of a topic from their start, or from where a group
// is, to what is committed now.
func deadSpans(ctx context.Context, admin *kadm.Client, topic string, progress kadm.OffsetResponses) ([]deadletter.Span, error) {
	listed, err := listBounds(ctx, admin, []string{topic})
	if err == nil {
		err = listed.topicError(topic)
	}
	if err != nil {
		return nil, err
	}
	var spans []deadletter.Span
	for _, o := range listed.start[topic] {
		b := listed.of(topic, o.Partition)
		if b.err != nil {
			return nil, fmt.Errorf("%s: %w", topicPartition{topic, o.Partition}, b.err)
		}
		s := deadletter.Span{Partition: o.Partition, From: model.Offset(b.start), To: model.Offset(b.stable)}
		if c, ok := progress.Lookup(topic, o.Partition); ok && c.Err == nil {
			s.From = max(s.From, model.Offset(c.At))
		}
		spans = append(spans, s)
	}
	slices.SortFunc(spans, func(a, b deadletter.Span) int { return int(a.Partition - b.Partition) })
	return spans, nil
}

// readDead hands every record of the spans to see, partition by partition.
func (s *session) readDead(ctx context.Context, topic string, spans []deadletter.Span, see func(deadletter.Dead) error) error {
	log := &wireLog{session: s, topic: topic}
	defer log.close()
	for _, span := range spans {
		for span.From < span.To {
			records, next, err := log.Read(ctx, span.Partition, span.From)
			if err != nil {
				return err
			}
			for _, d := range records {
				if d.Offset >= span.To {
					break
				}
				if err := see(d); err != nil {
					return err
				}
			}
			if next <= span.From {
				break
			}
			span.From = next
		}
	}
	return nil
}

// ---- peek

type peekedRecord struct {
	jsonRecord        // its headers are the record's own
	Source     string `json:"source,omitempty"`
	SourcePart int32  `json:"source_partition"`
	SourceAt   int64  `json:"source_offset"`
	Group      string `json:"group,omitempty"`
	Deliveries int    `json:"deliveries"`
	Reason     string `json:"reason,omitempty"`
	Replays    int    `json:"replays"`
}

func newDLQPeekCommand(s *session) *cobra.Command {
	var count int
	var filters []string
	c := &cobra.Command{
		Use:   "peek TOPIC",
		Short: "Show dead records, where they came from and why they are here",
		Long:  "Show the oldest dead records. Nothing is moved and no group is involved.\n\n" + filterHelp,
		Example: "  perigee dlq peek orders.dlq -n 5\n" +
			"  perigee dlq peek orders.dlq -F 'header.__dlq.errors.message~timeout'",
		Args: arguments(cobra.ExactArgs(1)),
	}
	c.Flags().IntVarP(&count, "num", "n", 10, "how many")
	c.Flags().StringArrayVarP(&filters, "filter", "F", nil, "only records that pass, may be repeated")
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
		keep, err := deadFilter(args[0], deadChoice{filters: filters}, time.Now())
		if err != nil {
			return err
		}
		spans, err := deadSpans(ctx, admin, args[0], nil)
		if err != nil {
			return err
		}
		results := []peekedRecord{}
		t := table{header: []string{"PARTITION", "OFFSET", "SOURCE", "AT", "GROUP", "DELIVERIES", "REPLAYS", "REASON", "KEY", "VALUE"}}
		err = s.readDead(ctx, args[0], spans, func(d deadletter.Dead) error {
			if keep(d) {
				results = append(results, peeked(args[0], d))
				r := results[len(results)-1]
				t.add(r.Partition, r.Offset, r.Source, noneIsDash(r.SourceAt), r.Group, r.Deliveries, r.Replays, oneCell(r.Reason), oneCell(string(d.Key)), oneCell(string(d.Value)))
			}
			if len(results) >= count {
				return errEnough
			}
			return nil
		})
		if err != nil && err != errEnough {
			return err
		}
		return out.print(results, t)
	})
	return c
}

func peeked(topic string, d deadletter.Dead) peekedRecord {
	own := d
	own.Headers = slices.DeleteFunc(slices.Clone(d.Headers), func(h batch.RecordHeader) bool {
		return deadletter.Ours(h.Key) || deadletter.Foreign(h.Key) || h.Key == deadletter.HeaderReplays
	})
	r := peekedRecord{jsonRecord: toJSON(asRecord(topic, own)), SourcePart: -1, SourceAt: -1, Replays: deadletter.Replays(d.Headers)}
	if p, ok := deadletter.Find(d.Headers); ok {
		r.Source, r.SourcePart, r.SourceAt, r.Group, r.Deliveries, r.Reason = p.Topic, p.Partition, int64(p.Offset), p.Group, p.Deliveries, p.Reason
	}
	return r
}

// oneCell fits a text into a column: one word that can be printed, not too long.
func oneCell(s string) string {
	const longest = 40
	s = strings.Join(strings.Fields(s), "_")
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		s = strings.Trim(strconv.Quote(s), `"`)
	}
	if runes := []rune(s); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return s
}

// ---- stats

type dlqStats struct {
	Records int            `json:"records"`
	Oldest  int64          `json:"oldest_timestamp"`
	Newest  int64          `json:"newest_timestamp"`
	Reasons map[string]int `json:"reasons"`
	Sources map[string]int `json:"sources"`
	Groups  map[string]int `json:"groups"`
}

func newDLQStatsCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:     "stats TOPIC",
		Short:   "Count dead records by reason, source and group",
		Example: "  perigee dlq stats orders.dlq",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			spans, err := deadSpans(ctx, admin, args[0], nil)
			if err != nil {
				return err
			}
			stats := dlqStats{Oldest: -1, Newest: -1, Reasons: map[string]int{}, Sources: map[string]int{}, Groups: map[string]int{}}
			err = s.readDead(ctx, args[0], spans, func(d deadletter.Dead) error {
				stats.add(d)
				return nil
			})
			if err != nil {
				return err
			}
			return out.print(stats, stats.tables()...)
		}),
	}
}

func (s *dlqStats) add(d deadletter.Dead) {
	s.Records++
	if s.Oldest < 0 || int64(d.Timestamp) < s.Oldest {
		s.Oldest = int64(d.Timestamp)
	}
	s.Newest = max(s.Newest, int64(d.Timestamp))
	p, _ := deadletter.Find(d.Headers)
	s.Reasons[p.Reason]++
	s.Sources[p.Topic]++
	s.Groups[p.Group]++
}

func (s *dlqStats) tables() []table {
	summary := table{header: []string{"RECORDS", "OLDEST", "NEWEST"}}
	summary.add(s.Records, when(s.Oldest), when(s.Newest))
	tables := []table{summary}
	for _, h := range []struct {
		name   string
		counts map[string]int
	}{{"REASON", s.Reasons}, {"SOURCE", s.Sources}, {"GROUP", s.Groups}} {
		tables = append(tables, histogram(h.name, h.counts))
	}
	return tables
}

func when(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// histogram is a section of counts, the largest first.
func histogram(name string, counts map[string]int) table {
	t := table{title: strings.ToLower(name) + "s", header: []string{"RECORDS", name}}
	for _, word := range (&deadletter.Report{Reasons: counts}).TopReasons() {
		t.add(counts[word], oneCell(word))
	}
	return t
}

// ---- purge

func newDLQPurgeCommand(s *session) *cobra.Command {
	var partitions []int32
	var yes bool
	c := &cobra.Command{
		Use:     "purge TOPIC",
		Short:   "Delete all dead records",
		Example: "  perigee dlq purge orders.dlq --yes",
		Args:    arguments(cobra.ExactArgs(1)),
	}
	c.Flags().Int32SliceVarP(&partitions, "partition", "p", nil, "only these partitions")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
		topic := args[0]
		spans, err := deadSpans(ctx, admin, topic, nil)
		if err != nil {
			return err
		}
		before := kadm.Offsets{}
		records := int64(0)
		for _, span := range spans {
			if len(partitions) == 0 || slices.Contains(partitions, span.Partition) {
				before.AddOffset(topic, span.Partition, int64(span.To), -1)
				records += int64(span.To - span.From)
			}
		}
		if err := out.confirm(yes, fmt.Sprintf("delete %d records of %s", records, topic)); err != nil {
			return err
		}
		responses, err := admin.DeleteRecords(ctx, before)
		if err != nil {
			return fmt.Errorf("delete records: %w", err)
		}
		type purged struct {
			Partition int32  `json:"partition"`
			Start     int64  `json:"start_offset"`
			Error     string `json:"error,omitempty"`
		}
		results := []purged{}
		t := table{header: []string{"PARTITION", "START"}}
		for _, r := range responses.Sorted() {
			if r.Err != nil {
				out.item(fmt.Sprintf("%s/%d", r.Topic, r.Partition), r.Err)
			}
			results = append(results, purged{r.Partition, r.LowWatermark, message(r.Err)})
			t.add(r.Partition, r.LowWatermark)
		}
		return out.print(results, t)
	})
	return c
}

// asDead is a record of a client as a dead one.
func asDead(r *kgo.Record) deadletter.Dead {
	d := deadletter.Dead{Partition: r.Partition, Offset: model.Offset(r.Offset), Timestamp: model.Timestamp(r.Timestamp.UnixMilli()), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		d.Headers = append(d.Headers, batch.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return d
}

// asRecord is the inverse, for filters.
func asRecord(topic string, d deadletter.Dead) *kgo.Record {
	r := &kgo.Record{Topic: topic, Partition: d.Partition, Offset: int64(d.Offset), Timestamp: time.UnixMilli(int64(d.Timestamp)), Key: d.Key, Value: d.Value}
	for _, h := range d.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}
