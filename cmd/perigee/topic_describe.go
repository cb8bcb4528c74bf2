package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type describedTopic struct {
	Topic      string               `json:"topic"`
	ID         string               `json:"id"`
	Internal   bool                 `json:"internal"`
	Partitions []describedPartition `json:"partitions"`
	Configs    []describedConfig    `json:"configs"`
}

type describedPartition struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"`
	Epoch     int32   `json:"leader_epoch"`
	Replicas  []int32 `json:"replicas"`
	InSync    []int32 `json:"in_sync_replicas"`
	Start     int64   `json:"start_offset"`
	Stable    int64   `json:"stable_offset"`
	End       int64   `json:"end_offset"`
	Bytes     int64   `json:"bytes"`
	Error     string  `json:"error,omitempty"`
}

type describedConfig struct {
	Key       string  `json:"key"`
	Value     *string `json:"value"`
	Source    string  `json:"source"`
	Sensitive bool    `json:"sensitive"`
}

func newTopicDescribeCommand(s *session) *cobra.Command {
	var o struct{ regex, summary, partitions, configs bool }
	c := &cobra.Command{
		Use:   "describe TOPIC...",
		Short: "Show a topic's partitions, offsets, size and settings with their sources",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			topics, err := findTopics(ctx, admin, out, args, o.regex, true)
			if err != nil {
				return err
			}
			results, err := describeTopics(ctx, admin, out, topics)
			if err != nil {
				return err
			}
			everything := !o.summary && !o.partitions && !o.configs
			var tables []table
			for _, r := range results {
				if everything || o.summary {
					tables = append(tables, r.summaryTable())
				}
				if everything || o.partitions {
					tables = append(tables, r.partitionTable())
				}
				if everything || o.configs {
					tables = append(tables, configTable("CONFIGS", r.Configs))
				}
			}
			return out.print(results, tables...)
		}),
	}
	c.Flags().BoolVarP(&o.regex, "regex", "r", false, "arguments are regular expressions")
	c.Flags().BoolVarP(&o.summary, "print-summary", "s", false, "only the summary (text)")
	c.Flags().BoolVarP(&o.partitions, "print-partitions", "p", false, "only the partitions (text)")
	c.Flags().BoolVarP(&o.configs, "print-configs", "c", false, "only the settings (text)")
	return c
}

func describeTopics(ctx context.Context, admin *kadm.Client, out *output, topics []kadm.TopicDetail) ([]describedTopic, error) {
	results := []describedTopic{}
	if len(topics) == 0 {
		return results, nil
	}
	var names []string
	set := kadm.TopicsSet{}
	for _, d := range topics {
		names = append(names, d.Topic)
		set.Add(d.Topic, d.Partitions.Numbers()...)
	}
	bounds, err := listBounds(ctx, admin, names)
	if err != nil {
		return nil, err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe configs: %w", err)
	}
	// Sizes are an extra: a broker that does not tell them is no failure.
	sizes := map[topicPartition]int64{}
	if dirs, err := admin.DescribeAllLogDirs(ctx, set); err == nil {
		dirs.Each(func(d kadm.DescribedLogDir) {
			d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
				sizes[topicPartition{p.Topic, p.Partition}] += p.Size
			})
		})
	}
	for _, d := range topics {
		r := describedTopic{Topic: d.Topic, ID: topicID(d.ID), Internal: d.IsInternal, Partitions: []describedPartition{}, Configs: []describedConfig{}}
		for _, p := range d.Partitions.Sorted() {
			b := bounds.of(p.Topic, p.Partition)
			described := describedPartition{p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, b.start, b.stable, b.end, -1, message(b.err)}
			if size, ok := sizes[topicPartition{p.Topic, p.Partition}]; ok {
				described.Bytes = size
			}
			if b.err != nil {
				out.item(fmt.Sprintf("%s/%d", p.Topic, p.Partition), b.err)
			}
			r.Partitions = append(r.Partitions, described)
		}
		resource, err := configs.On(d.Topic, nil)
		if err == nil {
			err = withMessage(resource.Err, resource.ErrMessage)
		}
		if err != nil {
			out.item(d.Topic, err)
		}
		r.Configs = append(r.Configs, describeConfigs(resource.Configs)...)
		results = append(results, r)
	}
	return results, nil
}

func describeConfigs(configs []kadm.Config) []describedConfig {
	var all []describedConfig
	for _, c := range configs {
		all = append(all, describedConfig{c.Key, c.Value, c.Source.String(), c.Sensitive})
	}
	slices.SortFunc(all, func(a, b describedConfig) int { return strings.Compare(a.Key, b.Key) })
	return all
}

func (r *describedTopic) summaryTable() table {
	t := table{title: "SUMMARY"}
	t.add("NAME", r.Topic)
	t.add("ID", r.ID)
	t.add("INTERNAL", r.Internal)
	t.add("PARTITIONS", len(r.Partitions))
	if len(r.Partitions) > 0 {
		t.add("REPLICAS", len(r.Partitions[0].Replicas))
	}
	return t
}

func (r *describedTopic) partitionTable() table {
	t := table{title: "PARTITIONS", header: []string{"PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN-SYNC", "START", "STABLE", "END", "BYTES"}}
	for _, p := range r.Partitions {
		t.add(p.Partition, p.Leader, p.Epoch, joined(p.Replicas), joined(p.InSync), p.Start, p.Stable, p.End, p.Bytes)
	}
	return t
}

func configTable(title string, configs []describedConfig) table {
	t := table{title: title, header: []string{"KEY", "VALUE", "SOURCE"}}
	for _, c := range configs {
		value := "(sensitive)"
		if c.Value != nil {
			value = *c.Value
		} else if !c.Sensitive {
			value = ""
		}
		t.add(c.Key, value, c.Source)
	}
	return t
}
