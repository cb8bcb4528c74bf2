package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newClusterCommand(s *session) *cobra.Command {
	return newFamily("cluster", "Show the cluster's brokers, features, disks and health, change its settings",
		newClusterInfoCommand(s), newClusterFeaturesCommand(s), newClusterLogDirsCommand(s), newClusterHealthCommand(s),
		newClusterConfigCommand(s))
}

// ---- info

type clusterReport struct {
	Cluster    string         `json:"cluster"`
	Controller int32          `json:"controller"`
	Brokers    []brokerReport `json:"brokers"`
	Topics     int            `json:"topics"`
	Partitions int            `json:"partitions"`
}

type brokerReport struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
	Rack string `json:"rack,omitempty"`
}

func newClusterInfoCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Show the cluster id and the brokers with their advertised addresses",
		Args:  arguments(cobra.NoArgs),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
			m, err := admin.Metadata(ctx)
			if err != nil {
				return fmt.Errorf("read metadata: %w", err)
			}
			r := clusterReport{Cluster: m.Cluster, Controller: m.Controller, Brokers: []brokerReport{}, Topics: len(m.Topics)}
			brokers := table{title: "BROKERS", header: []string{"ID", "HOST", "PORT", "RACK"}}
			for _, b := range m.Brokers {
				broker := brokerReport{ID: b.NodeID, Host: b.Host, Port: b.Port}
				if b.Rack != nil {
					broker.Rack = *b.Rack
				}
				r.Brokers = append(r.Brokers, broker)
				brokers.add(broker.ID, broker.Host, broker.Port, broker.Rack)
			}
			for _, d := range m.Topics {
				r.Partitions += len(d.Partitions)
			}
			cluster := table{title: "CLUSTER"}
			cluster.add("ID", r.Cluster)
			cluster.add("CONTROLLER", r.Controller)
			cluster.add("TOPICS", r.Topics)
			cluster.add("PARTITIONS", r.Partitions)
			return out.print(r, cluster, brokers)
		}),
	}
}

// ---- features

type featureReport struct {
	Epoch    int64     `json:"finalized_epoch"`
	Features []feature `json:"features"`
}

type feature struct {
	Name         string `json:"name"`
	SupportedMin int16  `json:"supported_min"`
	SupportedMax int16  `json:"supported_max"`
	Finalized    int16  `json:"finalized"` // 0: not
}

func newClusterFeaturesCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "features",
		Short: "Show the feature levels that are supported and in force",
		Args:  arguments(cobra.NoArgs),
		RunE: s.withClient(func(ctx context.Context, client *kgo.Client, out *output, _ []string) error {
			r, err := readFeatures(ctx, client)
			if err != nil {
				return err
			}
			t := table{header: []string{"FEATURE", "SUPPORTED-MIN", "SUPPORTED-MAX", "FINALIZED"}}
			for _, f := range r.Features {
				t.add(f.Name, f.SupportedMin, f.SupportedMax, f.Finalized)
			}
			return out.print(r, t)
		}),
	}
}

func readFeatures(ctx context.Context, client *kgo.Client) (featureReport, error) {
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = "perigee", softwareVersion()
	response, err := request.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err != nil {
		return featureReport{}, fmt.Errorf("read features: %w", err)
	}
	r := featureReport{Epoch: response.FinalizedFeaturesEpoch, Features: []feature{}}
	finalized := map[string]int16{}
	for _, f := range response.FinalizedFeatures {
		finalized[f.Name] = f.MaxVersionLevel
	}
	for _, f := range response.SupportedFeatures {
		r.Features = append(r.Features, feature{f.Name, f.MinVersion, f.MaxVersion, finalized[f.Name]})
	}
	slices.SortFunc(r.Features, func(a, b feature) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// ---- logdirs

type logDirReport struct {
	Broker      int32           `json:"broker"`
	Dir         string          `json:"dir"`
	TotalBytes  int64           `json:"total_bytes"`  // of the volume; -1: not told
	UsableBytes int64           `json:"usable_bytes"` // likewise
	Partitions  []partitionSize `json:"partitions"`
	Error       string          `json:"error,omitempty"`
}

type partitionSize struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Bytes     int64  `json:"bytes"`
}

func newClusterLogDirsCommand(s *session) *cobra.Command {
	var topics []string
	c := &cobra.Command{
		Use:   "logdirs",
		Short: "Show what each partition takes on disk",
		Args:  arguments(cobra.NoArgs),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
			var set kadm.TopicsSet // nil: all
			if len(topics) > 0 {
				found, err := findTopics(ctx, admin, out, topics, false, true)
				if err != nil {
					return err
				}
				set = kadm.TopicsSet{}
				for _, d := range found {
					set.Add(d.Topic, d.Partitions.Numbers()...)
				}
			}
			dirs, err := admin.DescribeAllLogDirs(ctx, set)
			if err != nil {
				return fmt.Errorf("describe log dirs: %w", err)
			}
			return printLogDirs(out, dirs)
		}),
	}
	c.Flags().StringSliceVarP(&topics, "topic", "t", nil, "only these topics")
	return c
}

