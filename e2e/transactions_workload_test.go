package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/checker"
	"github.com/perigeemq/perigee/storage/batch"
)

// The workload of the transaction checker: workers append unique values to a
// few partitions inside transactions of both versions, commit, abort or walk
// away; some consume an input and commit its offsets with their output; some
// share a transactional id. Scanners read everything all the time. Everything
// anybody was told goes into one history.

const (
	listTopic, inputTopic = "list", "input"
	listPartitions        = 4
	inputRecords          = 20_000 // more than a short run consumes; a long one goes on without
)

// workload is one run against one address.
type workload struct {
	t     *testing.T
	addr  string
	start time.Time
	value atomic.Int64
	stop  chan struct{}
	group sync.WaitGroup

	mu struct {
		sync.Mutex
		h checker.History
	}
}

func newWorkload(t *testing.T, addr string) *workload {
	w := &workload{t: t, addr: addr, start: time.Now(), stop: make(chan struct{})}
	admin := rawConn(t, addr)
	admin.newTopic(listTopic, listPartitions)
	admin.newTopic(inputTopic, 2)
	for p := range int32(2) {
		for done := 0; done < inputRecords; done += 10_000 {
			values := make([]string, 10_000)
			for i := range values {
				values[i] = "in"
			}
			_, code := produced(admin.do(admin.produceRequest(9, "", inputTopic, p, records(nobody, 0, values...))))
			admin.want("fill the input", code, 0)
		}
	}
	return w
}

// now is the history's clock.
func (w *workload) now() int64 { return int64(time.Since(w.start)) }

func (w *workload) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

func (w *workload) record(f func(*checker.History)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.mu.h)
}

// run starts the workers: how many there are of each kind says kinds.
func (w *workload) run(seed uint64) {
	worker := func(n int, id string, v2 bool, input int32) {
		w.group.Go(func() {
			a := &actor{w: w, n: n, id: id, v2: v2, input: input, rng: rand.New(rand.NewPCG(seed, uint64(n)))}
			a.loop()
		})
	}
	for n := range 4 {
		worker(n, fmt.Sprint("solo-", n), n%2 == 0, -1)
	}
	worker(10, "shared", true, -1) // two of one id fence each other
	worker(11, "shared", false, -1)
	worker(20, "copy-0", true, 0) // consume, transform, produce
	worker(21, "copy-1", false, 1)
	worker(22, "copy-1", false, 1) // a second instance of the same
	for p := range int32(listPartitions) {
		w.group.Go(func() { (&scanner{w: w, partition: p, committed: true, reader: fmt.Sprint("rc-", p)}).loop() })
	}
	w.group.Go(func() { (&scanner{w: w, partition: 0}).loop() })
}

// finish stops everybody and waits.
func (w *workload) finish() {
	close(w.stop)
	w.group.Wait()
}

// link is a connection that fails instead of failing the test.
type link struct {
	raw
	broken bool
}

var errRefusedConnection = errors.New("no connection")

// connect tries until the broker is there or the run ends.
func (w *workload) connect() *link {
	for !w.stopped() {
		conn, err := net.DialTimeout("tcp", w.addr, time.Second)
		if err == nil {
			return &link{raw: raw{conn: conn, ids: map[string][16]byte{}}}
		}
		time.Sleep(time.Millisecond) // the broker is down; do not spin
	}
	return nil
}

func (l *link) try(req kmsg.Request) (kmsg.Response, error) {
	if l == nil || l.broken {
		return nil, errRefusedConnection
	}
	l.corr++
	if _, err := l.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, l.corr)); err != nil {
		l.broken = true
		return nil, err
	}
	resp, err := l.tryReceive(req)
	if err != nil {
		l.broken = true
		l.conn.Close()
	}
	return resp, err
}

// actor is one worker. Only its own goroutine uses it.
type actor struct {
	w     *workload
	n     int
	id    string
	v2    bool
	input int32 // partition it consumes, -1 none
	rng   *rand.Rand

	link *link
	me   identity
	open *checker.Txn // the transaction under way
	seq  map[int32]int32
	next int64 // position in the input
}

func (a *actor) loop() {
	for !a.w.stopped() {
		if a.link == nil || a.link.broken {
			a.link = a.w.connect()
			a.me = nobody
			continue
		}
		if a.me == nobody && !a.own() {
			continue
		}
		a.transaction()
	}
	if a.link != nil {
		a.link.conn.Close()
	}
}

