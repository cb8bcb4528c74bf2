package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newGroupCommand(s *session) *cobra.Command {
	return newFamily("group", "Inspect consumer groups and move their offsets",
		newGroupListCommand(s), newGroupDescribeCommand(s), newGroupDeleteCommand(s),
		newGroupResetCommand(s), newGroupDeleteOffsetsCommand(s))
}

// ---- list

type listedGroup struct {
	Group        string `json:"group"`
	State        string `json:"state"`
	Type         string `json:"type"`
	ProtocolType string `json:"protocol_type"`
	Coordinator  int32  `json:"coordinator"`
}

func newGroupListCommand(s *session) *cobra.Command {
	var states, types []string
	c := &cobra.Command{
		Use:   "list",
		Short: "List groups",
		Args:  arguments(cobra.NoArgs),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
			groups, err := admin.ListGroupsByType(ctx, types, states...)
			if err != nil {
				return fmt.Errorf("list groups: %w", err)
			}
			results := []listedGroup{}
			t := table{header: []string{"GROUP", "STATE", "TYPE", "PROTOCOL-TYPE", "COORDINATOR"}}
			for _, g := range groups.Sorted() {
				results = append(results, listedGroup{g.Group, g.State, g.GroupType, g.ProtocolType, g.Coordinator})
				t.add(g.Group, g.State, g.GroupType, g.ProtocolType, g.Coordinator)
			}
			return out.print(results, t)
		}),
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only groups in these states, e.g. Stable,Empty")
	c.Flags().StringSliceVar(&types, "type", nil, "only groups of these types: classic, consumer")
	return c
}

// findGroups returns the given names, or with regex the existing ones they match.
func findGroups(ctx context.Context, admin *kadm.Client, names []string, regex bool) ([]string, error) {
	if !regex {
		return names, nil
	}
	patterns, err := compileAll(names, true)
	if err != nil {
		return nil, err
	}
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	var found []string
	for _, g := range groups.Sorted() {
		if matchesAny(patterns, g.Group) {
			found = append(found, g.Group)
		}
	}
	return found, nil
}

// ---- describe

type describedGroup struct {
	Group       string             `json:"group"`
	State       string             `json:"state"`
	Protocol    string             `json:"protocol"`
	Coordinator int32              `json:"coordinator"`
	Members     []describedMember  `json:"members"`
	TotalLag    int64              `json:"total_lag"`
	Partitions  []describedLagging `json:"partitions"`
	Error       string             `json:"error,omitempty"`
}

type describedMember struct {
	ID         string `json:"id"`
	InstanceID string `json:"instance_id,omitempty"`
	ClientID   string `json:"client_id"`
	Host       string `json:"host"`
}

type describedLagging struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"` // -1: none committed
	Start     int64  `json:"start_offset"`
	End       int64  `json:"end_offset"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member,omitempty"`
	ClientID  string `json:"client_id,omitempty"`
	Host      string `json:"host,omitempty"`
	Error     string `json:"error,omitempty"`
}

func newGroupDescribeCommand(s *session) *cobra.Command {
	var o struct{ regex, summary, members bool }
	c := &cobra.Command{
		Use:   "describe GROUP...",
		Short: "Show a group's members, offsets and lag",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			names, err := findGroups(ctx, admin, args, o.regex)
			if err != nil {
				return err
			}
			results := []describedGroup{}
			if len(names) > 0 {
				lags, err := admin.Lag(ctx, names...)
				if err != nil {
					return fmt.Errorf("describe groups: %w", err)
				}
				for _, l := range inOrder(names, lags) {
					results = append(results, describeGroup(out, l))
				}
			}
			var tables []table
			for _, r := range results {
				tables = append(tables, r.summaryTable())
				if o.members {
					tables = append(tables, r.memberTable())
				}
				if !o.summary {
					tables = append(tables, r.lagTable())
				}
			}
			return out.print(results, tables...)
		}),
	}
	c.Flags().BoolVarP(&o.regex, "regex", "r", false, "arguments are regular expressions")
	c.Flags().BoolVarP(&o.summary, "print-summary", "s", false, "only the summary (text)")
	c.Flags().BoolVarP(&o.members, "members", "m", false, "members too, also those without partitions (text)")
	return c
}

func describeGroup(out *output, l kadm.DescribedGroupLag) describedGroup {
	r := describedGroup{Group: l.Group, State: l.State, Protocol: l.Protocol, Coordinator: l.Coordinator.NodeID, Members: []describedMember{}, Partitions: []describedLagging{}}
	if err := l.Error(); err != nil {
		r.Error = message(err)
		out.item(l.Group, err)
	}
	for _, m := range l.Members {
		described := describedMember{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost}
		if m.InstanceID != nil {
			described.InstanceID = *m.InstanceID
		}
		r.Members = append(r.Members, described)
	}
	for _, p := range l.Lag.Sorted() {
		described := describedLagging{Topic: p.Topic, Partition: p.Partition, Offset: p.Commit.At, Start: p.Start.Offset, End: p.End.Offset, Lag: p.Lag, Error: message(p.Err)}
		if p.Member != nil {
			described.Member, described.ClientID, described.Host = p.Member.MemberID, p.Member.ClientID, p.Member.ClientHost
		}
		if p.Err != nil {
			out.item(fmt.Sprintf("%s/%s/%d", l.Group, p.Topic, p.Partition), p.Err)
		}
		r.TotalLag += max(0, p.Lag)
		r.Partitions = append(r.Partitions, described)
	}
	return r
}

