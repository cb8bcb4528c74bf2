package kafka

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/txn"
	wire "github.com/perigeemq/perigee/protocol/kafka"
	"github.com/perigeemq/perigee/server/transport"
)

// lateEnds is the front end, but for an EndTxn it waits until the connection it
// came by has been reset.
type lateEnds struct {
	*FrontEnd
	waiting chan struct{}
	served  chan error
}

func (l lateEnds) Open(c *transport.Conn) transport.Session {
	return lateSession{l.FrontEnd.Open(c), c, l}
}

type lateSession struct {
	transport.Session
	c *transport.Conn
	l lateEnds
}

func (s lateSession) Serve(f *transport.Frame) (transport.Reply, error) {
	h, _, err := wire.ParseHeader(f.Body)
	if err != nil || h.Key != int16(kmsg.EndTxn) {
		return s.Session.Serve(f)
	}
	close(s.l.waiting)
	for deadline := time.Now().Add(patience); !s.c.Reset() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	reply, err := s.Session.Serve(f)
	s.l.served <- err
	return reply, err
}

// An EndTxn whose client resets the connection before it is served does not end
// what has begun since.
func TestAnEndFromAResetConnectionHasNoEffect(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of a reset before the bytes in front of it are read")
	}
	b := startBroker(t)
	orders := b.create("orders", 1)
	p := lateEnds{b.FrontEnd, make(chan struct{}), make(chan error, 1)}
	l := &transport.Listener{Name: "TCP", Bind: "127.0.0.1:0", Protocol: p}
	sockets := transport.NewServer(transport.Options{})
	if err := sockets.Listen(l); err != nil {
		t.Fatal(err)
	}
	sockets.Serve()
	defer sockets.Shutdown(t.Context())
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := &wireClient{t: t, conn: conn, format: kmsg.NewRequestFormatter()}
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("clerk"), 60_000
	me := ask[*kmsg.InitProducerIDResponse](client, 1, init)
	_, err = b.coordinator.Enrol(txn.Enrol{
		ID: "clerk", Producer: holder(me.ProducerID, me.ProducerEpoch),
		Partitions: []txn.Participant{{TopicPartition: orders.Partition(0), Name: "orders"}},
	}).Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "clerk", me.ProducerID, me.ProducerEpoch, true
	client.send(1, end)
	<-p.waiting
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	if err := <-p.served; err == nil {
		t.Error("the end was served")
	}
	a, err := b.coordinator.DescribeTransaction("clerk").Wait(t.Context())
	if err != nil || a.Records[0].State != txn.Ongoing {
		t.Errorf("%+v, %v", a, err)
	}
}
