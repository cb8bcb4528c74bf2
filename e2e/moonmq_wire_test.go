package e2e

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// moonConn is a MoonMQ connection without a client library: frames out, frames
// in.
type moonConn struct {
	net.Conn
	t testing.TB
}

// answerLimit is how long a frame that must come may take on a loaded machine.
const answerLimit = 20 * time.Second

func dialMoon(t testing.TB, b *Broker) *moonConn {
	t.Helper()
	c, err := net.Dial("tcp", b.MoonMQ)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &moonConn{c, t}
}

// loginMoon dials, greets and logs in; the broker may be open.
func loginMoon(t testing.TB, b *Broker, user, password string) *moonConn {
	t.Helper()
	c := dialMoon(t, b)
	c.must(&wire.Hello{Version: wire.Version}, wire.OpWelcome)
	c.must(&wire.Auth{Username: user, Password: password}, wire.OpAuthOK)
	return c
}

// moon is a logged-in connection to an open broker.
func moon(t testing.TB, b *Broker) *moonConn { return loginMoon(t, b, "any", "thing") }

func (c *moonConn) send(m wire.Message) wire.CorrelationID {
	c.t.Helper()
	var id wire.CorrelationID
	rand.Read(id[:])
	if _, err := c.Write(wire.Append(nil, id, m)); err != nil {
		c.t.Fatal(err)
	}
	return id
}

// tryReceive reads one frame within a limit; the length prefix included.
func (c *moonConn) tryReceive(limit time.Duration) ([]byte, error) {
	c.SetReadDeadline(time.Now().Add(limit))
	raw := make([]byte, wire.LengthSize)
	if _, err := io.ReadFull(c, raw); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(raw)
	if n > wire.MaxReplyFrame {
		return nil, fmt.Errorf("frame of %d bytes, more than clients accept", n)
	}
	raw = append(raw, make([]byte, n)...)
	_, err := io.ReadFull(c, raw[wire.LengthSize:])
	return raw, err
}

// receive reads and decodes the next frame.
func (c *moonConn) receive() (wire.Frame, wire.Message) {
	c.t.Helper()
	raw, err := c.tryReceive(answerLimit)
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return c.decode(raw, false)
}

func (c *moonConn) decode(raw []byte, withHeaders bool) (wire.Frame, wire.Message) {
	c.t.Helper()
	f, err := wire.ParseFrame(raw[wire.LengthSize:])
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := wire.DecodeReply(f.Op, f.Payload, withHeaders)
	if err != nil {
		c.t.Fatalf("decode %s: %v", f.Op, err)
	}
	return f, m
}

// call sends a request and returns its first reply, passing over pushes.
func (c *moonConn) call(m wire.Message) wire.Message {
	c.t.Helper()
	id := c.send(m)
	for {
		f, reply := c.receive()
		if f.ID == id || f.Op == wire.OpError {
			return reply
		}
	}
}

// must is call for a reply of one kind.
func (c *moonConn) must(m wire.Message, want wire.Op) wire.Message {
	c.t.Helper()
	reply := c.call(m)
	if reply.Op() != want {
		c.t.Fatalf("%s answered with %s %+v, want %s", m.Op(), reply.Op(), reply, want)
	}
	return reply
}

// refused is call for an ERROR of one code.
func (c *moonConn) refused(m wire.Message, want wire.Code) *wire.Error {
	c.t.Helper()
	e := c.must(m, wire.OpError).(*wire.Error)
	if e.Code != want {
		c.t.Fatalf("%s refused with %s %q, want %s", m.Op(), e.Code, e.Message, want)
	}
	return e
}

// ended reports whether the server has closed the connection.
func (c *moonConn) ended() bool {
	raw, err := c.tryReceive(answerLimit)
	return raw == nil && (errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed))
}

// fetch polls once.
func (c *moonConn) fetch(topic, group string, isolation wire.Isolation) []wire.Record {
	c.t.Helper()
	return c.fetchWith(&wire.Fetch{Topic: topic, Group: group, MaxRecords: 1000, Isolation: isolation, Flags: wire.FetchBatched, Trailers: 2})
}

func (c *moonConn) fetchWith(m *wire.Fetch) []wire.Record {
	c.t.Helper()
	c.send(m)
	var records []wire.Record
	for {
		raw, err := c.tryReceive(answerLimit)
		if err != nil {
			c.t.Fatalf("fetch: %v", err)
		}
		switch _, reply := c.decode(raw, m.Flags&wire.FetchHeaders != 0); reply := reply.(type) {
		case *wire.RecordBatch:
			records = append(records, reply.Records...)
		case *wire.Record:
			records = append(records, *reply)
		case *wire.OK:
			return records
		default:
			c.t.Fatalf("fetch answered with %s %+v", reply.Op(), reply)
		}
	}
}

func createMoon(c *moonConn, topic string, partitions uint32) {
	c.t.Helper()
	c.must(&wire.CreateTopic{Name: topic, Partitions: partitions}, wire.OpOK)
}

func (c *moonConn) produce(topic, key, value string) *wire.ProduceAck {
	c.t.Helper()
	m := &wire.Produce{Topic: topic, KeyValue: wire.KeyValue{Key: []byte(key), Value: []byte(value)}}
	return c.must(m, wire.OpProduceAck).(*wire.ProduceAck)
}

// moonProducer is a producer session on a connection.
type moonProducer struct {
	*moonConn
	id   *wire.ProducerID
	next map[string]uint32
}

func (c *moonConn) producer(name string) *moonProducer {
	c.t.Helper()
	id := c.must(&wire.InitProducerID{Name: name, Payload: true}, wire.OpProducerID).(*wire.ProducerID)
	return &moonProducer{c, id, map[string]uint32{}}
}

func (p *moonProducer) record(topic, key, value string, seq uint32) *wire.ProduceIdempotent {
	return &wire.ProduceIdempotent{PID: p.id.PID, Epoch: p.id.Epoch, Seq: seq, Topic: topic,
		KeyValue: wire.KeyValue{Key: []byte(key), Value: []byte(value)}}
}

// put produces the next record of a topic.
func (p *moonProducer) put(topic, key, value string) *wire.ProduceAck {
	p.t.Helper()
	ack := p.must(p.record(topic, key, value, p.next[topic]), wire.OpProduceAck).(*wire.ProduceAck)
	p.next[topic]++
	return ack
}
