package workload

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Prepare creates the topics and fills those that are consumed. Call it once,
// on an empty broker, before Start.
func (w *Workload) Prepare() error {
	conn, err := w.o.World.DialKafka()
	if err != nil {
		return err
	}
	l := &link{conn: conn}
	defer l.close()
	for _, t := range []struct {
		name       string
		partitions int32
		settings   map[string]string
	}{
		{listTopic, listPartitions, nil},
		{trimmedTopic, 1, nil},
		{compactedTopic, 1, map[string]string{
			"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "50", "delete.retention.ms": "100",
		}},
		{volatileTopic, 1, nil},
		{inputTopic, inputPartitions, nil},
		{workTopic, 1, nil},
	} {
		resp, err := l.ask(createTopicRequest(t.name, t.partitions, t.settings))
		if err != nil {
			return err
		}
		if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
			return fmt.Errorf("create topic %s: code %d", t.name, code)
		}
	}
	for p := range int32(inputPartitions) {
		if err := l.fillTopic(Place{inputTopic, p}, w.o.Inputs); err != nil {
			return err
		}
	}
	return l.fillTopic(Place{workTopic, 0}, w.o.Work)
}

// fillTopic writes n records.
func (l *link) fillTopic(at Place, n int) error {
	const atOnce = 10_000
	for ; n > 0; n -= atOnce {
		records := make([]record, min(n, atOnce))
		for i := range records {
			records[i].value = "in"
		}
		resp, err := l.ask(produceRequest(9, "", at, encode(nobody, 0, records)))
		if err != nil {
			return err
		}
		if _, code := produced(resp); code != 0 {
			return fmt.Errorf("fill %v: code %d", at, code)
		}
	}
	return nil
}
