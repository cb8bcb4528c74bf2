package workload

import (
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/checker"
)

// writer is a Kafka worker, one transaction after the other. Only its own
// goroutine uses it.
type writer struct {
	w     *Workload
	n     int
	id    string
	v2    bool
	input int // of groups, which it copies; -1 none
	rng   *rand.Rand

	link *link
	me   identity
	note func(func(*checker.Txn)) // changes the transaction under way
	seq  map[int]int32            // next sequence, by place; -1 is the volatile topic
	next int64                    // position in the input
	// wrote is where the last append went.
	wrote int64
}

func (w *Workload) kafkaWorker(n int, id string, v2 bool, input int) {
	w.actor(n, func(n int, rng *rand.Rand) {
		a := &writer{w: w, n: n, id: id, v2: v2, input: input, rng: rng, me: nobody}
		a.loop()
	})
}

func (a *writer) loop() {
	for !a.w.over() {
		if a.link == nil || a.link.broken {
			a.link = a.w.connectKafka(a.n)
			a.me = nobody
			continue
		}
		if a.me == nobody && !a.own(nobody) {
			continue
		}
		if a.transaction(); a.me == nobody {
			a.w.yield(a.n, a.rng)
		}
	}
	a.link.close()
}

// yield lets whoever fenced an actor get something done before it takes the id
// back.
func (w *Workload) yield(n int, rng *rand.Rand) {
	for range rng.IntN(40) {
		w.o.World.Pause(n)
	}
}

func (a *writer) ask(req kmsg.Request) (kmsg.Response, error) { return a.w.ask(a.n, a.link, req) }

// own initialises the id, as a client does that starts, or that recovers and
// presents what it has. An open transaction of the id is aborted by that.
func (a *writer) own(given identity) bool {
	a.w.taking(a.id)
	s := checker.Span{Invoked: a.w.now()}
	resp, err := a.ask(initRequest(&a.id, a.w.o.Timeout, given))
	s.Completed = a.w.now()
	a.me = nobody
	if err != nil {
		return false
	}
	got := resp.(*kmsg.InitProducerIDResponse)
	if got.ErrorCode != 0 {
		return false
	}
	a.me = identity{got.ProducerID, got.ProducerEpoch}
	a.seq = map[int]int32{}
	a.w.record(func(h *checker.History) {
		h.Inits = append(h.Inits, checker.Init{Span: s, ID: a.id, PID: a.me.id, Epoch: a.me.epoch})
	})
	if a.rng.IntN(3) == 0 {
		a.ownNothing()
	}
	return a.input < 0 || a.position()
}

