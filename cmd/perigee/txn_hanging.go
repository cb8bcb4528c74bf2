package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A transaction hangs when a partition waits for the end of one that its
// coordinator does not know, or knows to be over (KIP-664). No read_committed consumer
// gets past it. To find one takes both sides: what the partitions say is open and
// old, and what the coordinators say about the producers of that.

type hangingTxn struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
	StartOffset   int64  `json:"start_offset"`
	LastTimestamp int64  `json:"last_timestamp"`
	AgeMs         int64  `json:"age_ms"`
	ID            string `json:"transactional_id,omitempty"`
	Reason        string `json:"reason"`
}

func newTxnFindHangingCommand(s *session) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "find-hanging [TOPIC[:PARTITION,...]...]",
		Short: "Find open transactions on partitions that no coordinator will end",
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			set, err := selectPartitions(ctx, admin, out, args)
			if err != nil {
				return err
			}
			producers, err := describeProducers(ctx, admin, out, set)
			if err != nil {
				return err
			}
			results := []hangingTxn{}
			for _, p := range chooseOld(producers, time.Now(), timeout) {
				h, hangs, err := examine(ctx, admin, p)
				if err != nil {
					return err
				}
				if hangs {
					results = append(results, h)
				}
			}
			t := table{header: []string{"TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "START-OFFSET", "AGE-MS", "TRANSACTIONAL-ID", "REASON"}}
			for _, h := range results {
				t.add(h.Topic, h.Partition, h.ProducerID, h.ProducerEpoch, h.StartOffset, h.AgeMs, h.ID, h.Reason)
			}
			return out.print(results, t)
		}),
	}
	c.Flags().DurationVar(&timeout, "max-transaction-timeout", 15*time.Minute, "younger ones cannot hang: the broker's transaction.max.timeout.ms")
	return c
}

// chooseOld returns producers with an open transaction older than any may become.
func chooseOld(producers []kadm.DescribedProducer, now time.Time, timeout time.Duration) []kadm.DescribedProducer {
	var old []kadm.DescribedProducer
	for _, p := range producers {
		if p.CurrentTxnStartOffset >= 0 && now.Sub(time.UnixMilli(p.LastTimestamp)) > timeout {
			old = append(old, p)
		}
	}
	return old
}

// examine asks the coordinators about the producer of an open transaction.
func examine(ctx context.Context, admin *kadm.Client, p kadm.DescribedProducer) (hangingTxn, bool, error) {
	h := hangingTxn{p.Topic, p.Partition, p.ProducerID, p.ProducerEpoch, p.CurrentTxnStartOffset, p.LastTimestamp,
		time.Now().UnixMilli() - p.LastTimestamp, "", "no coordinator knows the producer"}
	listed, err := admin.ListTransactions(ctx, []int64{p.ProducerID}, nil)
	if err != nil {
		return h, false, fmt.Errorf("list transactions: %w", err)
	}
	if len(listed) == 0 {
		return h, true, nil
	}
	h.ID = listed.Sorted()[0].TxnID
	described, err := admin.DescribeTransactions(ctx, h.ID)
	if err != nil {
		return h, false, fmt.Errorf("describe transactions: %w", err)
	}
	d := described[h.ID]
	switch {
	case isCode(d.Err, kerr.TransactionalIDNotFound):
		return h, true, nil
	case d.Err != nil:
		return h, false, fmt.Errorf("describe transaction %s: %w", h.ID, d.Err)
	}
	if _, enrolled := d.Topics[p.Topic][p.Partition]; enrolled {
		return h, false, nil
	}
	h.Reason = "the coordinator's transaction is " + d.State + " and does not include the partition"
	return h, true, nil
}

// ---- abort

