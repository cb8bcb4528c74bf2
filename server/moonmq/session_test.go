package moonmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/txn"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/vfs"
)

// world is a front end on a real coordinator and engine, on a disk and a network
// in memory.
type world struct {
	testing.TB
	*coordinator.Coordinator
	front    *FrontEnd
	listener *transport.MemoryListener
	crashed  atomic.Pointer[string]
}

func newWorld(t testing.TB, static access.Static, set ...string) *world {
	t.Helper()
	loaded, err := config.Load(config.Sources{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	e, err := storage.Open(context.Background(), storage.Options{
		FS: vfs.NewMemory(), ReserveBytes: -1,
		ProducerExpiry: loaded.Broker.Storage.ProducerExpiry, ProducerExpiryCheck: loaded.Broker.Storage.ProducerExpiryCheck,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := coordinator.Open(context.Background(), e, coordinator.Options{Static: loaded.Static})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, Coordinator: c, listener: transport.ListenMemory("moon:1")}
	front := New(Options{
		Coordinator: c, Access: access.NewDirectory(static, c.Catalog), Limits: loaded.Broker.MoonMQLimits,
		DeadLetters: loaded.Broker.DeadLetters, Log: zerolog.Nop(),
	})
	w.front = front
	sockets := transport.NewServer(transport.Options{MaxFrameBytes: int32(loaded.Broker.MoonMQLimits.MaxFrameBytes), IdleTimeout: -1,
		Events: transport.Events{Crashed: func(_ *transport.Conn, panicked any, stack []byte) {
			text := fmt.Sprintf("%v\n%s", panicked, stack)
			w.crashed.Store(&text)
		}}})
	if err := sockets.ListenOn(&transport.Listener{Name: "MOONMQ", Protocol: front, Gate: front.Gate, Farewell: front.Farewell}, w.listener); err != nil {
		t.Fatal(err)
	}
	sockets.Serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		front.Drain()
		sockets.Shutdown(ctx)
		front.Close()
		c.Close()
		e.Close(ctx)
		w.sound()
	})
	return w
}

// sound fails the test if a request crashed its connection.
func (w *world) sound() {
	if text := w.crashed.Load(); text != nil {
		w.Fatalf("a request crashed: %s", *text)
	}
}

// client is a connection without a library.
type client struct {
	net.Conn
	w *world
	n byte
}

func (w *world) dial() *client {
	w.Helper()
	c, err := w.listener.Dial(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	return &client{Conn: c, w: w}
}

func (w *world) login() *client {
	w.Helper()
	c := w.dial()
	c.must(&wire.Hello{Version: 1}, wire.OpWelcome)
	c.must(&wire.Auth{Username: "u", Password: "p"}, wire.OpAuthOK)
	return c
}

func (c *client) send(m wire.Message) {
	c.w.Helper()
	c.n++
	if _, err := c.Write(wire.Append(nil, wire.CorrelationID{15: c.n}, m)); err != nil {
		c.w.Fatal(err)
	}
}

func (c *client) receive() (wire.Frame, wire.Message, error) {
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		return wire.Frame{}, nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(c, body); err != nil {
		return wire.Frame{}, nil, err
	}
	f, err := wire.ParseFrame(body)
	if err != nil {
		return f, nil, err
	}
	m, err := wire.DecodeReply(f.Op, f.Payload, false)
	return f, m, err
}

func (c *client) call(m wire.Message) wire.Message {
	c.w.Helper()
	c.send(m)
	_, reply, err := c.receive()
	if err != nil {
		c.w.Fatalf("%s: %v", m.Op(), err)
	}
	return reply
}

func (c *client) must(m wire.Message, want wire.Op) wire.Message {
	c.w.Helper()
	reply := c.call(m)
	if reply.Op() != want {
		c.w.Fatalf("%s answered with %s %+v, want %s", m.Op(), reply.Op(), reply, want)
	}
	return reply
}

// raw is an op with a payload of the test's choice.
type raw struct {
	op      wire.Op
	payload []byte
}

func (c *client) sendRaw(r raw) error {
	frame := binary.BigEndian.AppendUint32(nil, uint32(wire.HeaderSize+len(r.payload)))
	frame = append(frame, byte(r.op))
	frame = append(frame, make([]byte, 16)...)
	c.n++
	frame[20] = c.n
	_, err := c.Write(append(frame, r.payload...))
	return err
}

// Every number an op can have, in every state: served, refused for the state, or
// unknown, in the words of the protocol.
func TestOpsByState(t *testing.T) {
	secret, err := access.NewCredential(access.ScramSHA256, "p", 1)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, access.Static{Users: []access.User{{Name: "u", Credential: &secret, Super: true}}})
	for state := stateNew; state <= stateAuthenticated; state++ {
		for n := range 256 {
			op := wire.Op(n)
			c := w.dial()
			if state >= stateGreeted {
				c.must(&wire.Hello{Version: 1}, wire.OpWelcome)
			}
			if state == stateAuthenticated {
				c.must(&wire.Auth{Username: "u", Password: "p"}, wire.OpAuthOK)
			}
			if err := c.sendRaw(raw{op: op}); err != nil {
				t.Fatal(err)
			}
			r, known := table[op]
			if op == wire.OpGoodbye || op == wire.OpHeartbeatResp {
				continue // not answered
			}
			f, m, err := c.receive()
			if err != nil {
				t.Fatalf("%s in state %s: %v", op, state, err)
			}
			e, refused := m.(*wire.Error)
			text := fmt.Sprintf("op 0x%02X not allowed in state %s", n, state)
			switch {
			case known && state >= r.from && state <= r.to:
				if refused && e.Message == text {
					t.Errorf("%s is refused in state %s", op, state)
				}
			case !known && state == stateAuthenticated:
				if !refused || e.Code != wire.UnknownOp || e.Message != fmt.Sprintf("op 0x%02X", n) {
					t.Errorf("%s in state %s: %+v", op, state, m)
				}
			default:
				if !refused || e.Code != wire.BadFrame || e.Message != text || f.ID == (wire.CorrelationID{}) {
					t.Errorf("%s in state %s: %+v", op, state, m)
				}
			}
			c.Close()
		}
	}
}

// Requests are answered in order however many are sent at once, and each sees
// what the ones before it did.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	w := newWorld(t, access.Static{})
	c := w.login()
	id := c.must(&wire.InitProducerID{Name: "writer", Payload: true}, wire.OpProducerID).(*wire.ProducerID)
	put := func(seq uint32) wire.Message {
		return &wire.ProduceIdempotent{PID: id.PID, Epoch: id.Epoch, Seq: seq, Topic: "t", KeyValue: wire.KeyValue{Value: []byte("v")}}
	}
	script := []struct {
		send wire.Message
		want wire.Op
	}{
		{&wire.CreateTopic{Name: "t", Partitions: 1}, wire.OpOK},
		{&wire.BeginTxn{}, wire.OpOK},
		{put(0), wire.OpProduceAck}, {put(1), wire.OpProduceAck}, {put(1), wire.OpProduceAck},
		{&wire.EndTxn{}, wire.OpOK},
		{put(1), wire.OpProduceAck}, // the aborted one again, outside
		{put(5), wire.OpError},
		{&wire.Fetch{Topic: "t", Group: "g", MaxRecords: 10, Isolation: 1, Flags: wire.FetchBatched, Trailers: 2}, wire.OpRecordBatch},
		{nil, wire.OpOK},
		{&wire.Nack{Topic: "t", Partition: 1, Offset: 3}, wire.OpNackAck},
		{&wire.Fetch{Topic: "t", Group: "g", MaxRecords: 10, Isolation: 1, Trailers: 2}, wire.OpRecord},
		{nil, wire.OpOK},
		{&wire.HeartbeatReq{}, wire.OpHeartbeatResp},
	}
	go func() {
		for _, s := range script {
			if s.send != nil {
				c.send(s.send)
			}
		}
	}()
	for i, s := range script {
		_, m, err := c.receive()
		if err != nil || m.Op() != s.want {
			t.Fatalf("answer %d: %+v, %v; want %s", i, m, err, s.want)
		}
		if b, ok := m.(*wire.RecordBatch); ok && (len(b.Records) != 1 || b.Records[0].Offset != 3) {
			t.Errorf("read committed: %+v", b.Records)
		}
	}
}

