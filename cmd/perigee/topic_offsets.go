package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// bounds are the offsets of a partition as a client sees them.
type bounds struct {
	start, stable, end int64
	err                error
}

type listedBounds struct{ start, stable, end kadm.ListedOffsets }

func listBounds(ctx context.Context, admin *kadm.Client, topics []string) (listedBounds, error) {
	var b listedBounds
	var err error
	if b.start, err = admin.ListStartOffsets(ctx, topics...); err != nil {
		return b, fmt.Errorf("list start offsets: %w", err)
	}
	if b.stable, err = admin.ListCommittedOffsets(ctx, topics...); err != nil {
		return b, fmt.Errorf("list stable offsets: %w", err)
	}
	if b.end, err = admin.ListEndOffsets(ctx, topics...); err != nil {
		return b, fmt.Errorf("list end offsets: %w", err)
	}
	return b, nil
}

// topicError says what is wrong with a topic as a whole: the library answers for
// partition -1 then.
func (l *listedBounds) topicError(topic string) error {
	if o, ok := l.start.Lookup(topic, -1); ok && o.Err != nil {
		return fmt.Errorf("%s: %w", topic, o.Err)
	}
	return nil
}

func (l *listedBounds) of(topic string, partition int32) bounds {
	b := bounds{-1, -1, -1, nil}
	for _, one := range []struct {
		listed kadm.ListedOffsets
		offset *int64
	}{{l.start, &b.start}, {l.stable, &b.stable}, {l.end, &b.end}} {
		o, ok := one.listed.Lookup(topic, partition)
		switch {
		case !ok && b.err == nil:
			b.err = fmt.Errorf("the broker did not answer for this partition")
		case ok && o.Err != nil:
			b.err = o.Err
		case ok:
			*one.offset = o.Offset
		}
	}
	return b
}

type topicOffsets struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"start_offset"`
	Stable    int64  `json:"stable_offset"`
	End       int64  `json:"end_offset"`
	Error     string `json:"error,omitempty"`
}

type topicOffsetsAt struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"`
	Epoch     int32  `json:"leader_epoch"`
	Error     string `json:"error,omitempty"`
}

func newTopicOffsetsCommand(s *session) *cobra.Command {
	var at string
	c := &cobra.Command{
		Use:   "offsets TOPIC...",
		Short: "Show start, stable and end offsets, or the offsets at a time",
		Example: "  perigee topic offsets orders\n" +
			"  perigee topic offsets orders --at 2026-11-30T12:00:00Z\n" +
			"  perigee topic offsets orders --at -1h",
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			topics, err := findTopics(ctx, admin, out, args, false, true)
			if err != nil || len(topics) == 0 {
				return err
			}
			if at != "" {
				return printOffsetsAt(ctx, admin, out, at, topics)
			}
			return printBounds(ctx, admin, out, topics)
		}),
	}
	c.Flags().StringVar(&at, "at", "", "time: RFC 3339, a date, Unix milliseconds, -1h for an hour ago, or max for the latest timestamp")
	return c
}

func topicNames(topics []kadm.TopicDetail) []string {
	var names []string
	for _, d := range topics {
		names = append(names, d.Topic)
	}
	return names
}

func printBounds(ctx context.Context, admin *kadm.Client, out *output, topics []kadm.TopicDetail) error {
	listed, err := listBounds(ctx, admin, topicNames(topics))
	if err != nil {
		return err
	}
	results := []topicOffsets{}
	t := table{header: []string{"TOPIC", "PARTITION", "START", "STABLE", "END"}}
	for _, d := range topics {
		for _, p := range d.Partitions.Sorted() {
			b := listed.of(p.Topic, p.Partition)
			if b.err != nil {
				out.item(fmt.Sprintf("%s/%d", p.Topic, p.Partition), b.err)
			}
			results = append(results, topicOffsets{p.Topic, p.Partition, b.start, b.stable, b.end, message(b.err)})
			t.add(p.Topic, p.Partition, b.start, b.stable, b.end)
		}
	}
	return out.print(results, t)
}

func printOffsetsAt(ctx context.Context, admin *kadm.Client, out *output, at string, topics []kadm.TopicDetail) error {
	listed, err := offsetsAt(ctx, admin, at, topicNames(topics))
	if err != nil {
		return err
	}
	results := []topicOffsetsAt{}
	t := table{header: []string{"TOPIC", "PARTITION", "OFFSET", "TIMESTAMP", "EPOCH"}}
	for _, d := range topics {
		for _, p := range d.Partitions.Sorted() {
			o, _ := listed.Lookup(p.Topic, p.Partition)
			if o.Err != nil {
				out.item(fmt.Sprintf("%s/%d", p.Topic, p.Partition), o.Err)
			}
			results = append(results, topicOffsetsAt{p.Topic, p.Partition, o.Offset, o.Timestamp, o.LeaderEpoch, message(o.Err)})
			t.add(p.Topic, p.Partition, o.Offset, o.Timestamp, o.LeaderEpoch)
		}
	}
	return out.print(results, t)
}

