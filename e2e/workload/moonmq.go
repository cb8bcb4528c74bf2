package workload

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/perigeemq/perigee/e2e/checker"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// moonLink is one MoonMQ connection, greeted and logged in. After an error it is
// broken for good.
type moonLink struct {
	conn   net.Conn
	sent   uint64 // correlation ids
	broken bool
}

// connectMoon tries until the broker is there; nil when it is over.
func (w *Workload) connectMoon(actor int) *moonLink {
	for !w.over() {
		if l, err := w.dialMoon(); err == nil {
			return l
		}
		w.o.World.Pause(actor)
	}
	return nil
}

func (w *Workload) dialMoon() (*moonLink, error) {
	conn, err := w.o.World.DialMoonMQ()
	if err != nil {
		return nil, err
	}
	l := &moonLink{conn: conn}
	for _, m := range []wire.Message{&wire.Hello{Version: wire.Version}, &wire.Auth{Username: "any", Password: "thing"}} {
		if _, err := l.ask(m); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *moonLink) close() {
	if l != nil {
		l.conn.Close()
	}
}

func (w *Workload) askMoon(actor int, l *moonLink, m wire.Message) (wire.Message, error) {
	w.o.World.Turn(actor)
	defer w.o.World.Answered(actor)
	return l.ask(m)
}

// ask sends a request and returns its first reply. The error says that nobody
// knows what became of it; a refusal is a *wire.Error among the messages.
func (l *moonLink) ask(m wire.Message) (wire.Message, error) {
	if l == nil || l.broken {
		return nil, errNoConnection
	}
	reply, err := l.exchange(m)
	if err != nil {
		l.broken = true
		l.conn.Close()
	}
	return reply, err
}

func (l *moonLink) exchange(m wire.Message) (wire.Message, error) {
	l.sent++
	var id wire.CorrelationID
	binary.BigEndian.PutUint64(id[:], l.sent)
	l.conn.SetDeadline(time.Now().Add(answerLimit))
	if _, err := l.conn.Write(wire.Append(nil, id, m)); err != nil {
		return nil, err
	}
	for {
		f, reply, err := l.receive()
		switch {
		case err != nil:
			return nil, err
		case f.ID == id:
			return reply, nil
		case f.ID == wire.CorrelationID{} && f.Op == wire.OpError:
			return nil, fmt.Errorf("the broker hung up: %+v", reply)
		}
	}
}

func (l *moonLink) receive() (wire.Frame, wire.Message, error) {
	raw := make([]byte, wire.LengthSize)
	if _, err := io.ReadFull(l.conn, raw); err != nil {
		return wire.Frame{}, nil, err
	}
	raw = make([]byte, binary.BigEndian.Uint32(raw))
	if _, err := io.ReadFull(l.conn, raw); err != nil {
		return wire.Frame{}, nil, err
	}
	f, err := wire.ParseFrame(raw)
	if err != nil {
		return f, nil, err
	}
	reply, err := wire.DecodeReply(f.Op, f.Payload, false)
	return f, reply, err
}

// fetch polls; the error is the connection's or a *wire.Error.
func (l *moonLink) fetch(m *wire.Fetch) ([]wire.Record, error) {
	var records []wire.Record
	reply, err := l.ask(m)
	for {
		if err != nil {
			return nil, err
		}
		switch reply := reply.(type) {
		case *wire.RecordBatch:
			records = append(records, reply.Records...)
		case *wire.OK:
			return records, nil
		case *wire.Error:
			return nil, reply
		default:
			return nil, fmt.Errorf("FETCH was answered with %s", reply.Op())
		}
		_, reply, err = l.receive()
		l.broken = l.broken || err != nil
	}
}

// proves are the refusals that prove that a request had no effect.
var proves = map[wire.Code]bool{
	wire.TopicMissing: true, wire.OutOfOrderSequence: true, wire.ProducerFenced: true,
	wire.InvalidTxnState: true, wire.TransactionTimedOut: true, wire.NoProducerID: true,
}

// session is a MoonMQ producer that works in transactions.
type session struct {
	w     *Workload
	n     int
	name  string
	input int // of groups, -1 none
	rng   *rand.Rand

	link *moonLink
	pid  *wire.ProducerID // nil: not initialised
	note func(func(*checker.Txn))
	seq  uint32
	next int64
}

func (w *Workload) moonWorker(n int, name string, input int) {
	w.actor(n, func(n int, rng *rand.Rand) {
		s := &session{w: w, n: n, name: name, input: input, rng: rng}
		s.loop()
	})
}

func (s *session) loop() {
	for !s.w.over() {
		if s.link == nil || s.link.broken {
			s.link = s.w.connectMoon(s.n)
			s.pid = nil
			continue
		}
		if s.pid == nil && !s.own() {
			continue
		}
		if s.transaction(); s.pid == nil {
			s.w.yield(s.n, s.rng)
		}
	}
	s.link.close()
}

func (s *session) ask(m wire.Message) (wire.Message, error) { return s.w.askMoon(s.n, s.link, m) }

// own takes the name; whoever had it is fenced.
func (s *session) own() bool {
	s.w.taking(s.name)
	span := checker.Span{Invoked: s.w.now()}
	reply, err := s.ask(&wire.InitProducerID{Name: s.name, Payload: true})
	span.Completed = s.w.now()
	if err != nil {
		return false
	}
	pid, ok := reply.(*wire.ProducerID)
	if !ok {
		return false
	}
	s.pid, s.seq = pid, 0
	s.w.record(func(h *checker.History) {
		h.Inits = append(h.Inits, checker.Init{Span: span, ID: s.name, PID: int64(pid.PID), Epoch: int16(pid.Epoch)})
	})
	return s.input < 0 || s.position()
}

// position asks where the group stands, through the other protocol: offsets of
// a session's transaction are pending there too.
func (s *session) position() bool {
	l := s.w.connectKafka(s.n)
	defer l.close()
	group := groups[s.input]
	for !s.w.over() {
		resp, err := s.w.ask(s.n, l, fetchOffsetRequest(group.name, group.partition))
		if err != nil {
			break
		}
		offset, code := fetchedOffset(resp)
		if code == 0 {
			s.next = max(offset, 0)
			return true
		}
		s.w.o.World.Pause(s.n)
	}
	s.pid = nil
	return false
}

func (s *session) transaction() {
	s.note = s.w.begin(s.n, checker.Txn{Worker: s.n, ID: s.name, Protocol: moonMQ, PID: int64(s.pid.PID), Epoch: int16(s.pid.Epoch)})
	defer s.w.finish(s.n)
	reply, err := s.ask(&wire.BeginTxn{})
	healthy := s.went(reply, err) && s.write()
	if healthy && s.input >= 0 {
		healthy = s.copy()
	}
	switch choice := s.rng.IntN(10); {
	case !healthy && s.pid != nil && !s.link.broken:
		s.end(false)
		s.pid = nil
	case !healthy:
		s.pid = nil
	case choice < 7:
		s.end(true)
	case choice < 9:
		s.end(false)
	case choice == 9 && s.rng.IntN(2) == 0: // hangs up, which aborts
		s.link.close()
		s.link.broken = true
	default: // the same connection starts anew
		if s.pid = nil; s.own() {
			s.note(func(t *checker.Txn) { t.Fenced = true })
		}
	}
}

// went reports whether a request was accepted. A fenced session knows that its
// transaction was aborted.
func (s *session) went(reply wire.Message, err error) bool {
	if err != nil {
		return false
	}
	refusal, ok := reply.(*wire.Error)
	if !ok {
		return true
	}
	if refusal.Code == wire.ProducerFenced || refusal.Code == wire.TransactionTimedOut {
		s.note(func(t *checker.Txn) { t.Fenced = true })
		s.pid = nil
	}
	return false
}

// write appends one to three records; the broker chooses their partitions.
func (s *session) write() bool {
	for range 1 + s.rng.IntN(3) {
		if !s.append(nil) {
			return false
		}
	}
	return true
}

func (s *session) append(source *checker.Source) bool {
	values := s.w.newValues(1)
	text := strconv.FormatInt(int64(values[0]), 10)
	m := &wire.ProduceIdempotent{PID: s.pid.PID, Epoch: s.pid.Epoch, Seq: s.seq, Topic: listTopic,
		KeyValue: wire.KeyValue{Key: []byte(text), Value: []byte(text)}}
	settle := appending(s.w, s.note, 0, values, source)
	reply, err := s.ask(m)
	ack, acked := reply.(*wire.ProduceAck)
	settle(func(_ int, at *checker.Append) {
		switch refusal, refused := reply.(*wire.Error); {
		case err != nil:
		case acked:
			at.Outcome, at.Partition, at.Offset = checker.Done, int32(ack.Partition)-1, int64(ack.Offset)
		case refused && proves[refusal.Code]:
			at.Outcome = checker.Refused
		}
	})
	if !s.went(reply, err) {
		return false
	}
	s.seq++
	if s.rng.IntN(8) > 0 {
		return true
	}
	again, err := s.ask(m) // as if the ack had been lost
	if repeated, ok := again.(*wire.ProduceAck); ok && *repeated != *ack {
		s.w.o.Report("%+v was acknowledged with %+v and then with %+v", m, ack, repeated)
	}
	return s.went(again, err)
}

// copy makes an output of the next input and commits the input's offset.
func (s *session) copy() bool {
	if s.next >= int64(s.w.o.Inputs) {
		return true
	}
	group := groups[s.input]
	source := checker.Source{Group: group.name, Partition: group.partition, Offset: s.next}
	if !s.append(&source) {
		return false
	}
	reply, err := s.ask(&wire.TxnOffsetCommit{Group: group.name, Offsets: []wire.TxnOffset{
		{Topic: inputTopic, Partition: uint32(group.partition) + 1, Offset: uint64(s.next) + 1},
	}})
	if !s.went(reply, err) {
		return false
	}
	s.note(func(t *checker.Txn) { t.Sources = append(t.Sources, source) })
	s.next++
	return true
}

func (s *session) end(commit bool) {
	settle := ending(s.w, s.note, commit)
	reply, err := s.ask(&wire.EndTxn{Commit: commit})
	o := checker.Unknown
	switch refusal, refused := reply.(*wire.Error); {
	case err != nil:
	case !refused:
		o = checker.Done
	case proves[refusal.Code]:
		o = checker.Refused
	}
	settle(o)
	if !s.went(reply, err) {
		s.pid = nil
	}
}
