package workload

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/checker"
	"github.com/perigeemq/perigee/storage/batch"
)

const fetchBytes = 64 << 10

// read is an actor: a consumer with one assignment, over all kills. When the
// front of its partition has been deleted under it, it begins another one.
func (w *Workload) read(n, place int, committed bool) {
	var l *link
	from, reader := int64(0), w.newReader()
	for !w.over() {
		if l == nil || l.broken {
			l = w.connectKafka(n)
			continue
		}
		r, code, err := w.fetch(n, l, place, from, committed)
		switch {
		case err != nil:
		case code == offsetOutOfRange && Places[place].Topic == trimmedTopic:
			from, reader = max(0, w.logStart(n, l, place)), w.newReader()
		case code != 0:
			w.unexpected(code, "fetch %v from %d", Places[place], from)
			w.o.World.Pause(n)
		default:
			r.Reader = reader
			if from = r.Next; r.Next > r.From {
				w.record(func(h *checker.History) { h.Responses = append(h.Responses, r) })
			}
		}
	}
	l.close()
}

// logStart asks where a partition begins now; -1 without an answer.
func (w *Workload) logStart(n int, l *link, place int) int64 {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 5, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = Places[place].Partition, -2
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: Places[place].Topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	resp, err := w.ask(n, l, req)
	if err != nil {
		return -1
	}
	return resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
}

// fetch fetches a place and puts the answer into the checker's words.
func (w *Workload) fetch(n int, l *link, place int, from int64, committed bool) (checker.Response, int16, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.SessionEpoch = 11, -1, -1
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = fetchBytes, 1, 20
	if committed {
		req.IsolationLevel = 1
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = Places[place].Partition, from, fetchBytes
	req.Topics = []kmsg.FetchRequestTopic{{Topic: Places[place].Topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	s := checker.Span{Invoked: w.now()}
	resp, err := w.ask(n, l, req)
	s.Completed = w.now()
	if err != nil {
		return checker.Response{}, 0, err
	}
	got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		return checker.Response{}, got.ErrorCode, nil
	}
	r := checker.Response{
		Span: s, Partition: int32(place), Committed: committed, From: from, Next: from,
		Start: got.LogStartOffset, Stable: got.LastStableOffset, High: got.HighWatermark, End: -1,
	}
	for _, a := range got.AbortedTransactions {
		r.Aborted = append(r.Aborted, checker.AbortedTxn{PID: a.ProducerID, First: a.FirstOffset})
	}
	return r, 0, fill(&r, got.RecordBatches, got.AbortedTransactions)
}

// fill adds the batches of an answer, and what a client hands out of them.
func fill(r *checker.Response, bytes []byte, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction) error {
	var batches []batch.View
	for len(bytes) > 0 {
		view, rest, err := batch.Parse(bytes)
		if err != nil {
			return err
		}
		if bytes = rest; int64(view.LastOffset()) >= r.From {
			batches = append(batches, view)
			r.Next = int64(view.NextOffset())
			r.Batches = append(r.Batches, describe(view))
		}
	}
	deliver := func(view batch.View) {
		for _, v := range values(view) {
			if v.Offset >= r.From {
				r.Delivered = append(r.Delivered, v)
			}
		}
	}
	if r.Committed {
		EachCommitted(batches, aborted, deliver)
		return nil
	}
	for _, view := range batches {
		if !view.IsControl() {
			deliver(view)
		}
	}
	return nil
}

// EachCommitted visits the data batches a read_committed client hands out: an
// entry of the aborted list hides its producer's batches from its first offset
// to the next abort marker.
func EachCommitted(batches []batch.View, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction, visit func(batch.View)) {
	hidden := map[int64]bool{}
	for _, b := range batches {
		for len(aborted) > 0 && aborted[0].FirstOffset <= int64(b.LastOffset()) {
			hidden[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		pid := int64(b.ProducerID())
		switch {
		case b.IsControl():
			if m, err := b.Marker(); err == nil && m.Type == batch.Abort {
				delete(hidden, pid)
			}
		case !b.IsTransactional() || !hidden[pid]:
			visit(b)
		}
	}
}

// describe is a batch in the checker's words.
func describe(view batch.View) checker.Batch {
	b := checker.Batch{
		First: int64(view.BaseOffset()), Last: int64(view.LastOffset()), PID: int64(view.ProducerID()),
		Transactional: view.IsTransactional(), Control: view.IsControl(),
	}
	if m, err := view.Marker(); err == nil {
		b.Commit = m.Type == batch.Commit
	} else {
		b.Values = values(view)
	}
	return b
}

// values are the records of a data batch. What is not a number is no value of
// the history.
func values(view batch.View) []checker.Record {
	var out []checker.Record
	for r, err := range view.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			panic(err) // parsed and checksummed: the workload's own batch
		}
		n, _ := strconv.ParseInt(string(r.Value), 10, 64)
		out = append(out, checker.Record{Offset: int64(r.Offset), Value: checker.Value(n), Key: string(r.Key)})
	}
	return out
}
