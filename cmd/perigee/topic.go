package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopicCommand(s *session) *cobra.Command {
	return newFamily("topic", "Create, inspect, change and delete topics",
		newTopicCreateCommand(s), newTopicListCommand(s), newTopicDescribeCommand(s), newTopicAlterCommand(s),
		newTopicDeleteCommand(s), newTopicOffsetsCommand(s), newTopicTrimCommand(s))
}

// ---- create

type createdTopic struct {
	Topic      string `json:"topic"`
	ID         string `json:"id,omitempty"`
	Partitions int32  `json:"partitions"`
	Replicas   int16  `json:"replicas"`
	Status     string `json:"status"`
	Error      string `json:"error,omitempty"`
}

func newTopicCreateCommand(s *session) *cobra.Command {
	var o struct {
		partitions  int32
		replicas    int16
		configs     []string
		ifNotExists bool
		dryRun      bool
	}
	var configs map[string]*string
	c := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Example: "  perigee topic create orders -p 6\n" +
			"  perigee topic create state -c cleanup.policy=compact --if-not-exists",
		Args: arguments(cobra.MinimumNArgs(1)),
		PreRunE: func(*cobra.Command, []string) (err error) {
			configs, err = parsePairs("-c", o.configs)
			return err
		},
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			create := admin.CreateTopics
			if o.dryRun {
				create = admin.ValidateCreateTopics
			}
			responses, err := create(ctx, o.partitions, o.replicas, configs, args...)
			if err != nil {
				return fmt.Errorf("create topics: %w", err)
			}
			results := []createdTopic{}
			for _, r := range inOrder(args, responses) {
				results = append(results, createdStatus(out, r, o.ifNotExists, o.dryRun))
			}
			t := table{header: []string{"TOPIC", "PARTITIONS", "REPLICAS", "STATUS"}}
			for _, r := range results {
				t.add(r.Topic, noneIsDash(int64(r.Partitions)), noneIsDash(int64(r.Replicas)), r.Status)
			}
			return out.print(results, t)
		}),
	}
	c.Flags().Int32VarP(&o.partitions, "partitions", "p", -1, "number of partitions, -1 for the broker's default")
	c.Flags().Int16Var(&o.replicas, "replication-factor", -1, "copies, -1 for the broker's default")
	c.Flags().StringArrayVarP(&o.configs, "config", "c", nil, "setting as key=value, may be repeated")
	c.Flags().BoolVar(&o.ifNotExists, "if-not-exists", false, "a topic that exists already is no failure")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "let the broker check the request and do nothing")
	return c
}

func createdStatus(out *output, r kadm.CreateTopicResponse, ifNotExists, dryRun bool) createdTopic {
	t := createdTopic{Topic: r.Topic, Partitions: r.NumPartitions, Replicas: r.ReplicationFactor, Status: "created"}
	if r.ID != (kadm.TopicID{}) {
		t.ID = topicID(r.ID)
	}
	switch {
	case ifNotExists && isCode(r.Err, kerr.TopicAlreadyExists):
		t.Status = "exists"
	case r.Err != nil:
		err := withMessage(r.Err, r.ErrMessage)
		t.Status, t.Error = "failed", message(err)
		out.item(r.Topic, err)
	case dryRun:
		t.Status = "would be created"
	}
	return t
}

// ---- list

type listedTopic struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
	Internal   bool   `json:"internal"`
}

func newTopicListCommand(s *session) *cobra.Command {
	var regex, internal bool
	c := &cobra.Command{
		Use:   "list [TOPIC...]",
		Short: "List topics",
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			topics, err := findTopics(ctx, admin, out, args, regex, internal)
			if err != nil {
				return err
			}
			results := []listedTopic{}
			t := table{header: []string{"TOPIC", "PARTITIONS", "REPLICAS"}}
			for _, d := range topics {
				r := listedTopic{d.Topic, topicID(d.ID), len(d.Partitions), d.Partitions.NumReplicas(), d.IsInternal}
				results = append(results, r)
				t.add(r.Topic, r.Partitions, r.Replicas)
			}
			return out.print(results, t)
		}),
	}
	c.Flags().BoolVarP(&regex, "regex", "r", false, "arguments are regular expressions")
	c.Flags().BoolVarP(&internal, "internal", "i", false, "internal topics too")
	return c
}

// findTopics returns the named topics in order of name; all when there are no
// names. A name that does not exist is reported as a failed item.
func findTopics(ctx context.Context, admin *kadm.Client, out *output, names []string, regex, internal bool) ([]kadm.TopicDetail, error) {
	var ask []string
	if !regex {
		ask = names
	}
	patterns, err := compileAll(names, regex)
	if err != nil {
		return nil, err
	}
	details, err := admin.ListTopicsWithInternal(ctx, ask...)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var found []kadm.TopicDetail
	for _, d := range details.Sorted() {
		switch {
		case d.Err != nil:
			out.item(d.Topic, d.Err)
		case regex && !matchesAny(patterns, d.Topic):
		case d.IsInternal && !internal && (regex || len(names) == 0):
		default:
			found = append(found, d)
		}
	}
	return found, nil
}

