package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeemq/perigee/coordinator/deadletter"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// deadChoice says which dead records are meant.
type deadChoice struct {
	reason, key  string // regular expressions
	since, until string // when the record died
	filters      []string
}

// redriveOptions are the flags of dlq redrive.
type redriveOptions struct {
	deadChoice
	to, group  string
	max        int
	rate       float64
	maxReplays int
	execute    bool
}

func newDLQRedriveCommand(s *session) *cobra.Command {
	var o redriveOptions
	c := &cobra.Command{
		Use:   "redrive TOPIC",
		Short: "Send dead records back to where they came from; shows the plan unless --execute is given",
		Long: `Send the records of a dead-letter topic back to the topics and partitions they came
from, as their headers say: Perigee's and Kafka's, Spring's, Kafka Connect's or Spring
Cloud Stream's. Without --execute nothing is sent, and the plan is a histogram of the
reasons they died for.

A redrive is resumable: it publishes before it commits its progress, under a consumer
group of its own. One with filters has another group than one without, so that what
the filters left out is still there for the next. A record that was redriven
--max-replays times already is left, and none is ever sent into the topic it is read from.

` + filterHelp,
		Example: "  perigee dlq redrive orders.dlq\n" +
			"  perigee dlq redrive orders.dlq --execute\n" +
			"  perigee dlq redrive orders.dlq --reason timeout --since -2h --max 100 --rate 20 --execute",
		Args: arguments(cobra.ExactArgs(1)),
	}
	f := c.Flags()
	f.StringVar(&o.reason, "reason", "", "only records whose reason matches this regular expression")
	f.StringVar(&o.key, "key", "", "only records whose key matches this regular expression")
	f.StringVar(&o.since, "since", "", "only records that died at or after this time: RFC 3339, or -2h")
	f.StringVar(&o.until, "until", "", "only records that died before this time; one like -2h ends each partition there, and the next run goes on")
	f.StringArrayVarP(&o.filters, "filter", "F", nil, "only records that pass, may be repeated")
	f.StringVar(&o.to, "to", "", "send everything to this topic, partitioned by key")
	f.StringVar(&o.group, "group", "", "consumer group that keeps the progress (default perigee-redrive-TOPIC)")
	f.IntVar(&o.max, "max", 0, "redrive at most so many records")
	f.Float64Var(&o.rate, "rate", 0, "redrive at most so many records a second")
	f.IntVar(&o.maxReplays, "max-replays", 0, "leave records that were redriven so often (default 5)")
	f.BoolVar(&o.execute, "execute", false, "do it")
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
		return s.redrive(ctx, admin, out, args[0], o)
	})
	return c
}

// deadFilter puts the conditions together.
func deadFilter(topic string, o deadChoice, now time.Time) (func(deadletter.Dead) bool, error) {
	var all []func(deadletter.Dead) bool
	matching := func(flag, pattern string, field func(deadletter.Dead) string) error {
		if pattern == "" {
			return nil
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			return usagef("--%s: %w", flag, err)
		}
		all = append(all, func(d deadletter.Dead) bool { return re.MatchString(field(d)) })
		return nil
	}
	reason := func(d deadletter.Dead) string { p, _ := deadletter.Find(d.Headers); return p.Reason }
	if err := matching("reason", o.reason, reason); err != nil {
		return nil, err
	}
	if err := matching("key", o.key, func(d deadletter.Dead) string { return string(d.Key) }); err != nil {
		return nil, err
	}
	for _, limit := range []struct {
		flag, text string
		holds      func(at, limit model.Timestamp) bool
	}{
		{"since", o.since, func(at, limit model.Timestamp) bool { return at >= limit }},
		{"until", o.until, func(at, limit model.Timestamp) bool { return at < limit }},
	} {
		if limit.text == "" {
			continue
		}
		at, err := parseTime(limit.text, now)
		if err != nil {
			return nil, usagef("--%s: %w", limit.flag, err)
		}
		all = append(all, func(d deadletter.Dead) bool { return limit.holds(d.Timestamp, model.Timestamp(at.UnixMilli())) })
	}
	for _, text := range o.filters {
		f, err := parseFilter(text)
		if err != nil {
			return nil, usagef("--filter: %w", err)
		}
		all = append(all, func(d deadletter.Dead) bool { return f.passes(asRecord(topic, d)) })
	}
	return func(d deadletter.Dead) bool {
		for _, holds := range all {
			if !holds(d) {
				return false
			}
		}
		return true
	}, nil
}