// ownNothing asks for an idempotent producer's id, which nobody else may have.
func (a *writer) ownNothing() {
	s := checker.Span{Invoked: a.w.now()}
	resp, err := a.ask(initRequest(nil, 0, nobody))
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
// partition does.
func (a *writer) position() bool {
	group := groups[a.input]
	for !a.w.over() {
		resp, err := a.ask(fetchOffsetRequest(group.name, group.partition))
		if err != nil {
			break
		}
		offset, code := fetchedOffset(resp)
		switch code {
		case 0:
			a.next = max(offset, 0)
			return true
		case unstableOffset:
			a.w.o.World.Pause(a.n) // pending offsets of the other instance
			continue
		}
		break
	}
	a.me = nobody
	return false
}

// transaction runs one and records it.
func (a *writer) transaction() {
	a.note = a.w.begin(a.n, checker.Txn{Worker: a.n, ID: a.id, Protocol: a.protocol(), PID: a.me.id, Epoch: a.me.epoch})
	defer a.w.finish(a.n)
	healthy := a.write()
	if a.input >= 0 && healthy {
		healthy = a.copy()
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
		given := nobody
		if a.rng.IntN(2) == 0 {
			given = a.me
		}
		if a.own(given) {
			a.note(func(t *checker.Txn) { t.Fenced = true })
		}
	}
	if !healthy {
		a.me = nobody
	}
}

// write appends to one to three partitions, one request for each.
func (a *writer) write() bool {
	for range 1 + a.rng.IntN(3) {
		if a.rng.IntN(10) == 0 && !a.writeVolatile() {
			return false
		}
		place := a.rng.IntN(len(Places))
		if !a.enrolled(Places[place]) || !a.append(place, 1+a.rng.IntN(3), nil) {
			return false
		}
		if a.rng.IntN(6) == 0 && !a.look(place) {
			return false
		}
	}
	return true
}

// look reads a place as a read_committed consumer inside the transaction does:
// it does not see what it wrote itself.
func (a *writer) look(place int) bool {
	r, code, err := a.w.fetch(a.n, a.link, place, max(0, a.wrote-10), true)
	if err != nil || code != 0 {
		return err == nil // the front may have been deleted
	}
	a.note(func(t *checker.Txn) {
		for _, v := range r.Delivered {
			t.Reads = append(t.Reads, v.Value)
		}
	})
	a.w.record(func(h *checker.History) { h.Responses = append(h.Responses, r) })
	return true
}

// enrolled makes a partition part of a transaction of version 1.
func (a *writer) enrolled(at Place) bool {
	if a.v2 {
		return true
	}
	resp, err := a.ask(enrolRequest(a.id, a.me, at))
	if err != nil {
		return false
	}
	code := resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
	return code == 0 || a.refused(code)
}

// writeVolatile writes to a topic that may be gone, or be another one than a
// moment ago. Whatever the answer, the transaction goes on.
func (a *writer) writeVolatile() bool {
	at := Place{volatileTopic, 0}
	if !a.v2 {
		resp, err := a.ask(enrolRequest(a.id, a.me, at))
		if err != nil {
			return false
		}
		if code := resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
			return code != invalidEpoch && code != producerFenced || a.refused(code)
		}
	}
	resp, err := a.ask(produceRequest(a.produceVersion(), a.id, at, encode(a.me, a.seq[-1], []record{{"", "gone"}})))
	if err != nil {
		return false
	}
	switch _, code := produced(resp); code {
	case 0:
		a.seq[-1]++
	case invalidEpoch, producerFenced:
		return a.refused(code)
	default:
		a.seq[-1] = 0
	}
	return true
}

// copy makes an output of the next input and commits the input's offset.
func (a *writer) copy() bool {
	if a.next >= int64(a.w.o.Inputs) {
		return true
	}
	source := checker.Source{Group: groups[a.input].name, Partition: groups[a.input].partition, Offset: a.next}
	place := a.rng.IntN(listPartitions)
	if !a.enrolled(Places[place]) || !a.enrolledGroup(source.Group) || !a.append(place, 1, &source) {
		return false
	}
	version := int16(3)
	if a.v2 {
		version = 5
	}
	resp, err := a.ask(offsetRequest(version, a.id, a.me, source))
	if err != nil {
		return false
	}
	if code := resp.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		return a.refused(code)
	}
	a.note(func(t *checker.Txn) { t.Sources = append(t.Sources, source) })
	a.next++
	return true
}

func (a *writer) enrolledGroup(group string) bool {
	if a.v2 {
		return true
	}
	resp, err := a.ask(enrolGroupRequest(a.id, a.me, group))
	if err != nil {
		return false
	}
	code := resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode
	return code == 0 || a.refused(code)
}

// refused looks at a code; it returns false. A fenced worker is told by itself
// that its transaction was aborted.
func (a *writer) refused(code int16) bool {
	if code == invalidEpoch || code == producerFenced {
		a.note(func(t *checker.Txn) { t.Fenced = true })
		a.me = nobody
	}
	return false
}

func (a *writer) produceVersion() int16 {
	if a.v2 {
		return 12
	}
	return 9
}

// append writes n new values to a place.
func (a *writer) append(place, n int, source *checker.Source) bool {
	values := a.w.newValues(n)
	req := produceRequest(a.produceVersion(), a.id, Places[place], encodeValues(a.me, a.seq[place], place, values))
	settle := appending(a.w, a.note, place, values, source)
	resp, err := a.ask(req)
	offset, code := int64(-1), int16(0)
	if err == nil {
		offset, code = produced(resp)
	}
	settle(func(i int, at *checker.Append) {
		switch {
		case err == nil && code == 0:
			at.Outcome, at.Offset = checker.Done, offset+int64(i)
		case provesNothing[code]:
			at.Outcome = checker.Refused
		}
	})
	a.seq[place] += int32(n)
	if err != nil {
		return false
	}
	if code != 0 {
		return a.refused(code)
	}
	a.wrote = offset
	if a.rng.IntN(8) == 0 { // as if the answer had been lost: it must not be written again
		_, err = a.ask(req)
	}
	return err == nil
}