func compileAll(expressions []string, regex bool) ([]*regexp.Regexp, error) {
	if !regex {
		return nil, nil
	}
	var all []*regexp.Regexp
	for _, e := range expressions {
		// Whole names, as in rpk: "orders" does not mean "orders-dlq".
		r, err := regexp.Compile("^(?:" + e + ")$")
		if err != nil {
			return nil, usagef("%w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

func matchesAny(patterns []*regexp.Regexp, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

// ---- alter

type alteredTopic struct {
	Topic  string `json:"topic"`
	Change string `json:"change"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

func newTopicAlterCommand(s *session) *cobra.Command {
	var o struct {
		set, unset []string
		partitions int
		dryRun     bool
	}
	var changes []kadm.AlterConfig
	c := &cobra.Command{
		Use:   "alter TOPIC...",
		Short: "Change settings, add partitions",
		Example: "  perigee topic alter orders --set retention.ms=86400000 --unset max.message.bytes\n" +
			"  perigee topic alter orders --partitions 12",
		Args: arguments(cobra.MinimumNArgs(1)),
		PreRunE: func(*cobra.Command, []string) (err error) {
			if changes, err = configChanges(o.set, o.unset); err == nil && len(changes) == 0 && o.partitions == 0 {
				err = usagef("nothing to change: use --set, --unset or --partitions")
			}
			return err
		},
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			results := []alteredTopic{}
			if len(changes) > 0 {
				done, err := alterConfigs(ctx, admin, out, changes, o.dryRun, args)
				if err != nil {
					return err
				}
				results = append(results, done...)
			}
			if o.partitions != 0 {
				done, err := addPartitions(ctx, admin, out, o.partitions, o.dryRun, args)
				if err != nil {
					return err
				}
				results = append(results, done...)
			}
			t := table{header: []string{"TOPIC", "CHANGE", "STATUS"}}
			for _, r := range results {
				t.add(r.Topic, r.Change, r.Status)
			}
			return out.print(results, t)
		}),
	}
	c.Flags().StringArrayVar(&o.set, "set", nil, "key=value, may be repeated")
	c.Flags().StringArrayVar(&o.unset, "unset", nil, "key to give its default back, may be repeated")
	c.Flags().IntVar(&o.partitions, "partitions", 0, "number of partitions to have in the end")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "let the broker check the request and do nothing")
	return c
}

func configChanges(set, unset []string) ([]kadm.AlterConfig, error) {
	values, err := parsePairs("--set", set)
	if err != nil {
		return nil, err
	}
	var changes []kadm.AlterConfig
	for _, key := range sortedKeys(values) {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: values[key]})
	}
	for _, key := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	return changes, nil
}

func alterConfigs(ctx context.Context, admin *kadm.Client, out *output, changes []kadm.AlterConfig, dryRun bool, topics []string) ([]alteredTopic, error) {
	alter := admin.AlterTopicConfigs
	if dryRun {
		alter = admin.ValidateAlterTopicConfigs
	}
	responses, err := alter(ctx, changes, topics...)
	if err != nil {
		return nil, fmt.Errorf("alter configs: %w", err)
	}
	slices.SortFunc(responses, func(a, b kadm.AlterConfigsResponse) int { return strings.Compare(a.Name, b.Name) })
	var results []alteredTopic
	for _, r := range responses {
		results = append(results, alterStatus(out, r.Name, "configs", withMessage(r.Err, r.ErrMessage), dryRun))
	}
	return results, nil
}

func addPartitions(ctx context.Context, admin *kadm.Client, out *output, partitions int, dryRun bool, topics []string) ([]alteredTopic, error) {
	update := admin.UpdatePartitions
	if dryRun {
		update = admin.ValidateUpdatePartitions
	}
	responses, err := update(ctx, partitions, topics...)
	if err != nil {
		return nil, fmt.Errorf("add partitions: %w", err)
	}
	var results []alteredTopic
	for _, r := range responses.Sorted() {
		results = append(results, alterStatus(out, r.Topic, "partitions", withMessage(r.Err, r.ErrMessage), dryRun))
	}
	return results, nil
}

func alterStatus(out *output, topic, change string, err error, dryRun bool) alteredTopic {
	r := alteredTopic{Topic: topic, Change: change, Status: "altered", Error: message(err)}
	switch {
	case err != nil:
		r.Status = "failed"
		out.item(topic, err)
	case dryRun:
		r.Status = "would be altered"
	}
	return r
}

// ---- delete

type deletedItem struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

func newTopicDeleteCommand(s *session) *cobra.Command {
	var regex, yes, ifExists bool
	c := &cobra.Command{
		Use:   "delete TOPIC...",
		Short: "Delete topics and all their records",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			if regex {
				found, err := findTopics(ctx, admin, out, args, true, false)
				if err != nil {
					return err
				}
				args = args[:0:0]
				for _, d := range found {
					args = append(args, d.Topic)
				}
				if len(args) == 0 {
					return out.print([]deletedItem{}, table{header: []string{"TOPIC", "STATUS"}})
				}
				if err := out.confirm(yes, "delete "+strings.Join(args, ", ")); err != nil {
					return err
				}
			}
			responses, err := admin.DeleteTopics(ctx, args...)
			if err != nil {
				return fmt.Errorf("delete topics: %w", err)
			}
			results := []deletedItem{}
			for _, r := range inOrder(args, responses) {
				if ifExists && isCode(r.Err, kerr.UnknownTopicOrPartition) {
					results = append(results, deletedItem{Name: r.Topic, Status: "absent"})
					continue
				}
				results = append(results, deletedStatus(out, r.Topic, withMessage(r.Err, r.ErrMessage)))
			}
			return printDeleted(out, "TOPIC", results)
		}),
	}
	c.Flags().BoolVarP(&regex, "regex", "r", false, "arguments are regular expressions; asks before it deletes")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&ifExists, "if-exists", false, "a topic that does not exist is no failure")
	return c
}

func deletedStatus(out *output, name string, err error) deletedItem {
	if err != nil {
		out.item(name, err)
		return deletedItem{Name: name, Status: "failed", Error: message(err)}
	}
	return deletedItem{Name: name, Status: "deleted"}
}

func printDeleted(out *output, kind string, results []deletedItem) error {
	t := table{header: []string{kind, "STATUS"}}
	for _, r := range results {
		t.add(r.Name, r.Status)
	}
	return out.print(results, t)
}
