package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newTxnCommand(s *session) *cobra.Command {
	return newFamily("txn", "Inspect transactions and end those that hang",
		newTxnListCommand(s), newTxnDescribeCommand(s), newTxnProducersCommand(s),
		newTxnFindHangingCommand(s), newTxnAbortCommand(s))
}

// ---- list

type listedTxn struct {
	ID          string `json:"transactional_id"`
	ProducerID  int64  `json:"producer_id"`
	State       string `json:"state"`
	Coordinator int32  `json:"coordinator"`
}

func newTxnListCommand(s *session) *cobra.Command {
	var states []string
	var producers []int64
	c := &cobra.Command{
		Use:   "list",
		Short: "List transactional ids and their states",
		Args:  arguments(cobra.NoArgs),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, _ []string) error {
			listed, err := admin.ListTransactions(ctx, producers, states)
			if err != nil {
				return fmt.Errorf("list transactions: %w", err)
			}
			results := []listedTxn{}
			t := table{header: []string{"TRANSACTIONAL-ID", "PRODUCER-ID", "STATE", "COORDINATOR"}}
			for _, l := range listed.Sorted() {
				results = append(results, listedTxn{l.TxnID, l.ProducerID, l.State, l.Coordinator})
				t.add(l.TxnID, l.ProducerID, l.State, l.Coordinator)
			}
			return out.print(results, t)
		}),
	}
	c.Flags().StringSliceVar(&states, "state", nil, "only these states, e.g. Ongoing,CompleteAbort")
	c.Flags().Int64SliceVar(&producers, "producer-id", nil, "only these producer ids")
	return c
}

// ---- describe

type describedTxn struct {
	ID            string   `json:"transactional_id"`
	ProducerID    int64    `json:"producer_id"`
	ProducerEpoch int16    `json:"producer_epoch"`
	State         string   `json:"state"`
	TimeoutMs     int32    `json:"timeout_ms"`
	StartMs       int64    `json:"start_timestamp"` // -1: none is open
	AgeMs         int64    `json:"age_ms"`          // likewise
	Partitions    []string `json:"partitions"`
	Coordinator   int32    `json:"coordinator"`
	Error         string   `json:"error,omitempty"`
}

func newTxnDescribeCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "describe TRANSACTIONAL-ID...",
		Short: "Show a transactional id's producer, state, age and partitions",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			described, err := admin.DescribeTransactions(ctx, args...)
			if err != nil {
				return fmt.Errorf("describe transactions: %w", err)
			}
			results := []describedTxn{}
			t := table{header: []string{"TRANSACTIONAL-ID", "PRODUCER-ID", "EPOCH", "STATE", "TIMEOUT-MS", "AGE-MS", "PARTITIONS", "COORDINATOR"}}
			for _, d := range inOrder(args, described) {
				r := describeTxn(d, time.Now())
				if d.Err != nil {
					out.item(d.TxnID, d.Err)
				}
				results = append(results, r)
				t.add(r.ID, r.ProducerID, r.ProducerEpoch, r.State, r.TimeoutMs, noneIsDash(r.AgeMs), strings.Join(r.Partitions, ","), r.Coordinator)
			}
			return out.print(results, t)
		}),
	}
}

func describeTxn(d kadm.DescribedTransaction, now time.Time) describedTxn {
	r := describedTxn{d.TxnID, d.ProducerID, d.ProducerEpoch, d.State, d.TimeoutMillis, d.StartTimestamp, -1, []string{}, d.Coordinator, message(d.Err)}
	if d.StartTimestamp > 0 {
		r.AgeMs = max(0, now.UnixMilli()-d.StartTimestamp)
	}
	for _, t := range d.Topics.Sorted() {
		for _, p := range t.Partitions {
			r.Partitions = append(r.Partitions, fmt.Sprintf("%s/%d", t.Topic, p))
		}
	}
	return r
}

// ---- producers

type describedProducer struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
	LastSequence  int32  `json:"last_sequence"`
	LastTimestamp int64  `json:"last_timestamp"`
	TxnStart      int64  `json:"transaction_start_offset"` // -1: none is open
	Coordinator   int32  `json:"coordinator_epoch"`
}

func newTxnProducersCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "producers TOPIC[:PARTITION,...]...",
		Short: "Show the producers a partition remembers and their open transactions",
		Args:  arguments(cobra.MinimumNArgs(1)),
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			set, err := selectPartitions(ctx, admin, out, args)
			if err != nil {
				return err
			}
			producers, err := describeProducers(ctx, admin, out, set)
			if err != nil {
				return err
			}
			results := []describedProducer{}
			t := table{header: []string{"TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "LAST-SEQUENCE", "LAST-TIMESTAMP", "TXN-START", "COORDINATOR-EPOCH"}}
			for _, p := range producers {
				r := describedProducer{p.Topic, p.Partition, p.ProducerID, p.ProducerEpoch, p.LastSequence, p.LastTimestamp, p.CurrentTxnStartOffset, p.CoordinatorEpoch}
				results = append(results, r)
				t.add(r.Topic, r.Partition, r.ProducerID, r.ProducerEpoch, r.LastSequence, r.LastTimestamp, noneIsDash(r.TxnStart), r.Coordinator)
			}
			return out.print(results, t)
		}),
	}
}

// selectPartitions resolves TOPIC[:PARTITION,...] arguments; none are all topics.
func selectPartitions(ctx context.Context, admin *kadm.Client, out *output, args []string) (kadm.TopicsSet, error) {
	chosen, err := parseSelection(args)
	if err != nil {
		return nil, err
	}
	topics, err := findTopics(ctx, admin, out, sortedKeys(chosen), false, true)
	if err != nil {
		return nil, err
	}
	set := kadm.TopicsSet{}
	for _, d := range topics {
		partitions := chosen[d.Topic]
		if len(partitions) == 0 {
			partitions = d.Partitions.Numbers()
		}
		set.Add(d.Topic, partitions...)
	}
	return set, nil
}

func describeProducers(ctx context.Context, admin *kadm.Client, out *output, set kadm.TopicsSet) ([]kadm.DescribedProducer, error) {
	if len(set) == 0 {
		return nil, nil
	}
	described, err := admin.DescribeProducers(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("describe producers: %w", err)
	}
	var all []kadm.DescribedProducer
	for _, p := range described.SortedPartitions() {
		if p.Err != nil {
			out.item(fmt.Sprintf("%s/%d", p.Topic, p.Partition), withMessage(p.Err, p.ErrMessage))
			continue
		}
		all = append(all, p.ActiveProducers.Sorted()...)
	}
	return all, nil
}