// appending records values that are about to be sent, outcome unknown; the
// function it returns records what became of them.
func appending(w *Workload, note func(func(*checker.Txn)), place int, values []checker.Value, source *checker.Source) (settle func(func(int, *checker.Append))) {
	first := 0
	invoked := w.now()
	note(func(t *checker.Txn) {
		first = len(t.Appends)
		for _, v := range values {
			t.Appends = append(t.Appends, checker.Append{
				Span: checker.Unanswered(invoked), Partition: int32(place), Value: v, Key: keyOf(place, v), Offset: -1, Source: source,
			})
		}
	})
	return func(each func(int, *checker.Append)) {
		completed := w.now()
		note(func(t *checker.Txn) {
			for i := range values {
				t.Appends[first+i].Completed = completed
				each(i, &t.Appends[first+i])
			}
		})
	}
}

// ending records a try to end the transaction, like appending.
func ending(w *Workload, note func(func(*checker.Txn)), commit bool) (settle func(checker.Outcome)) {
	i := 0
	invoked := w.now()
	note(func(t *checker.Txn) {
		i = len(t.Endings)
		t.Endings = append(t.Endings, checker.Ending{Span: checker.Unanswered(invoked), Commit: commit})
	})
	return func(o checker.Outcome) {
		completed := w.now()
		note(func(t *checker.Txn) { t.Endings[i].Completed, t.Endings[i].Outcome = completed, o })
	}
}

// outcomeOf says what an answer to EndTxn proves.
func outcomeOf(resp kmsg.Response, err error) checker.Outcome {
	if err != nil {
		return checker.Unknown
	}
	switch code := resp.(*kmsg.EndTxnResponse).ErrorCode; {
	case code == 0:
		return checker.Done
	case refusesEnd[code]:
		return checker.Refused
	}
	return checker.Unknown
}

// end tries until somebody answers, at most thrice: a commit whose answer is
// lost is repeated, as clients do, and must have one outcome.
func (a *writer) end(commit bool) {
	before := a.me
	for try := 0; try < 3 && !a.w.over(); try++ {
		settle := ending(a.w, a.note, commit)
		resp, err := a.ask(endRequest(a.endVersion(), a.id, before, commit))
		settle(outcomeOf(resp, err))
		a.me = nobody
		if err != nil {
			if a.link = a.w.connectKafka(a.n); a.link == nil {
				return
			}
			continue
		}
		if got := resp.(*kmsg.EndTxnResponse); got.ErrorCode == 0 {
			a.ended(got, before, commit)
		}
		return
	}
}

func (a *writer) endVersion() int16 { return endVersions[a.protocol()] }

// Protocols of a transaction.
const (
	kafkaV1 = "kafka v1"
	kafkaV2 = "kafka v2"
	moonMQ  = "moonmq"
)

// endVersions are the versions of EndTxn that speak a protocol.
var endVersions = map[string]int16{kafkaV1: 3, kafkaV2: 5}

func (a *writer) protocol() string {
	if a.v2 {
		return kafkaV2
	}
	return kafkaV1
}

// ended goes on with what the answer said, and now and then asks for the
// opposite, which must be refused.
func (a *writer) ended(got *kmsg.EndTxnResponse, before identity, commit bool) {
	a.me = before
	if a.v2 {
		if a.me = (identity{got.ProducerID, got.ProducerEpoch}); a.me.epoch != before.epoch {
			a.seq = map[int]int32{}
		}
	}
	if !commit || !a.v2 || a.rng.IntN(5) > 0 {
		return
	}
	settle := ending(a.w, a.note, false)
	resp, err := a.ask(endRequest(5, a.id, before, false))
	o := outcomeOf(resp, err)
	if err == nil && o == checker.Unknown {
		o = checker.Refused
	}
	settle(o)
}