// own initialises the id. An open transaction of its own is aborted by that.
func (a *actor) own() bool {
	s := checker.Span{Invoked: a.w.now()}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = 4
	req.TransactionalID, req.TransactionTimeoutMillis = &a.id, 60_000
	resp, err := a.link.try(req)
	s.Completed = a.w.now()
	if err != nil {
		return false
	}
	got := resp.(*kmsg.InitProducerIDResponse)
	if got.ErrorCode != 0 {
		return false
	}
	a.me = identity{got.ProducerID, got.ProducerEpoch}
	a.seq = map[int32]int32{}
	a.w.record(func(h *checker.History) {
		h.Inits = append(h.Inits, checker.Init{Span: s, ID: a.id, PID: a.me.id, Epoch: a.me.epoch})
	})
	if a.rng.IntN(3) == 0 {
		a.ownNothing()
	}
	return a.input < 0 || a.position()
}

// ownNothing asks for an idempotent producer's id, which nobody else may have.
func (a *actor) ownNothing() {
	s := checker.Span{Invoked: a.w.now()}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = 4
	resp, err := a.link.try(req)
	if s.Completed = a.w.now(); err != nil {
		return
	}
	if got := resp.(*kmsg.InitProducerIDResponse); got.ErrorCode == 0 {
		a.w.record(func(h *checker.History) {
			h.Inits = append(h.Inits, checker.Init{Span: s, PID: got.ProducerID, Epoch: got.ProducerEpoch})
		})
	}
}

// position asks where the group stands, as a consumer that was assigned the
// partition does: with require_stable.
func (a *actor) position() bool {
	for !a.w.stopped() {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group, req.RequireStable = 7, a.groupName(), true
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: inputTopic, Partitions: []int32{a.input}}}
		resp, err := a.link.try(req)
		if err != nil {
			a.me = nobody
			return false
		}
		p := resp.(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0]
		switch p.ErrorCode {
		case 0:
			a.next = max(p.Offset, 0)
			return true
		case 88:
			time.Sleep(time.Millisecond) // pending offsets of the other instance
		default:
			a.me = nobody
			return false
		}
	}
	return false
}

func (a *actor) groupName() string { return fmt.Sprint("g-", a.input) }

// transaction runs one and records it.
func (a *actor) transaction() {
	a.open = &checker.Txn{Worker: a.n, ID: a.id, PID: a.me.id, Epoch: a.me.epoch}
	defer func() {
		a.w.record(func(h *checker.History) { h.Txns = append(h.Txns, *a.open) })
	}()
	healthy := a.write()
	if a.input >= 0 && healthy {
		healthy = a.consume()
	}
	switch choice := a.rng.IntN(10); {
	case !healthy && !a.link.broken && a.me != nobody:
		a.end(false)
	case !healthy:
	case choice < 7:
		a.end(true)
	case choice < 9:
		a.end(false)
	default: // walks away; the next owner of the id aborts it
		if a.me = nobody; a.own() {
			a.open.Fenced = true
		}
	}
	if !healthy {
		a.me = nobody
	}
}

// write appends to one to three partitions, one request for each.
func (a *actor) write() bool {
	for range 1 + a.rng.IntN(3) {
		partition := int32(a.rng.IntN(listPartitions))
		if !a.v2 && !a.enrol(listTopic, partition) {
			return false
		}
		if !a.append(partition, 1+a.rng.IntN(3), nil) {
			return false
		}
	}
	return true
}

// consume makes an output of the next input and commits the input's offset.
func (a *actor) consume() bool {
	if a.next >= inputRecords {
		return true
	}
	source := checker.Source{Group: a.groupName(), Partition: a.input, Offset: a.next}
	partition := int32(a.rng.IntN(listPartitions))
	if !a.v2 && (!a.enrol(listTopic, partition) || !a.enrolGroup()) {
		return false
	}
	if !a.append(partition, 1, &source) {
		return false
	}
	version := int16(3)
	if a.v2 {
		version = 5
	}
	req := a.link.offsetRequest(version, a.id, a.me, source.Group, inputTopic, "")
	req.Topics[0].Partitions[0].Partition, req.Topics[0].Partitions[0].Offset = a.input, a.next+1
	resp, err := a.link.try(req)
	if err != nil {
		return false
	}
	if code := resp.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		a.refused(code)
		return false
	}
	a.open.Sources = append(a.open.Sources, source)
	a.next++
	return true
}

func (a *actor) enrol(topic string, partition int32) bool {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = 3
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = a.id, a.me.id, a.me.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	resp, err := a.link.try(req)
	if err != nil {
		return false
	}
	code := resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
	return code == 0 || a.refused(code)
}

func (a *actor) enrolGroup() bool {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version = 3
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = a.id, a.me.id, a.me.epoch, a.groupName()
	resp, err := a.link.try(req)
	if err != nil {
		return false
	}
	code := resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode
	return code == 0 || a.refused(code)
}

// refused looks at a code; it returns false. A fenced worker is told by itself
// that its transaction was aborted.
func (a *actor) refused(code int16) bool {
	if code == 47 || code == 90 {
		a.open.Fenced = true
		a.me = nobody
	}
	return false
}