func (o *redriveOptions) progressGroup(topic string) string {
	if o.group != "" {
		return o.group
	}
	return deadletter.ProgressGroup(topic, append([]string{o.reason, o.key, o.since, o.until}, o.filters...)...)
}

func (s *session) redrive(ctx context.Context, admin *kadm.Client, out *output, topic string, o redriveOptions) error {
	now := time.Now()
	keep, err := deadFilter(topic, o.deadChoice, now)
	if err != nil {
		return err
	}
	group := o.progressGroup(topic)
	var end model.Timestamp
	if isRelativeTime(o.until) {
		// Its meaning moves on: what is too young for this run must be left for the next.
		at, err := parseTime(o.until, now)
		if err != nil {
			return usagef("--until: %w", err)
		}
		end = model.Timestamp(at.UnixMilli())
	}
	progress, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return fmt.Errorf("fetch progress: %w", err)
	}
	spans, err := deadSpans(ctx, admin, topic, progress)
	if err != nil {
		return err
	}
	log := &wireLog{session: s, admin: admin, topic: topic}
	defer log.close()
	plan := deadletter.Redrive{Topic: topic, Group: group, To: o.to, Keep: keep, End: end, Max: o.max, Rate: o.rate,
		MaxReplays: o.maxReplays, Execute: o.execute, Pause: pause}
	report, runErr := plan.Run(ctx, log, spans)
	if err := printRedrive(out, report, group, o.execute); err != nil {
		return err
	}
	return wrap("redrive", runErr)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func printRedrive(out *output, report *deadletter.Report, group string, executed bool) error {
	fates := table{header: []string{"RECORDS", "FATE"}}
	for _, fate := range []deadletter.Fate{deadletter.Redriven, deadletter.Filtered, deadletter.NoOrigin, deadletter.Loop, deadletter.Exhausted, deadletter.Pointer} {
		if n := report.Fates[fate]; n > 0 || fate == deadletter.Redriven {
			name := string(fate)
			if fate == deadletter.Redriven && !executed {
				name = "would be redriven"
			}
			fates.add(n, name)
		}
	}
	result := struct {
		*deadletter.Report
		Group    string `json:"group"`
		Executed bool   `json:"executed"`
	}{report, group, executed}
	if err := out.print(result, fates, histogram("REASON", report.Reasons), histogram("TARGET", report.Targets)); err != nil {
		return err
	}
	if !executed && !out.json {
		fmt.Fprintln(out.w, "\nnothing was sent; add --execute")
	}
	return nil
}

// wireLog is a deadletter.Log over Kafka's protocol.
type wireLog struct {
	session   *session
	admin     *kadm.Client
	topic     string
	reader    *kgo.Client // of one partition at a time
	scout     *kgo.Client // looks past what the reader is not shown
	at        deadletter.Span
	publisher *kgo.Client
	limits    *batchLimits // of the publisher
}

func (l *wireLog) close() {
	for _, c := range []*kgo.Client{l.reader, l.scout, l.publisher} {
		if c != nil {
			c.Close()
		}
	}
	if l.limits != nil {
		l.limits.close()
	}
}

// readChunk is how many records are published, and then committed, at a time.
const readChunk = 500