// A named producer whose connection is idle for longer than names are kept can
// still write; one whose connection is gone is forgotten meanwhile.
func TestANamedProducerIsKeptByItsConnection(t *testing.T) {
	w := newWorld(t, access.Static{}, "moonmq.producer.expiration.ms=1", "transactional.id.expiration.ms=1",
		"transaction.remove.expired.transaction.cleanup.interval.ms=2",
		"producer.id.expiration.ms=1", "producer.id.expiration.check.interval.ms=2")
	live, gone := w.login(), w.login()
	id := live.must(&wire.InitProducerID{Name: "live", Payload: true}, wire.OpProducerID).(*wire.ProducerID)
	live.must(&wire.CreateTopic{Name: "t", Partitions: 1}, wire.OpOK)
	put := &wire.ProduceIdempotent{PID: id.PID, Epoch: id.Epoch, Topic: "t", KeyValue: wire.KeyValue{Value: []byte("v")}}
	first := live.must(put, wire.OpProduceAck).(*wire.ProduceAck)
	forgotten := func(name string) bool {
		_, err := w.DescribeTransaction(name).Wait(t.Context())
		return errors.Is(err, txn.ErrNotFound)
	}
	for _, name := range []string{"gone", "renamed"} {
		gone.must(&wire.InitProducerID{Name: name, Payload: true}, wire.OpProducerID)
	}
	waitFor(t, func() bool { return forgotten("gone") })
	gone.Close()
	waitFor(t, func() bool { return forgotten("renamed") })
	if again := live.must(put, wire.OpProduceAck).(*wire.ProduceAck); *again != *first {
		t.Errorf("the retry is answered with %+v, the original with %+v", again, first)
	}
	topic, _ := w.Catalog().Topic("t")
	log, err := w.Partition(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(log.Producers()) == 0 })
	live.must(&wire.BeginTxn{}, wire.OpOK)
	put.Seq = 1 // the partition has forgotten 0
	live.must(put, wire.OpProduceAck)
	live.Close()
	waitFor(t, func() bool { return forgotten("live") })
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 20 s")
		}
	}
}

