package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Moving a group's offsets has three steps: choose the partitions, plan where each
// goes (pure), commit. Without --execute it ends after the second.

type resetOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from_offset"` // -1: none committed
	To        int64  `json:"to_offset"`
	Status    string `json:"status"`
	Error     string `json:"error,omitempty"`
}

// resetOptions is where to go; exactly one is set. The names are those of
// kafka-consumer-groups.
type resetOptions struct {
	toEarliest, toLatest, toCurrent bool
	toOffset                        int64
	toDatetime, byDuration          string
	shiftBy                         int64
	fromFile                        string
}

func newGroupResetCommand(s *session) *cobra.Command {
	var (
		o         resetOptions
		topics    []string
		allTopics bool
		execute   bool
	)
	c := &cobra.Command{
		Use:   "reset-offsets GROUP {-t TOPIC[:PARTITION,...] | --all-topics} --to-...",
		Short: "Move a group's offsets; shows the plan unless --execute is given",
		Long: "Move a group's committed offsets. Without --execute nothing is changed and the plan is\n" +
			"printed. The group must have no members. Targets outside the log are moved to its ends.",
		Example: "  perigee group reset-offsets billing -t orders --to-earliest\n" +
			"  perigee group reset-offsets billing -t orders:0,1 --shift-by -100 --execute\n" +
			"  perigee group reset-offsets billing --all-topics --to-datetime 2026-11-30T08:00:00Z --execute",
		Args: arguments(cobra.ExactArgs(1)),
	}
	f := c.Flags()
	f.StringArrayVarP(&topics, "topic", "t", nil, "TOPIC or TOPIC:0,1, may be repeated")
	f.BoolVar(&allTopics, "all-topics", false, "every topic the group has offsets for")
	f.BoolVar(&o.toEarliest, "to-earliest", false, "to the start of the log")
	f.BoolVar(&o.toLatest, "to-latest", false, "to its end")
	f.BoolVar(&o.toCurrent, "to-current", false, "to where it is: commits it anew")
	f.Int64Var(&o.toOffset, "to-offset", 0, "to this offset")
	f.StringVar(&o.toDatetime, "to-datetime", "", "to the first record at or after this time")
	f.StringVar(&o.byDuration, "by-duration", "", "to the first record that is at most this old: 90m, 7d")
	f.Int64Var(&o.shiftBy, "shift-by", 0, "that many offsets forward, or back when negative")
	f.StringVar(&o.fromFile, "from-file", "", "to what a CSV file says: topic,partition,offset")
	f.BoolVar(&execute, "execute", false, "do it")
	targets := []string{"to-earliest", "to-latest", "to-current", "to-offset", "to-datetime", "by-duration", "shift-by", "from-file"}
	chosen := ""
	c.PreRunE = func(*cobra.Command, []string) error {
		for _, t := range targets {
			if f.Changed(t) && chosen != "" {
				return usagef("--%s and --%s exclude each other", chosen, t)
			}
			if f.Changed(t) {
				chosen = t
			}
		}
		if chosen == "" {
			return usagef("where to? One of --%s is needed", strings.Join(targets, ", --"))
		}
		if len(topics) == 0 && !allTopics && chosen != "from-file" {
			return usagef("-t TOPIC or --all-topics is needed")
		}
		return nil
	}
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
		r := &reset{admin: admin, group: args[0], target: chosen, options: o}
		plan, err := r.plan(ctx, topics)
		if err != nil {
			return err
		}
		if execute && len(plan) > 0 {
			if err := r.commit(ctx, out, plan); err != nil {
				return err
			}
		}
		return printReset(out, plan, execute)
	})
	return c
}

type reset struct {
	admin   *kadm.Client
	group   string
	target  string // the flag that was used
	options resetOptions
}