func newTxnAbortCommand(s *session) *cobra.Command {
	var o struct {
		topic     string
		partition int32
		start     int64
		yes       bool
	}
	c := &cobra.Command{
		Use:   "abort {TRANSACTIONAL-ID | --topic TOPIC --partition N --start-offset N}",
		Short: "Abort a transaction: by its id, or a hanging one by where it began",
		Long: "With a transactional id, its producer is fenced and what it has open is aborted by the\n" +
			"coordinator, which is safe at any time. With a partition and an offset, the end of a\n" +
			"transaction no coordinator knows is written onto that partition: use it for what\n" +
			"find-hanging reports and nothing else.",
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.Flags().StringVar(&o.topic, "topic", "", "topic of a hanging transaction")
	c.Flags().Int32Var(&o.partition, "partition", -1, "its partition")
	c.Flags().Int64Var(&o.start, "start-offset", -1, "its first offset")
	c.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	c.RunE = func(c *cobra.Command, args []string) error {
		byOffset := o.topic != "" && o.partition >= 0 && o.start >= 0
		if byOffset == (len(args) == 1) {
			return usagef("want a transactional id, or all of --topic, --partition and --start-offset")
		}
		return s.withClient(func(ctx context.Context, client *kgo.Client, out *output, args []string) error {
			if byOffset {
				if err := out.confirm(o.yes, fmt.Sprintf("write an abort marker onto %s/%d", o.topic, o.partition)); err != nil {
					return err
				}
				return abortHanging(ctx, kadm.NewClient(client), out, o.topic, o.partition, o.start)
			}
			if err := out.confirm(o.yes, "fence the producer of "+args[0]); err != nil {
				return err
			}
			return abortByID(ctx, client, out, args[0])
		})(c, args)
	}
	return c
}

type abortedTxn struct {
	ID            string `json:"transactional_id,omitempty"`
	Topic         string `json:"topic,omitempty"`
	Partition     *int32 `json:"partition,omitempty"`
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
}

// abortByID takes the transactional id over, as a new instance of its producer
// would: the coordinator aborts what the old one left open.
func abortByID(ctx context.Context, client *kgo.Client, out *output, id string) error {
	described, err := kadm.NewClient(client).DescribeTransactions(ctx, id)
	if err != nil {
		return fmt.Errorf("describe transaction: %w", err)
	}
	// Without this look a mistyped id would be created.
	d := described[id]
	if d.Err != nil {
		return fmt.Errorf("%s: %w", id, d.Err)
	}
	if d.State != "Ongoing" {
		return fmt.Errorf("%s: nothing to abort, its state is %s", id, d.State)
	}
	request := kmsg.NewPtrInitProducerIDRequest()
	request.TransactionalID, request.TransactionTimeoutMillis = &id, d.TimeoutMillis
	response, err := request.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	// CONCURRENT_TRANSACTIONS says that the abort has begun and is being written.
	if err != nil && !isCode(err, kerr.ConcurrentTransactions) {
		return fmt.Errorf("%s: %w", id, err)
	}
	return printAborted(out, abortedTxn{ID: id, ProducerID: d.ProducerID, ProducerEpoch: d.ProducerEpoch})
}

func abortHanging(ctx context.Context, admin *kadm.Client, out *output, topic string, partition int32, start int64) error {
	set := kadm.TopicsSet{}
	set.Add(topic, partition)
	producers, err := describeProducers(ctx, admin, out, set)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(producers, func(p kadm.DescribedProducer) bool { return p.CurrentTxnStartOffset == start })
	if i < 0 {
		return fmt.Errorf("%s/%d: no open transaction begins at offset %d", topic, partition, start)
	}
	p := producers[i]
	responses, err := admin.WriteTxnMarkers(ctx, kadm.TxnMarkers{
		ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, CoordinatorEpoch: max(0, p.CoordinatorEpoch), Topics: set,
	})
	if err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	for _, r := range responses.SortedPartitions() {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	return printAborted(out, abortedTxn{Topic: topic, Partition: &partition, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch})
}

func printAborted(out *output, a abortedTxn) error {
	name := a.ID
	if a.Partition != nil {
		name = fmt.Sprintf("%s/%d", a.Topic, *a.Partition)
	}
	t := table{header: []string{"ABORTED", "PRODUCER-ID", "EPOCH"}}
	t.add(name, a.ProducerID, a.ProducerEpoch)
	return out.print(a, t)
}