// provesNothing are the codes that prove that a batch was not written.
var provesNothing = map[int16]bool{3: true, 45: true, 47: true, 48: true, 49: true, 53: true, 87: true, 90: true, 120: true}

func (a *actor) append(partition int32, n int, source *checker.Source) bool {
	var values []string
	first := len(a.open.Appends)
	for range n {
		v := a.w.value.Add(1)
		values = append(values, strconv.FormatInt(v, 10))
		a.open.Appends = append(a.open.Appends, checker.Append{Partition: partition, Value: checker.Value(v), Offset: -1, Source: source})
	}
	version := int16(9)
	if a.v2 {
		version = 12
	}
	req := a.link.produceRequest(version, a.id, listTopic, partition, records(a.me, a.seq[partition], values...))
	s := checker.Span{Invoked: a.w.now()}
	resp, err := a.link.try(req)
	s.Completed = a.w.now()
	offset, code := int64(-1), int16(0)
	if err == nil {
		offset, code = produced(resp)
	}
	for i := range n {
		at := &a.open.Appends[first+i]
		at.Span = s
		switch {
		case err == nil && code == 0:
			at.Outcome, at.Offset = checker.Done, offset+int64(i)
		case provesNothing[code]:
			at.Outcome = checker.Refused
		}
	}
	a.seq[partition] += int32(n)
	if err != nil || code != 0 {
		a.refused(code)
		return false
	}
	if a.rng.IntN(8) == 0 { // as if the answer had been lost: it must not be written again
		_, err = a.link.try(req)
	}
	return err == nil
}

// end tries until somebody answers, at most thrice: a commit whose answer is
// lost is repeated, as clients do, and must have one outcome.
func (a *actor) end(commit bool) {
	version := int16(3)
	if a.v2 {
		version = 5
	}
	before := a.me
	for try := 0; try < 3 && !a.w.stopped(); try++ {
		e := checker.Ending{Span: checker.Span{Invoked: a.w.now()}, Commit: commit}
		resp, err := a.link.try(endRequest(version, a.id, before, commit))
		e.Completed = a.w.now()
		if err != nil {
			a.open.Endings = append(a.open.Endings, e)
			a.me = nobody
			if a.link = a.w.connect(); a.link == nil {
				return
			}
			continue
		}
		got := resp.(*kmsg.EndTxnResponse)
		switch got.ErrorCode {
		case 0:
			e.Outcome = checker.Done
		case 47, 48, 49, 90:
			e.Outcome = checker.Refused
		}
		a.open.Endings = append(a.open.Endings, e)
		if a.me = nobody; got.ErrorCode == 0 {
			a.ended(got, before, commit)
		}
		return
	}
}

// ended goes on with what the answer said, and now and then asks for the
// opposite, which must be refused.
func (a *actor) ended(got *kmsg.EndTxnResponse, before identity, commit bool) {
	a.me = before
	if a.v2 {
		if a.me = (identity{got.ProducerID, got.ProducerEpoch}); a.me.epoch != before.epoch {
			a.seq = map[int32]int32{}
		}
	}
	if !commit || a.rng.IntN(5) > 0 || !a.v2 {
		return
	}
	e := checker.Ending{Span: checker.Span{Invoked: a.w.now()}, Commit: false}
	resp, err := a.link.try(endRequest(5, a.id, before, false))
	e.Completed = a.w.now()
	switch {
	case err != nil:
	case resp.(*kmsg.EndTxnResponse).ErrorCode == 0:
		e.Outcome = checker.Done
	default:
		e.Outcome = checker.Refused
	}
	a.open.Endings = append(a.open.Endings, e)
}

// scanner reads one partition from the start, over and over kills, as a
// consumer with one assignment.
type scanner struct {
	w         *workload
	partition int32
	committed bool
	reader    string // "" for a scanner that only probes
	link      *link
	from      int64
}

func (s *scanner) loop() {
	for !s.w.stopped() {
		if s.link == nil || s.link.broken {
			s.link = s.w.connect()
			continue
		}
		s.fetch()
	}
	if s.link != nil {
		s.link.conn.Close()
	}
}

func (s *scanner) fetch() {
	r, code, err := s.link.fetchOnce(s.partition, s.from, s.committed, s.w.now)
	switch {
	case err != nil:
	case code != 0:
		s.w.t.Errorf("fetch %d from %d: code %d", s.partition, s.from, code)
		time.Sleep(time.Millisecond)
	default:
		r.Reader = s.reader
		if r.Next > s.from || s.reader == "" {
			s.w.record(func(h *checker.History) { h.Responses = append(h.Responses, r) })
		}
		if s.from = r.Next; s.reader == "" && r.Next >= r.High {
			s.from = max(0, r.Next-50)
			time.Sleep(time.Millisecond)
		}
	}
}