// plan decides where each partition goes and changes nothing.
func (r *reset) plan(ctx context.Context, selection []string) ([]resetOffset, error) {
	committed, err := r.admin.FetchOffsets(ctx, r.group)
	if err != nil && !isCode(err, kerr.GroupIDNotFound) { // a group may begin with a reset
		return nil, fmt.Errorf("fetch offsets: %w", err)
	}
	wanted, err := r.wanted(ctx, selection, committed)
	if err != nil || len(wanted) == 0 {
		return []resetOffset{}, err
	}
	listed, err := listBounds(ctx, r.admin, sortedKeys(wanted))
	if err != nil {
		return nil, err
	}
	target, err := r.targets(ctx, sortedKeys(wanted))
	if err != nil {
		return nil, err
	}
	plan := []resetOffset{}
	for _, topic := range sortedKeys(wanted) {
		for _, p := range sortedPartitions(wanted[topic]) {
			b := listed.of(topic, p)
			if b.err != nil {
				return nil, fmt.Errorf("%s/%d: %w", topic, p, b.err)
			}
			item := resetOffset{Topic: topic, Partition: p, From: -1, Status: "planned"}
			if c, ok := committed.Lookup(topic, p); ok && c.Err == nil {
				item.From = c.At
			}
			to, err := target(position{topic, p, item.From, b})
			if err != nil {
				return nil, err
			}
			item.To = min(max(to, b.start), b.end)
			plan = append(plan, item)
		}
	}
	return plan, nil
}

// wanted is which partitions to move.
func (r *reset) wanted(ctx context.Context, selection []string, committed kadm.OffsetResponses) (map[string]map[int32]bool, error) {
	wanted := map[string]map[int32]bool{}
	add := func(topic string, partition int32) {
		if wanted[topic] == nil {
			wanted[topic] = map[int32]bool{}
		}
		wanted[topic][partition] = true
	}
	if r.target == "from-file" {
		offsets, err := readOffsets(r.options.fromFile)
		if err != nil {
			return nil, err
		}
		offsets.Each(func(o kadm.Offset) { add(o.Topic, o.Partition) })
		return wanted, nil
	}
	if len(selection) == 0 {
		committed.Each(func(o kadm.OffsetResponse) { add(o.Topic, o.Partition) })
		return wanted, nil
	}
	chosen, err := parseSelection(selection)
	if err != nil {
		return nil, err
	}
	details, err := r.admin.ListTopicsWithInternal(ctx, sortedKeys(chosen)...)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	for topic, partitions := range chosen {
		if err := details[topic].Err; err != nil {
			return nil, fmt.Errorf("%s: %w", topic, err)
		}
		if len(partitions) == 0 {
			partitions = details[topic].Partitions.Numbers()
		}
		for _, p := range partitions {
			add(topic, p)
		}
	}
	return wanted, nil
}

// position is one partition as far as a target needs to know it.
type position struct {
	topic     string
	partition int32
	current   int64 // -1: none committed
	bounds    bounds
}

// targets turns the chosen flag into a function from positions to offsets.
func (r *reset) targets(ctx context.Context, topics []string) (func(position) (int64, error), error) {
	o := r.options
	switch r.target {
	case "to-earliest":
		return func(p position) (int64, error) { return p.bounds.start, nil }, nil
	case "to-latest":
		return func(p position) (int64, error) { return p.bounds.end, nil }, nil
	case "to-offset":
		return func(position) (int64, error) { return o.toOffset, nil }, nil
	case "to-current":
		return func(p position) (int64, error) { return p.currentOr(p.bounds.end), nil }, nil
	case "shift-by":
		return func(p position) (int64, error) {
			if p.current < 0 {
				return 0, fmt.Errorf("%s/%d: nothing to shift, no offset is committed", p.topic, p.partition)
			}
			return p.current + o.shiftBy, nil
		}, nil
	case "from-file":
		offsets, err := readOffsets(o.fromFile)
		return func(p position) (int64, error) {
			offset, _ := offsets.Lookup(p.topic, p.partition)
			return offset.At, nil
		}, err
	}
	when := o.toDatetime
	if r.target == "by-duration" {
		age, err := parseDuration(o.byDuration)
		if err != nil || age < 0 {
			return nil, usagef("--by-duration %s: want a duration such as 90m or 7d", o.byDuration)
		}
		when = time.Now().Add(-age).Format(time.RFC3339Nano)
	}
	listed, err := offsetsAt(ctx, r.admin, when, topics)
	return func(p position) (int64, error) {
		if at, ok := listed.Lookup(p.topic, p.partition); ok && at.Err == nil && at.Offset >= 0 {
			return at.Offset, nil
		}
		return p.bounds.end, nil // nothing is that young
	}, err
}

