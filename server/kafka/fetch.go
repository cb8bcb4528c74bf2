package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	wire "github.com/perigeemq/perigee/protocol/kafka"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// fetch serves Fetch 4 to 18: 5 adds the log start, 7 incremental sessions, 9
// the leader epoch the client believes in, 11 its rack, 12 the epoch of its last
// record (flexible), 13 topic ids instead of names, 15 moves the replica id to a
// tag, 16 adds node endpoints, 17 directory ids, 18 a replica's high watermark.
// We are nobody's follower, so 15, 17 and 18 change nothing here, and we lead
// what we have, so no answer has node endpoints.
//
// Everything happens on the write goroutine: a fetch orders nothing. While it
// waits for data it is a Waiter in the partitions it watches, not a goroutine.
func fetch(s *session, r *request) reply {
	req := r.body.(*kmsg.FetchRequest)
	return func(ctx context.Context) kmsg.Response {
		f := fetchers.Get().(*fetcher)
		defer f.recycle()
		f.session, f.req, f.frame, f.isolation = s, req, r.frame, model.Isolation(req.IsolationLevel)
		if code := f.plan(time.Now()); code != 0 {
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = code
			return resp
		}
		f.resolve()
		f.await(ctx)
		return f.read()
	}
}

// fetcher answers one request. It is pooled for its list of targets, which for a
// consumer of many partitions is most of what a quiet fetch would allocate.
type fetcher struct {
	session   *session
	req       *kmsg.FetchRequest
	frame     *transport.Frame
	isolation model.Isolation
	within    *fetchSession // nil: none
	full      bool          // everything was named: every partition is sent
	targets   []fetchTarget // in the order they are served
	answer    *fetchAnswer
}

var fetchers = sync.Pool{New: func() any { return new(fetcher) }}

func (f *fetcher) recycle() {
	clear(f.targets)
	*f = fetcher{targets: f.targets[:0]}
	fetchers.Put(f)
}

// fetchTarget is a partition that was asked for, found or not.
type fetchTarget struct {
	fetchWant
	part *fetchPart         // its place in the session, nil without one
	log  *storage.Partition // nil: code says why
	code int16

	// The client has records we never had; see divergence.
	diverging  bool
	divergedAt model.LeaderEpoch
	divergeEnd model.Offset
}

func (f *fetcher) resolve() {
	for i := range f.targets {
		t := &f.targets[i]
		t.log, t.code = f.session.leading(t.id, t.name, t.partition, t.leaderEpoch)
		if t.code == 0 {
			t.divergence()
		}
	}
}

// divergence compares the epoch of the client's last record with our history
// (KIP-595): a client whose log went another way is told where the ways part.
func (t *fetchTarget) divergence() {
	if t.lastEpoch < 0 {
		return
	}
	epoch, end := t.log.EpochEnd(t.lastEpoch)
	switch {
	case epoch < 0 || end < 0:
		t.code = kerr.OffsetOutOfRange.Code
	case epoch < t.lastEpoch || end < t.from:
		t.diverging, t.divergedAt, t.divergeEnd = true, epoch, end
	}
}

// await returns when the answer is worth sending: an error, MinBytes of records,
// the end of MaxWait, or of the connection.
func (f *fetcher) await(ctx context.Context) {
	if f.req.MaxWaitMillis <= 0 || f.enough() {
		return
	}
	f.unload()
	w := storage.NewWaiter()
	for i := range f.targets {
		p := f.targets[i].log
		p.Watch(w)
		defer p.Unwatch(w)
	}
	timeout := time.NewTimer(time.Duration(f.req.MaxWaitMillis) * time.Millisecond)
	defer timeout.Stop()
	for !f.enough() {
		select {
		case <-w.C():
		case <-timeout.C:
			return
		case <-f.session.conn.Draining():
			return
		case <-ctx.Done():
			return
		}
	}
}

// unload gives back the request's memory: the targets have what it said.
func (f *fetcher) unload() {
	f.req.Topics, f.req.ForgottenTopics, f.req.UnknownTags = nil, nil, kmsg.Tags{}
	f.frame.Unload()
}

// enough reports whether to answer now. With nothing to wait for it is true.
func (f *fetcher) enough() bool {
	bytes := 0
	for i := range f.targets {
		t := &f.targets[i]
		if t.code != 0 || t.diverging || t.log.Err() != nil {
			return true
		}
		n := t.log.Available(t.from, f.isolation)
		if n == 0 && f.outOfRange(t) {
			return true
		}
		bytes += min(n, int(t.maxBytes))
	}
	return bytes >= min(int(f.req.MinBytes), f.limit()) || len(f.targets) == 0
}

// limit is how many bytes of records the answer may hold, but for its first batch.
func (f *fetcher) limit() int {
	return min(int(f.req.MaxBytes), f.session.config.Network.FetchMaxBytes)
}