// fetchOnce fetches the list's partition and puts the answer into the words of
// the checker.
func (l *link) fetchOnce(partition int32, from int64, committed bool, now func() int64) (checker.Response, int16, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.SessionEpoch = 11, -1, -1
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 64<<10, 1, 20
	if committed {
		req.IsolationLevel = 1
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, from, 64<<10
	req.Topics = []kmsg.FetchRequestTopic{{Topic: listTopic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	s := checker.Span{Invoked: now()}
	resp, err := l.try(req)
	s.Completed = now()
	if err != nil {
		return checker.Response{}, 0, err
	}
	got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		return checker.Response{}, got.ErrorCode, nil
	}
	r := checker.Response{
		Span: s, Partition: partition, Committed: committed, From: from, Next: from,
		Stable: got.LastStableOffset, High: got.HighWatermark, End: -1,
	}
	f := fetched{aborted: got.AbortedTransactions}
	for rest := got.RecordBatches; len(rest) > 0; {
		view, tail, err := batch.Parse(rest)
		if err != nil {
			return r, 0, err
		}
		rest = tail
		if int64(view.LastOffset()) >= from {
			f.batches = append(f.batches, view)
			r.Next = int64(view.NextOffset())
			r.Batches = append(r.Batches, checkerBatch(view))
		}
	}
	for _, a := range got.AbortedTransactions {
		r.Aborted = append(r.Aborted, checker.AbortedTxn{PID: a.ProducerID, First: a.FirstOffset})
	}
	if committed {
		r.Delivered = f.delivered(from)
	}
	return r, 0, nil
}

func checkerBatch(view batch.View) checker.Batch {
	b := checker.Batch{
		First: int64(view.BaseOffset()), Last: int64(view.LastOffset()), PID: int64(view.ProducerID()),
		Transactional: view.IsTransactional(), Control: view.IsControl(),
	}
	if m, err := view.Marker(); err == nil {
		b.Commit = m.Type == batch.Commit
	} else {
		b.Values = checkerRecords(view)
	}
	return b
}

func checkerRecords(view batch.View) []checker.Record {
	var out []checker.Record
	for i, v := range valuesOf(view) {
		n, _ := strconv.ParseInt(v, 10, 64) // the workload's own values
		out = append(out, checker.Record{Offset: int64(view.BaseOffset()) + int64(i), Value: checker.Value(n)})
	}
	return out
}

// delivered is committedValues with offsets, from an offset on.
func (f fetched) delivered(from int64) []checker.Record {
	var out []checker.Record
	f.eachCommitted(func(view batch.View) {
		for _, r := range checkerRecords(view) {
			if r.Offset >= from {
				out = append(out, r)
			}
		}
	})
	return out
}

// final ends whatever is open, as the next owners of the ids would, and reads
// everything.
func (w *workload) final() *checker.History {
	w.t.Helper()
	admin := rawConn(w.t, w.addr)
	h := &w.mu.h
	ids := map[string]bool{}
	for _, in := range h.Inits {
		ids[in.ID] = true
	}
	for id := range ids {
		if id != "" {
			admin.init(id)
		}
	}
	l := &link{raw: *rawConn(w.t, w.addr)}
	h.Final = checker.Final{Log: map[int32]checker.Response{}, Committed: map[int32][]checker.Record{}}
	for p := range int32(listPartitions) {
		whole := checker.Response{Partition: p, End: -1}
		for {
			r, code, err := l.fetchOnce(p, whole.Next, true, w.now)
			if err != nil || code != 0 {
				w.t.Fatalf("final read of %d: code %d, %v", p, code, err)
			}
			whole.Batches = append(whole.Batches, r.Batches...)
			h.Final.Committed[p] = append(h.Final.Committed[p], r.Delivered...)
			whole.Next, whole.Stable, whole.High = r.Next, r.Stable, r.High
			if r.Next >= r.High {
				break
			}
			if len(r.Batches) == 0 {
				break // stuck in front of an open transaction: the checker says so
			}
		}
		h.Final.Log[p] = whole
		if len(admin.openProducers(listTopic, p)) > 0 {
			h.Final.OpenAt = append(h.Final.OpenAt, p)
		}
	}
	for p := range int32(2) {
		at, code := admin.fetchOffset(fmt.Sprint("g-", p), inputTopic, p, true)
		h.Final.Groups = append(h.Final.Groups, checker.GroupOffset{Group: fmt.Sprint("g-", p), Partition: p, Offset: at, Unstable: code == 88})
	}
	list := kmsg.NewPtrListTransactionsRequest()
	list.StateFilters = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}
	for _, s := range admin.do(list).(*kmsg.ListTransactionsResponse).TransactionStates {
		h.Final.Ongoing = append(h.Final.Ongoing, s.TransactionalID)
	}
	return h
}