// Positions inside a transaction: delivery does not commit, an abort gives back
// what was read, a commit keeps it (decision 6).
func TestPositionsFollowTheTransaction(t *testing.T) {
	w := newWorld(t, access.Static{})
	c := w.login()
	c.must(&wire.CreateTopic{Name: "t", Partitions: 1}, wire.OpOK)
	for range 3 {
		c.must(&wire.Produce{Topic: "t", KeyValue: wire.KeyValue{Value: []byte("v")}}, wire.OpProduceAck)
	}
	c.must(&wire.InitProducerID{Name: "writer", Payload: true}, wire.OpProducerID)
	fetch := func(n uint32, flags wire.FetchFlags) (got []uint64) {
		t.Helper()
		c.send(&wire.Fetch{Topic: "t", Group: "g", MaxRecords: n, Flags: wire.FetchBatched | flags, Trailers: 2})
		for {
			_, m, err := c.receive()
			if err != nil {
				t.Fatal(err)
			}
			b, ok := m.(*wire.RecordBatch)
			if !ok {
				return got
			}
			for _, r := range b.Records {
				got = append(got, r.Offset)
			}
		}
	}
	committed := func() string {
		t.Helper()
		switch m := c.call(&wire.DescribeGroup{Group: "g"}).(type) {
		case *wire.GroupDescription:
			return fmt.Sprint(m.Offsets[0].Offset)
		default:
			return "none"
		}
	}
	check := func(what string, got []uint64, want []uint64, at string) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) || committed() != at {
			t.Errorf("%s: read %v, the group is at %s; want %v and %s", what, got, committed(), want, at)
		}
	}
	c.must(&wire.BeginTxn{}, wire.OpOK)
	check("in a transaction", fetch(2, 0), []uint64{0, 1}, "none")
	c.must(&wire.EndTxn{}, wire.OpOK)
	c.must(&wire.BeginTxn{}, wire.OpOK)
	check("after its abort", fetch(1, 0), []uint64{0}, "none")
	c.must(&wire.EndTxn{Commit: true}, wire.OpOK)
	check("after a commit, without auto-commit", fetch(1, wire.FetchNoCommit), []uint64{1}, "none")
	check("outside", fetch(1, 0), []uint64{2}, "3")
	c.must(&wire.BeginTxn{}, wire.OpOK)
	c.must(&wire.TxnOffsetCommit{Group: "g", Offsets: []wire.TxnOffset{{Topic: "t", Partition: 1, Offset: 3}}}, wire.OpOK)
	if e := c.must(&wire.Nack{Topic: "t", Partition: 1, Offset: 1}, wire.OpError).(*wire.Error); e.Code != wire.InvalidTxnState {
		t.Errorf("a NACK against the transaction's own offsets: %+v", e)
	}
	c.must(&wire.EndTxn{}, wire.OpOK)
}