func (r *describedGroup) summaryTable() table {
	t := table{title: "SUMMARY"}
	t.add("GROUP", r.Group)
	t.add("STATE", r.State)
	t.add("PROTOCOL", r.Protocol)
	t.add("COORDINATOR", r.Coordinator)
	t.add("MEMBERS", len(r.Members))
	t.add("TOTAL-LAG", r.TotalLag)
	return t
}

func (r *describedGroup) memberTable() table {
	t := table{title: "MEMBERS", header: []string{"MEMBER", "INSTANCE", "CLIENT", "HOST"}}
	for _, m := range r.Members {
		t.add(m.ID, m.InstanceID, m.ClientID, m.Host)
	}
	return t
}

func (r *describedGroup) lagTable() table {
	t := table{title: "PARTITIONS", header: []string{"TOPIC", "PARTITION", "OFFSET", "START", "END", "LAG", "MEMBER", "CLIENT", "HOST"}}
	for _, p := range r.Partitions {
		t.add(p.Topic, p.Partition, noneIsDash(p.Offset), p.Start, p.End, noneIsDash(p.Lag), p.Member, p.ClientID, p.Host)
	}
	return t
}

func noneIsDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// ---- delete

func newGroupDeleteCommand(s *session) *cobra.Command {
	var regex, yes bool
	c := &cobra.Command{
		Use:   "delete GROUP...",
		Short: "Delete groups without members, and their offsets",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			names, err := findGroups(ctx, admin, args, regex)
			if err != nil {
				return err
			}
			results := []deletedItem{}
			if len(names) == 0 {
				return printDeleted(out, "GROUP", results)
			}
			if regex {
				if err := out.confirm(yes, "delete "+strings.Join(names, ", ")); err != nil {
					return err
				}
			}
			responses, err := admin.DeleteGroups(ctx, names...)
			if err != nil {
				return fmt.Errorf("delete groups: %w", err)
			}
			for _, r := range inOrder(names, responses) {
				results = append(results, deletedStatus(out, r.Group, r.Err))
			}
			return printDeleted(out, "GROUP", results)
		}),
	}
	c.Flags().BoolVarP(&regex, "regex", "r", false, "arguments are regular expressions; asks before it deletes")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

// ---- delete-offsets

type deletedOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Status    string `json:"status"`
	Error     string `json:"error,omitempty"`
}

func newGroupDeleteOffsetsCommand(s *session) *cobra.Command {
	var topics []string
	var chosen map[string][]int32
	c := &cobra.Command{
		Use:   "delete-offsets GROUP -t TOPIC[:PARTITION,...]",
		Short: "Forget a group's committed offsets of topics it is not subscribed to",
		Args:  arguments(cobra.ExactArgs(1)),
		PreRunE: func(*cobra.Command, []string) (err error) {
			if chosen, err = parseSelection(topics); err == nil && len(chosen) == 0 {
				err = usagef("-t is needed")
			}
			return err
		},
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			committed, err := admin.FetchOffsets(ctx, args[0])
			if err != nil {
				return fmt.Errorf("fetch offsets: %w", err)
			}
			set := kadm.TopicsSet{}
			for topic, partitions := range chosen {
				if len(partitions) == 0 {
					partitions = sortedPartitions(committed[topic])
				}
				if len(partitions) == 0 {
					out.item(topic, fmt.Errorf("the group has no offsets of this topic"))
					continue
				}
				set.Add(topic, partitions...)
			}
			if len(set) == 0 {
				return printDeletedOffsets(out, nil)
			}
			responses, err := admin.DeleteOffsets(ctx, args[0], set)
			if err != nil {
				return fmt.Errorf("delete offsets: %w", err)
			}
			return printDeletedOffsets(out, responses)
		}),
	}
	c.Flags().StringArrayVarP(&topics, "topic", "t", nil, "TOPIC or TOPIC:0,1, may be repeated")
	return c
}

func printDeletedOffsets(out *output, responses kadm.DeleteOffsetsResponses) error {
	results := []deletedOffset{}
	t := table{header: []string{"TOPIC", "PARTITION", "STATUS"}}
	for _, topic := range sortedKeys(responses) {
		partitions := responses[topic]
		for _, p := range sortedPartitions(partitions) {
			r := deletedOffset{topic, p, "deleted", message(partitions[p])}
			if err := partitions[p]; err != nil {
				r.Status = "failed"
				out.item(fmt.Sprintf("%s/%d", topic, p), err)
			}
			results = append(results, r)
			t.add(r.Topic, r.Partition, r.Status)
		}
	}
	return out.print(results, t)
}

func sortedPartitions[V any](partitions map[int32]V) []int32 {
	var all []int32
	for p := range partitions {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}
