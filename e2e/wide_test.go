package e2e

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A hundred topics of ten partitions: all of them take a record, all of them
// give it back to one group, before and after a restart.
func TestAHundredTopicsOfTenPartitions(t *testing.T) {
	b := Start(t)
	adm := kadmClient(t, b.Kafka)
	var topics []string
	for i := range 100 {
		topics = append(topics, topicName("wide", fmt.Sprint(i)))
	}
	created, err := adm.CreateTopics(limited(t), 10, 1, nil, topics...)
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	cl := kgoClient(t, b.Kafka, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for _, topic := range topics {
		for p := range int32(10) {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%s/%d", topic, p)})
		}
	}
	if err := cl.ProduceSync(limited(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	check := func(group string) {
		t.Helper()
		cl := kgoClient(t, b.Kafka, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		seen := map[string]bool{}
		for ctx := limited(t); len(seen) < 1000; {
			fs := cl.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("after %d of 1000 partitions: %v", len(seen), err)
			}
			fs.EachRecord(func(r *kgo.Record) {
				place := fmt.Sprintf("%s/%d", r.Topic, r.Partition)
				if string(r.Value) != place || seen[place] {
					t.Fatalf("partition %s holds %q (seen before: %v)", place, r.Value, seen[place])
				}
				seen[place] = true
			})
		}
		cl.LeaveGroup()
	}
	check(topicName("wide-before"))
	if !b.external {
		b.Stop()
		b.Restart()
		check(topicName("wide-after-stop"))
		b.Kill()
		b.Restart()
		check(topicName("wide-after-kill"))
	}
}