func (p position) currentOr(other int64) int64 {
	if p.current < 0 {
		return other
	}
	return p.current
}

// commit does what the plan says, and writes into it how that went.
func (r *reset) commit(ctx context.Context, out *output, plan []resetOffset) error {
	described, err := r.admin.DescribeGroups(ctx, r.group)
	if err != nil {
		return fmt.Errorf("describe group: %w", err)
	}
	if g := described[r.group]; len(g.Members) > 0 {
		return fmt.Errorf("group %s is %s with %d members: stop them first", r.group, g.State, len(g.Members))
	}
	offsets := kadm.Offsets{}
	for _, p := range plan {
		offsets.AddOffset(p.Topic, p.Partition, p.To, -1)
	}
	responses, err := r.admin.CommitOffsets(ctx, r.group, offsets)
	if err != nil {
		return fmt.Errorf("commit offsets: %w", err)
	}
	for i := range plan {
		p := &plan[i]
		answer, ok := responses.Lookup(p.Topic, p.Partition)
		if !ok {
			answer.Err = errors.New("the broker did not answer for this partition")
		}
		p.Status, p.Error = "reset", message(answer.Err)
		if answer.Err != nil {
			p.Status = "failed"
			out.item(fmt.Sprintf("%s/%d", p.Topic, p.Partition), answer.Err)
		}
	}
	return nil
}

func printReset(out *output, plan []resetOffset, executed bool) error {
	t := table{header: []string{"TOPIC", "PARTITION", "FROM", "TO", "STATUS"}}
	for _, p := range plan {
		t.add(p.Topic, p.Partition, noneIsDash(p.From), p.To, p.Status)
	}
	if err := out.print(plan, t); err != nil {
		return err
	}
	if !executed && !out.json {
		fmt.Fprintln(out.errors, "Nothing was changed. Add --execute to do it.")
	}
	return nil
}

// readOffsets reads lines of topic,partition,offset.
func readOffsets(path string) (kadm.Offsets, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read offsets: %w", err)
	}
	defer file.Close()
	lines := csv.NewReader(file)
	lines.FieldsPerRecord, lines.TrimLeadingSpace, lines.Comment = 3, true, '#'
	offsets := kadm.Offsets{}
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return offsets, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read offsets: %s: %w", path, err)
		}
		partition, errP := strconv.ParseInt(fields[1], 10, 32)
		offset, errO := strconv.ParseInt(fields[2], 10, 64)
		if err := errors.Join(errP, errO); err != nil {
			line, _ := lines.FieldPos(0)
			return nil, fmt.Errorf("read offsets: %s:%d: %w", path, line, err)
		}
		offsets.AddOffset(fields[0], int32(partition), offset, -1)
	}
}

// parseSelection reads TOPIC and TOPIC:0,1 arguments; no partitions means all.
func parseSelection(arguments []string) (map[string][]int32, error) {
	chosen := map[string][]int32{}
	for _, a := range arguments {
		topic, list, some := strings.Cut(a, ":")
		if topic == "" {
			return nil, usagef("%q: want TOPIC or TOPIC:PARTITION,...", a)
		}
		partitions := chosen[topic]
		if some {
			for word := range strings.SplitSeq(list, ",") {
				p, err := strconv.ParseInt(word, 10, 32)
				if err != nil || p < 0 {
					return nil, usagef("%q: %q is not a partition", a, word)
				}
				partitions = append(partitions, int32(p))
			}
		}
		chosen[topic] = partitions
	}
	return chosen, nil
}