// outOfRange reports whether a read would say so, which is an answer too.
func (f *fetcher) outOfRange(t *fetchTarget) bool {
	b := t.log.Bounds()
	return t.from < b.Start || t.from > b.End
}

// read reads every partition, in order, within the byte limits, and builds the
// answer. The first partition with records returns a whole batch even if that
// is larger than the limits, so that a consumer always gets on.
func (f *fetcher) read() kmsg.Response {
	a := &fetchAnswer{FetchResponse: f.req.ResponseKind().(*kmsg.FetchResponse)}
	f.answer = a
	if f.within != nil {
		a.SessionID = f.within.id
		f.within.mu.Lock()
		defer f.within.mu.Unlock()
	}
	left := f.limit()
	for i := range f.targets {
		left -= f.readOne(&f.targets[i], left)
	}
	f.session.metrics.FetchBytes.Add(int64(a.recordBytes))
	return a
}

// readOne adds a partition to the answer, unless the session knows all of it
// already, and returns the bytes of its records.
func (f *fetcher) readOne(t *fetchTarget, left int) int {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition = t.partition
	p.ErrorCode = t.code
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
	if t.log == nil {
		if t.part != nil {
			t.part.told = false
		}
		f.answer.add(t.fetchKey, p, nil)
		return 0
	}
	read, err := f.readRecords(t, left)
	if err != nil {
		p.ErrorCode = codeOf(err)
		read.Bounds = t.log.Bounds()
	}
	p.HighWatermark = int64(read.Bounds.High)
	p.LastStableOffset = int64(read.Bounds.Stable)
	p.LogStartOffset = int64(read.Bounds.Start)
	if t.diverging {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = int32(t.divergedAt), int64(t.divergeEnd)
	}
	if f.isolation == model.ReadCommitted {
		p.AbortedTransactions = aborted(read.Aborted)
	}
	if read.Slice == nil && p.ErrorCode == 0 && !t.diverging && !f.full && !t.part.news(read.Bounds) {
		return 0
	}
	if t.part != nil {
		t.part.told, t.part.toldBounds = p.ErrorCode == 0, read.Bounds
	}
	f.answer.add(t.fetchKey, p, read.Slice)
	if read.Slice == nil {
		return 0
	}
	if t.part != nil {
		f.within.served(t.part)
	}
	return read.Slice.Len()
}

// readRecords reads within what is left of the answer's bytes.
func (f *fetcher) readRecords(t *fetchTarget, left int) (storage.Read, error) {
	first := f.answer.recordBytes == 0
	if t.code != 0 || t.diverging || left <= 0 && !first {
		return storage.Read{Bounds: t.log.Bounds()}, t.log.Err()
	}
	return t.log.Read(storage.ReadRequest{
		From:        t.from,
		MaxBytes:    max(0, min(left, int(t.maxBytes))),
		MinOneBatch: first,
		Isolation:   f.isolation,
	})
}

// aborted translates the list; it is never null for a read_committed client.
func aborted(list []storage.AbortedTxn) []kmsg.FetchResponseTopicPartitionAbortedTransaction {
	out := make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, 0, len(list))
	for _, a := range list {
		t := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		t.ProducerID, t.FirstOffset = int64(a.ProducerID), int64(a.First)
		out = append(out, t)
	}
	return out
}

// fetchAnswer is a fetch response whose records stay in their files.
type fetchAnswer struct {
	*kmsg.FetchResponse
	sizes       []int            // bytes of records, for each partition
	slices      []*storage.Slice // those that have some
	recordBytes int
}

// add appends a partition. Neighbours of one topic share an entry, as in Kafka.
func (a *fetchAnswer) add(of fetchKey, p kmsg.FetchResponseTopicPartition, records *storage.Slice) {
	n := len(a.Topics)
	if n == 0 || a.Topics[n-1].Topic != of.name || a.Topics[n-1].TopicID != of.id {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = of.name, of.id
		a.Topics = append(a.Topics, t)
		n++
	}
	a.Topics[n-1].Partitions = append(a.Topics[n-1].Partitions, p)
	size := 0
	if records != nil {
		size = records.Len()
		a.slices = append(a.slices, records)
		a.recordBytes += size
	}
	a.sizes = append(a.sizes, size)
}

// send implements sender: header bytes and file regions in turn.
func (a *fetchAnswer) send(correlation int32) (transport.Output, error) {
	head, holes := wire.AppendFetchResponse(nil, nil, correlation, a.FetchResponse, a.sizes)
	parts := make([]transport.Part, 0, 2*len(holes)+1)
	from := 0
	for i, h := range holes {
		file, pos, n := a.slices[i].Region()
		parts = append(parts, transport.Part{Bytes: head[from:h.At]}, transport.Part{File: file, Pos: pos, Len: int64(n)})
		from = h.At
	}
	parts = append(parts, transport.Part{Bytes: head[from:]})
	return transport.Output{Parts: parts, Release: a.release}, nil
}

func (a *fetchAnswer) release() {
	for _, s := range a.slices {
		s.Release()
	}
}