func offsetsAt(ctx context.Context, admin *kadm.Client, at string, topics []string) (kadm.ListedOffsets, error) {
	if at == "max" {
		listed, err := admin.ListMaxTimestampOffsets(ctx, topics...)
		return listed, wrap("list offsets of the latest timestamp", err)
	}
	when, err := parseTime(at, time.Now())
	if err != nil {
		return nil, usagef("--at: %w", err)
	}
	listed, err := admin.ListOffsetsAfterMilli(ctx, when.UnixMilli(), topics...)
	return listed, wrap("list offsets by time", err)
}

// ---- trim

type trimmedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from_offset"`
	Before    int64  `json:"before_offset"`
	Start     int64  `json:"start_offset"`
	Status    string `json:"status"`
	Error     string `json:"error,omitempty"`
}

func newTopicTrimCommand(s *session) *cobra.Command {
	var o struct {
		before     string
		partitions []int32
		yes        bool
	}
	var target startSpec
	c := &cobra.Command{
		Use:   "trim TOPIC --before OFFSET|end|@TIME",
		Short: "Delete the records before an offset or a time",
		Example: "  perigee topic trim orders --before @2026-11-01 --yes\n" +
			"  perigee topic trim orders -p 0 --before 1000 --yes",
		Args: arguments(cobra.ExactArgs(1)),
		PreRunE: func(*cobra.Command, []string) (err error) {
			if o.before == "" {
				return usagef("--before is needed")
			}
			target, err = parseTrim(o.before, time.Now())
			return err
		},
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			plan, err := planTrim(ctx, admin, out, args[0], target, o.partitions)
			if err != nil || len(plan) == 0 {
				return err
			}
			if err := out.confirm(o.yes, fmt.Sprintf("delete records of %d partitions of %s before %s", len(plan), args[0], o.before)); err != nil {
				return err
			}
			return trim(ctx, admin, out, plan)
		}),
	}
	c.Flags().StringVar(&o.before, "before", "", "first offset to keep, end for none, or @TIME")
	c.Flags().Int32SliceVarP(&o.partitions, "partitions", "p", nil, "only these partitions")
	c.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	return c
}

// parseTrim reads --before: an offset, end or a time.
func parseTrim(s string, now time.Time) (startSpec, error) {
	target, err := parseStart(s, now)
	if err != nil || s[0] == '+' || s[0] == '-' {
		return target, usagef("--before %s: want an offset, end or @TIME", s)
	}
	return target, nil
}

// planTrim decides the new start of each partition and changes nothing.
func planTrim(ctx context.Context, admin *kadm.Client, out *output, topic string, target startSpec, partitions []int32) ([]trimmedPartition, error) {
	topics, err := findTopics(ctx, admin, out, []string{topic}, false, true)
	if err != nil || len(topics) == 0 {
		return nil, err
	}
	listed, err := listBounds(ctx, admin, []string{topic})
	if err != nil {
		return nil, err
	}
	at, err := target.atTime(ctx, admin, []string{topic})
	if err != nil {
		return nil, err
	}
	if len(partitions) == 0 {
		partitions = topics[0].Partitions.Numbers()
	}
	var plan []trimmedPartition
	for _, p := range partitions {
		tp := topicPartition{topic, p}
		b := listed.of(topic, p)
		if b.err != nil {
			out.item(tp.String(), b.err)
			continue
		}
		plan = append(plan, trimmedPartition{Topic: topic, Partition: p, From: b.start, Before: target.in(tp, b, at)})
	}
	return plan, nil
}

func trim(ctx context.Context, admin *kadm.Client, out *output, plan []trimmedPartition) error {
	offsets := kadm.Offsets{}
	for _, p := range plan {
		offsets.AddOffset(p.Topic, p.Partition, p.Before, -1)
	}
	responses, err := admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return fmt.Errorf("delete records: %w", err)
	}
	t := table{header: []string{"TOPIC", "PARTITION", "OLD-START", "NEW-START", "STATUS"}}
	for i := range plan {
		p := &plan[i]
		r, _ := responses.Lookup(p.Topic, p.Partition)
		p.Start, p.Status, p.Error = r.LowWatermark, "trimmed", message(r.Err)
		if r.Err != nil {
			p.Start, p.Status = p.From, "failed"
			out.item(fmt.Sprintf("%s/%d", p.Topic, p.Partition), r.Err)
		}
		t.add(p.Topic, p.Partition, p.From, p.Start, p.Status)
	}
	return out.print(plan, t)
}
