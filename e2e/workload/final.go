package workload

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/checker"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// TakeOver ends whatever is open, as the next owners of the ids do. The other
// way is to wait for the timeouts.
func (w *Workload) TakeOver() error {
	l, err := w.direct()
	if err != nil {
		return err
	}
	defer l.close()
	ids := map[string]bool{}
	for _, in := range w.mu.h.Inits {
		ids[in.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if id == "" {
			continue
		}
		resp, err := l.ask(initRequest(&id, 60_000, nobody))
		if err != nil {
			return err
		}
		if code := resp.(*kmsg.InitProducerIDResponse).ErrorCode; code != 0 {
			return fmt.Errorf("take over %s: code %d", id, code)
		}
	}
	return nil
}

// direct connects outside of any turn.
func (w *Workload) direct() (*link, error) {
	conn, err := w.o.World.DialKafka()
	return &link{conn: conn}, err
}

// Final reads what is left when everything has ended, and returns the whole
// history. Call it after Wait.
func (w *Workload) Final() (*checker.History, error) {
	l, err := w.direct()
	if err != nil {
		return nil, err
	}
	defer l.close()
	f := &w.mu.h.Final
	*f = checker.Final{
		Log: map[int32]checker.Response{}, Committed: map[int32][]checker.Record{}, Compacted: []int32{compactedPlace},
	}
	for p := range Places {
		if err := w.finalLog(l, p, f); err != nil {
			return nil, fmt.Errorf("final read of %v: %w", Places[p], err)
		}
	}
	if err := w.finalState(l, f); err != nil {
		return nil, err
	}
	if w.o.MoonMQ {
		if err := w.finalDead(l, f); err != nil {
			return nil, fmt.Errorf("final read of the dead: %w", err)
		}
	}
	return &w.mu.h, nil
}

// finalLog reads a whole partition.
func (w *Workload) finalLog(l *link, place int, f *checker.Final) error {
	start := w.logStart(-1, l, place)
	if start < 0 {
		return errNoConnection
	}
	whole := checker.Response{Partition: int32(place), From: start, Next: start, Start: start, End: -1}
	for {
		r, code, err := w.fetch(-1, l, place, whole.Next, true)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("code %d", code)
		}
		whole.Batches = append(whole.Batches, r.Batches...)
		f.Committed[int32(place)] = append(f.Committed[int32(place)], r.Delivered...)
		whole.Next, whole.Stable, whole.High = r.Next, r.Stable, r.High
		if r.Next >= r.High || len(r.Batches) == 0 { // the end, or stuck before an open transaction: the checker says so
			f.Log[int32(place)] = whole
			return nil
		}
	}
}

// finalState asks for what may be left open.
func (w *Workload) finalState(l *link, f *checker.Final) error {
	producers := kmsg.NewPtrDescribeProducersRequest()
	for _, at := range Places {
		producers.Topics = append(producers.Topics, kmsg.DescribeProducersRequestTopic{Topic: at.Topic, Partitions: []int32{at.Partition}})
	}
	resp, err := l.ask(producers)
	if err != nil {
		return err
	}
	for place, t := range resp.(*kmsg.DescribeProducersResponse).Topics {
		for _, p := range t.Partitions[0].ActiveProducers {
			if p.CurrentTxnStartOffset >= 0 {
				f.OpenAt = append(f.OpenAt, int32(place))
			}
		}
	}
	for _, g := range groups {
		resp, err := l.ask(fetchOffsetRequest(g.name, g.partition))
		if err != nil {
			return err
		}
		o := checker.GroupOffset{Group: g.name, Partition: g.partition}
		var code int16
		o.Offset, code = fetchedOffset(resp)
		o.Unstable = code == unstableOffset
		f.Groups = append(f.Groups, o)
	}
	list := kmsg.NewPtrListTransactionsRequest()
	list.StateFilters = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}
	if resp, err = l.ask(list); err != nil {
		return err
	}
	for _, s := range resp.(*kmsg.ListTransactionsResponse).TransactionStates {
		f.Ongoing = append(f.Ongoing, s.TransactionalID)
	}
	return w.volatileIsClosed(l)
}

// volatileIsClosed reports a topic that was deleted and created again and still
// waits for a transaction of its predecessor.
func (w *Workload) volatileIsClosed(l *link) error {
	var ends [2]int64
	for isolation := range ends {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID, req.IsolationLevel = 5, -1, int8(isolation)
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -1
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: volatileTopic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		resp, err := l.ask(req)
		if err != nil {
			return err
		}
		got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if got.ErrorCode == unknownTopic {
			return nil
		}
		ends[isolation] = got.Offset
	}
	if ends[0] != ends[1] {
		w.o.Report("topic %s: high watermark %d, stable offset %d", volatileTopic, ends[0], ends[1])
	}
	return nil
}

// finalDead reads the dead letters as a MoonMQ client does, and where their
// group stands.
func (w *Workload) finalDead(l *link, f *checker.Final) error {
	req := fetchOffsetRequest(nackGroup, 0)
	req.Topics[0].Topic = workTopic
	resp, err := l.ask(req)
	if err != nil {
		return err
	}
	settled, _ := fetchedOffset(resp)
	f.Settled = append(f.Settled, checker.GroupOffset{Group: nackGroup, Offset: settled})

	moon, err := w.dialMoon()
	if err != nil {
		return err
	}
	defer moon.close()
	group := "inspector-" + w.newReader() // delivery moves a group, and this may not be the last look
	for {
		records, err := moon.fetch(&wire.Fetch{Topic: deadTopic, Group: group, MaxRecords: 500, Flags: wire.FetchBatched, Trailers: 2})
		if err != nil {
			if refusal, ok := err.(*wire.Error); ok && refusal.Code == wire.TopicMissing {
				return nil // nothing has died
			}
			return err
		}
		if len(records) == 0 {
			return nil
		}
		for _, r := range records {
			e, err := wire.DecodeEnvelope(r.Value)
			if err != nil {
				return err
			}
			f.Dead = append(f.Dead, checker.DeadLetter{
				Source:  checker.Source{Group: e.Group, Partition: int32(e.Partition) - 1, Offset: int64(e.Offset)},
				Settled: settled,
			})
		}
	}
}