func printLogDirs(out *output, dirs kadm.DescribedAllLogDirs) error {
	results := []logDirReport{}
	volumes := table{title: "DIRECTORIES", header: []string{"BROKER", "DIR", "BYTES", "VOLUME-TOTAL", "VOLUME-USABLE"}}
	sizes := table{title: "PARTITIONS", header: []string{"BROKER", "TOPIC", "PARTITION", "BYTES"}}
	for _, broker := range dirs.Sorted() {
		r := logDirReport{broker.Broker, broker.Dir, broker.TotalBytes, broker.UsableBytes, []partitionSize{}, message(broker.Err)}
		if broker.Err != nil {
			out.item(fmt.Sprintf("broker %d %s", broker.Broker, broker.Dir), broker.Err)
		}
		volumes.add(r.Broker, r.Dir, broker.Size(), r.TotalBytes, r.UsableBytes)
		for _, p := range broker.Topics.Sorted() {
			r.Partitions = append(r.Partitions, partitionSize{p.Topic, p.Partition, p.Size})
			sizes.add(r.Broker, p.Topic, p.Partition, p.Size)
		}
		results = append(results, r)
	}
	return out.print(results, volumes, sizes)
}

// ---- health

type healthReport struct {
	Healthy          bool     `json:"healthy"`
	Brokers          []int32  `json:"brokers"`
	Controller       int32    `json:"controller"`
	Leaderless       []string `json:"leaderless_partitions"`
	UnderReplicated  []string `json:"under_replicated_partitions"`
	OfflineLogDirs   []string `json:"offline_log_dirs"`
	UnreadableTopics []string `json:"unreadable_topics"`
}

// healthPause is how often -w looks again.
const healthPause = 500 * time.Millisecond

func newClusterHealthCommand(s *session) *cobra.Command {
	var watch, exitCode bool
	c := &cobra.Command{
		Use:   "health",
		Short: "Say whether every partition can be written and read",
		Args:  arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := s.output(c)
			if err != nil {
				return err
			}
			r, err := s.checkHealth(c.Context())
			for watch && (err != nil || !r.Healthy) {
				if usage, ok := errors.AsType[*usageError](err); ok {
					return usage
				}
				select {
				case <-c.Context().Done():
					return c.Context().Err()
				case <-time.After(healthPause):
				}
				r, err = s.checkHealth(c.Context())
			}
			if err != nil {
				return err
			}
			t := table{title: "HEALTH"}
			t.add("HEALTHY", r.Healthy)
			t.add("BROKERS", joined(r.Brokers))
			t.add("CONTROLLER", r.Controller)
			t.add("LEADERLESS", strings.Join(r.Leaderless, ","))
			t.add("UNDER-REPLICATED", strings.Join(r.UnderReplicated, ","))
			t.add("OFFLINE-DIRS", strings.Join(r.OfflineLogDirs, ","))
			t.add("UNREADABLE", strings.Join(r.UnreadableTopics, ","))
			if err := out.print(r, t); err != nil {
				return err
			}
			if exitCode && !r.Healthy {
				return errors.New("the cluster is not healthy")
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&watch, "wait", "w", false, "wait until it is healthy")
	c.Flags().BoolVarP(&exitCode, "exit-code", "e", false, "exit with 1 when it is not healthy")
	return c
}

func (s *session) checkHealth(ctx context.Context) (healthReport, error) {
	r := healthReport{Leaderless: []string{}, UnderReplicated: []string{}, OfflineLogDirs: []string{}, UnreadableTopics: []string{}}
	client, err := s.open(ctx)
	if err != nil {
		return r, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	m, err := admin.Metadata(ctx)
	if err != nil {
		return r, fmt.Errorf("read metadata: %w", err)
	}
	r.Brokers, r.Controller = m.Brokers.NodeIDs(), m.Controller
	for _, d := range m.Topics.Sorted() {
		if d.Err != nil {
			r.UnreadableTopics = append(r.UnreadableTopics, d.Topic)
		}
		for _, p := range d.Partitions.Sorted() {
			name := fmt.Sprintf("%s/%d", d.Topic, p.Partition)
			if p.Leader < 0 || p.Err != nil {
				r.Leaderless = append(r.Leaderless, name)
			} else if len(p.ISR) < len(p.Replicas) {
				r.UnderReplicated = append(r.UnderReplicated, name)
			}
		}
	}
	// A broker that does not describe its directories is not unhealthy for that.
	if dirs, err := admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{}); err == nil {
		for _, d := range dirs.Sorted() {
			if d.Err != nil {
				r.OfflineLogDirs = append(r.OfflineLogDirs, fmt.Sprintf("%d:%s", d.Broker, d.Dir))
			}
		}
	}
	r.Healthy = len(r.Brokers) > 0 && len(r.Leaderless)+len(r.UnderReplicated)+len(r.OfflineLogDirs)+len(r.UnreadableTopics) == 0
	return r, nil
}