// Read implements deadletter.Log: it continues where the last call stopped, or
// opens another reader.
func (l *wireLog) Read(ctx context.Context, partition int32, from model.Offset) ([]deadletter.Dead, model.Offset, error) {
	if l.reader == nil || l.at.Partition != partition || l.at.From != from {
		if err := l.seek(ctx, partition, from); err != nil {
			return nil, from, err
		}
	}
	var fetches kgo.Fetches
	for {
		polled, cancel := context.WithTimeout(ctx, idlePause)
		fetches = l.reader.PollRecords(polled, readChunk)
		late := polled.Err() != nil
		cancel()
		if fetches.NumRecords() > 0 {
			break
		}
		if err := fetches.Err(); err != nil && (!late || ctx.Err() != nil) {
			return nil, from, err
		}
		next, err := l.lookPast(ctx, partition, from)
		if err != nil || next > from {
			l.at.From = next
			return nil, next, err
		}
	}
	var all []deadletter.Dead
	fetches.EachRecord(func(r *kgo.Record) {
		if !r.Attrs.IsControl() { // a marker only says that there is nothing before it
			all = append(all, asDead(r))
		}
		from = model.Offset(r.Offset) + 1
	})
	l.at.From = from
	return all, from, nil
}

// lookPast returns where the reader goes on when it has nothing to show: what was
// aborted is passed over in silence, if its marker lies behind a transaction that is
// still open.
func (l *wireLog) lookPast(ctx context.Context, partition int32, from model.Offset) (model.Offset, error) {
	if l.scout == nil {
		var err error
		if l.scout, err = l.session.open(ctx); err != nil {
			return from, err
		}
	}
	tp := topicPartition{l.topic, partition}
	e := newEnds(true, map[topicPartition]int64{tp: math.MaxInt64})
	e.reach(tp, int64(from))
	err := e.lookPast(ctx, l.scout)
	return model.Offset(e.open()[tp]), err
}

func (l *wireLog) seek(ctx context.Context, partition int32, from model.Offset) error {
	if l.reader != nil {
		l.reader.Close()
	}
	offsets := map[string]map[int32]kgo.Offset{l.topic: {partition: kgo.NewOffset().At(int64(from))}}
	var err error
	l.at = deadletter.Span{Partition: partition, From: from}
	// Markers are kept: what is committed may end with one, and a reader that never
	// sees it would wait for ever.
	l.reader, err = l.session.open(ctx, kgo.ConsumePartitions(offsets), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	return wrap("open reader", err)
}

// Publish implements deadletter.Log.
func (l *wireLog) Publish(ctx context.Context, all []deadletter.Publication) error {
	if l.publisher == nil {
		var err error
		l.limits = newBatchLimits(l.session)
		if l.publisher, err = l.session.open(ctx, kgo.RecordPartitioner(toPartition{kgo.StickyKeyPartitioner(nil)}), l.limits.option(ctx)); err != nil {
			return wrap("open publisher", err)
		}
	}
	records := make([]*kgo.Record, len(all))
	for i, p := range all {
		records[i] = &kgo.Record{Topic: p.Topic, Partition: p.Partition, Key: p.Key, Value: p.Value, Headers: kafkaHeaders(p.Headers)}
	}
	return l.publisher.ProduceSync(ctx, records...).FirstErr()
}

func kafkaHeaders(headers []batch.RecordHeader) []kgo.RecordHeader {
	out := make([]kgo.RecordHeader, len(headers))
	for i, h := range headers {
		out[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
	}
	return out
}

// Commit implements deadletter.Log.
func (l *wireLog) Commit(ctx context.Context, group string, partition int32, next model.Offset) error {
	var o kadm.Offsets
	o.AddOffset(l.topic, partition, int64(next), -1)
	return l.admin.CommitAllOffsets(ctx, group, o)
}

// toPartition sends a record to the partition it names, if the topic has it, and
// another by its key.
type toPartition struct{ kgo.Partitioner }

func (p toPartition) ForTopic(topic string) kgo.TopicPartitioner {
	return toPartitionOf{p.Partitioner.ForTopic(topic)}
}

type toPartitionOf struct{ kgo.TopicPartitioner }

func (p toPartitionOf) RequiresConsistency(*kgo.Record) bool { return true }

func (p toPartitionOf) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 && int(r.Partition) < n {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, n)
}
