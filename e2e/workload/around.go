package workload

import (
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/checker"
)

// poll is an actor that asks where the groups stand, stable offsets only.
func (w *Workload) poll(n int, rng *rand.Rand) {
	var l *link
	for !w.over() {
		if l == nil || l.broken {
			l = w.connectKafka(n)
			continue
		}
		group := groups[rng.IntN(len(groups))]
		o := checker.GroupOffset{Span: checker.Span{Invoked: w.now()}, Group: group.name, Partition: group.partition}
		resp, err := w.ask(n, l, fetchOffsetRequest(group.name, group.partition))
		o.Completed = w.now()
		if err == nil {
			var code int16
			o.Offset, code = fetchedOffset(resp)
			o.Unstable = code == unstableOffset
			if code != 0 && !o.Unstable {
				w.unexpected(code, "offset of %s", group.name)
				continue
			}
			w.record(func(h *checker.History) { h.Offsets = append(h.Offsets, o) })
		}
		w.o.World.Pause(n)
	}
	l.close()
}

// administrate is an actor that does what operators do.
func (w *Workload) administrate(n int, rng *rand.Rand) {
	var l *link
	for !w.over() {
		if l == nil || l.broken {
			l = w.connectKafka(n)
			continue
		}
		switch rng.IntN(6) {
		case 0:
			w.ask(n, l, deleteTopicRequest(volatileTopic))
		case 1, 2:
			w.ask(n, l, createTopicRequest(volatileTopic, 1, nil))
		case 3:
			w.trim(n, l, rng)
		case 4:
			w.inspect(n, l)
		case 5:
			req := kmsg.NewPtrDescribeProducersRequest()
			req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: listTopic, Partitions: []int32{0, 1, 2, 3}}}
			w.ask(n, l, req)
		}
		w.o.World.Pause(n)
	}
	l.close()
}

// unexpected reports an answer that nothing explains.
func (w *Workload) unexpected(code int16, format string, args ...any) {
	if !away[code] {
		w.o.Report("%s: code %d", fmt.Sprintf(format, args...), code)
	}
}

func createTopicRequest(name string, partitions int32, settings map[string]string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 5
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for key, value := range settings {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, &value
		topic.Configs = append(topic.Configs, c)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

func deleteTopicRequest(name string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 5
	req.TopicNames = []string{name}
	return req
}

// trim deletes some of the front of the trimmed topic.
func (w *Workload) trim(n int, l *link, rng *rand.Rand) {
	place := 4
	start := w.logStart(n, l, place)
	if start < 0 {
		return
	}
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 1, 30_000
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = Places[place].Partition, start+rng.Int64N(8)
	if rng.IntN(10) == 0 {
		p.Offset = -1 // to the high watermark, past open transactions
	}
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: Places[place].Topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{p}}}
	resp, err := w.ask(n, l, req)
	if err != nil {
		return
	}
	if code := resp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode; code != 0 && code != offsetOutOfRange {
		w.unexpected(code, "delete records up to %d", p.Offset)
	}
}

// inspect lists the transactions and describes one.
func (w *Workload) inspect(n int, l *link) {
	resp, err := w.ask(n, l, kmsg.NewPtrListTransactionsRequest())
	if err != nil {
		return
	}
	listed := resp.(*kmsg.ListTransactionsResponse)
	if listed.ErrorCode != 0 {
		w.unexpected(listed.ErrorCode, "list transactions")
	}
	if len(listed.TransactionStates) == 0 {
		return
	}
	describe := kmsg.NewPtrDescribeTransactionsRequest()
	describe.TransactionalIDs = []string{listed.TransactionStates[0].TransactionalID}
	if resp, err = w.ask(n, l, describe); err != nil {
		return
	}
	if code := resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0].ErrorCode; code != 0 {
		w.unexpected(code, "describe %q, which was listed", describe.TransactionalIDs[0])
	}
}
