package e2e

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// hold is a network between a client and the broker that keeps frames of one API
// back until they are released.
type hold struct {
	t       *testing.T
	addr    string
	held    chan struct{} // a frame is being kept back
	release chan struct{} // close: let it go
	gone    chan struct{} // the client's end of the connection is gone, and so is the broker's
	outcome chan error    // of passing on the frame
}

func holdFrames(t *testing.T, broker string, key kmsg.Key) *hold {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	h := &hold{t: t, addr: l.Addr().String(), held: make(chan struct{}), release: make(chan struct{}), gone: make(chan struct{}), outcome: make(chan error, 1)}
	go func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", broker)
		if err != nil {
			client.Close()
			return
		}
		go io.Copy(client, server)
		h.pass(client, server.(*net.TCPConn), key)
	}()
	return h
}

// pass forwards frames. What a client does to its connection reaches the broker
// at once, as a reset does that overtakes a segment that was sent again.
func (h *hold) pass(client net.Conn, server *net.TCPConn, key kmsg.Key) {
	for {
		frame, err := readRawFrame(client)
		if err != nil {
			server.Close()
			return
		}
		if int16(binary.BigEndian.Uint16(frame[4:])) == int16(key) {
			close(h.held)
			if _, err := client.Read(make([]byte, 1)); err != nil {
				server.SetLinger(0)
				server.Close()
				close(h.gone)
			}
			<-h.release
			_, err := server.Write(frame)
			h.outcome <- err
			return
		}
		server.Write(frame)
	}
}

func readRawFrame(r io.Reader) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(r, size); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size))
	_, err := io.ReadFull(r, body)
	return append(size, body...), err
}

// reset ends a connection as a client does that has given up.
func (w *raw) reset() {
	w.t.Helper()
	w.conn.(*net.TCPConn).SetLinger(0)
	w.conn.Close()
}

// v1Transaction begins a transaction of version 1 with one record.
func (w *raw) v1Transaction(id string, p identity, seq int32, value string) {
	w.t.Helper()
	w.want("AddPartitions", w.addPartitions(0, id, p, "t", 0), 0)
	_, code := w.produce(9, id, p, seq, "t", 0, value)
	w.want("Produce", code, 0)
}

// What can be done about P02 under version 1: when the connection of a delayed
// commit was reset before the network let the commit go, it has no effect.
func TestP02MitigationACommitFromAResetConnectionHasNoEffect(t *testing.T) {
	b, w := txnBroker(t)
	w.newTopic("t", 1)
	p := w.init("v1")
	network := holdFrames(t, b.Kafka, kmsg.EndTxn)
	a := rawConn(t, network.addr)
	w.v1Transaction("v1", p, 0, "first")
	a.send(endRequest(1, "v1", p, true))
	<-network.held
	_, code := w.end(1, "v1", p, true) // the client asks again elsewhere
	w.want("EndTxn", code, 0)
	w.v1Transaction("v1", p, 1, "x")
	a.reset()
	<-network.gone
	close(network.release)
	if err := <-network.outcome; err == nil {
		t.Error("the frame went to the broker over a connection that is gone")
	}
	w.nextIsUntouched("v1", p)
}

// A frame can also have arrived, and wait in the broker behind requests that take
// long. It is dropped, too, when its connection is reset meanwhile.
func TestP02MitigationACommitThatWaitsBehindOthersIsDropped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells of a reset before the bytes in front of it are read")
	}
	b, w := txnBroker(t)
	w.newTopic("t", 1)
	p := w.init("v1")
	a := w.again()
	w.v1Transaction("v1", p, 0, "first")
	_, code := w.end(1, "v1", p, true)
	w.want("EndTxn", code, 0)

	a.send(fetchRequest("t", w.latest("t", 0, false), 1_500*time.Millisecond)) // nothing will come
	for range 65 {                                                             // as many as the broker queues answers to, and one
		a.send(kmsg.NewPtrApiVersionsRequest())
	}
	a.send(endRequest(1, "v1", p, true))
	a.arrived()
	a.reset()
	_, code = w.produce(9, "v1", p, 1, "t", 0, "not in the transaction") // the broker still answers others
	w.want("Produce without enrolment", code, 48)
	w.want("AddPartitions", w.addPartitions(0, "v1", p, "t", 0), 0)
	eventually(t, 20*time.Second, func() string { return "the broker still has the connection that was reset" }, func() bool {
		return openConnections(t, b) == 1
	})
	_, code = w.produce(9, "v1", p, 1, "t", 0, "x")
	w.want("Produce", code, 0)
	w.nextIsUntouched("v1", p)
}

// nextIsUntouched asserts that the transaction under way has not been ended, and
// is its producer's to abort.
func (w *raw) nextIsUntouched(id string, p identity) {
	w.t.Helper()
	if state := w.describe(id).State; state != "Ongoing" {
		w.t.Errorf("the next transaction is %s", state)
	}
	_, code := w.produce(9, id, p, 2, "t", 0, "y")
	w.want("Produce", code, 0)
	_, code = w.end(1, id, p, false)
	w.want("EndTxn abort", code, 0)
	if got, want := w.fetch(11, "t", 0, 0, true).committedValues(), []string{"first"}; !slices.Equal(got, want) {
		w.t.Errorf("committed %v, want %v", got, want)
	}
	w.closed("t", 0)
}

// fetchRequest waits for data of partition 0.
func fetchRequest(topic string, from int64, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.SessionEpoch = 11, -1, -1
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<20, 1, int32(wait.Milliseconds())
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = from, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return req
}

// arrived waits until the other side's kernel has everything that was sent.
func (w *raw) arrived() {
	w.t.Helper()
	socket, err := w.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, 10*time.Second, func() string { return "the broker's side does not take what was sent" }, func() bool {
		unsent := 1
		socket.Control(func(fd uintptr) {
			unsent, err = ioctlInt(fd, syscall.TIOCOUTQ)
		})
		return err == nil && unsent == 0
	})
}

// openConnections reads how many Kafka connections the broker has.
func openConnections(t *testing.T, b *Broker) int {
	t.Helper()
	resp, err := http.Get("http://" + b.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if n, ok := strings.CutPrefix(string(line), `perigee_connections_open{protocol="kafka"} `); ok {
			return int(n[0] - '0')
		}
	}
	t.Fatal("no series of open connections")
	return 0
}