// A reply larger than a client takes is cut into frames, and what is larger than
// one delivery comes with the next.
func TestLargeFetchIsCut(t *testing.T) {
	w := newWorld(t, access.Static{})
	c := w.login()
	c.must(&wire.CreateTopic{Name: "t", Partitions: 1}, wire.OpOK)
	batch := &wire.ProduceBatch{Topic: "t"}
	for range 15 {
		batch.Records = append(batch.Records, wire.KeyValue{Value: make([]byte, wire.MaxString)})
	}
	const batches = 30 // 28 MiB
	for range batches {
		c.must(batch, wire.OpProduceBatchAck)
	}
	total, fetches := 0, 0
	for total < batches*15 {
		fetches++
		c.send(&wire.Fetch{Topic: "t", Group: "g", MaxRecords: 1 << 31, Flags: wire.FetchBatched, Trailers: 2})
		for frames := 0; ; frames++ {
			f, m, err := c.receive()
			if err != nil {
				t.Fatal(err)
			}
			b, ok := m.(*wire.RecordBatch)
			if !ok {
				if frames < 2 {
					t.Errorf("fetch %d came in %d frames", fetches, frames)
				}
				break
			}
			if len(f.Payload) > 8<<20 {
				t.Errorf("a frame of %d bytes", len(f.Payload))
			}
			total += len(b.Records)
		}
	}
	if fetches < 2 || total != batches*15 {
		t.Errorf("%d records in %d fetches", total, fetches)
	}
}

// Whatever a client sends, in whatever order: the broker answers or hangs up and
// is none the worse. The input is a script of frames: op, length, payload.
func FuzzConversation(f *testing.F) {
	hello := []byte{byte(wire.OpHello), 4, 0, 0, 0, 1}
	auth := append([]byte{byte(wire.OpAuth), 8}, make([]byte, 8)...)
	f.Add(append(hello, auth...))
	v := func(m wire.Message) []byte {
		frame := wire.Append(nil, wire.CorrelationID{}, m)
		payload := frame[wire.LengthSize+wire.HeaderSize:]
		return append([]byte{byte(m.Op()), byte(len(payload))}, payload...)
	}
	in := append(append([]byte{}, hello...), auth...)
	for _, m := range []wire.Message{
		&wire.CreateTopic{Name: "t", Partitions: 2}, &wire.InitProducerID{Name: "n", Payload: true}, &wire.BeginTxn{},
		&wire.Produce{Topic: "t", KeyValue: wire.KeyValue{Value: []byte("v")}}, &wire.ProduceIdempotent{PID: 1, Topic: "t"},
		&wire.Fetch{Topic: "t", Group: "g", MaxRecords: 5, Flags: 5, Trailers: 2}, &wire.Nack{Topic: "t", Partition: 1},
		&wire.JoinGroup{Group: "g", Topics: []string{"t"}}, &wire.EndTxn{}, &wire.ListOffsets{Topic: "t", Mode: 1, Trailers: 1},
		&wire.AlterTopicConfig{Name: "t", Config: []wire.ConfigEntry{{Key: "retention", Value: "1e3"}}}, &wire.ListGroups{},
	} {
		f.Add(append(in[:len(in):len(in)], v(m)...))
	}
	w := newWorld(f, access.Static{})
	f.Fuzz(func(t *testing.T, script []byte) {
		conn, err := w.listener.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := &client{Conn: conn, w: w}
		done := make(chan struct{})
		go func() { // what is answered is read, or the broker would wait for it
			defer close(done)
			io.Copy(io.Discard, c)
		}()
		c.SetWriteDeadline(time.Now().Add(10 * time.Second))
		for len(script) >= 2 {
			n := min(int(script[1]), len(script)-2)
			err := c.sendRaw(raw{wire.Op(script[0]), script[2 : 2+n]})
			script = script[2+n:]
			if errors.Is(err, io.ErrClosedPipe) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		<-done
		if text := w.crashed.Load(); text != nil {
			t.Fatalf("a request crashed: %s", *text)
		}
	})
}
