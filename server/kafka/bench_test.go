package kafka

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/transport"
)

// overTCP lets b be reached at a loopback port and returns its address.
func (b *testBroker) overTCP() string {
	b.t.Helper()
	l := &transport.Listener{Name: "TCP", Bind: "127.0.0.1:0", Protocol: b.FrontEnd}
	s := transport.NewServer(transport.Options{})
	if err := s.Listen(l); err != nil {
		b.t.Fatal(err)
	}
	s.Serve()
	b.t.Cleanup(func() { s.Shutdown(b.t.Context()) })
	return l.Addr().String()
}

// BenchmarkProduce models producers with one record of 1 KiB in flight each, on
// a disk that costs nothing: what is measured is the way from socket to log and
// back, both ends of the socket included.
func BenchmarkProduce(b *testing.B) {
	for _, producers := range []int{1, 16} {
		b.Run(map[int]string{1: "producers=1", 16: "producers=16"}[producers], func(b *testing.B) {
			broker := startBroker(b)
			topic := broker.create("orders", 16)
			address := broker.overTCP()
			b.ReportAllocs()
			var clients sync.WaitGroup
			start := make(chan struct{})
			for n := range producers {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				req := produceRequest(topic, plain(b, strings.Repeat("x", 1024)))
				req.Topics[0].Partitions[0].Partition = int32(n)
				req.SetVersion(13)
				frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
				answer := make([]byte, 256)
				clients.Go(func() {
					<-start
					for range b.N/producers + 1 {
						if _, err := conn.Write(frame); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(conn, answer[:4]); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(conn, answer[4:4+binary.BigEndian.Uint32(answer)]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			b.ResetTimer()
			close(start)
			clients.Wait()
		})
	}
}

// BenchmarkFetch models a consumer that reads 1 MiB at a time from the page
// cache; here the file system in memory stands in for it.
func BenchmarkFetch(b *testing.B) {
	broker := startBroker(b)
	topic := broker.create("orders", 1)
	for range 64 {
		broker.append(topic, 0, strings.Repeat("x", 16<<10))
	}
	conn, err := net.Dial("tcp", broker.overTCP())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	req := fetchRequest(topic, map[int32]int64{0: 0})
	req.SetVersion(13)
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
	answer := make([]byte, 2<<20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := conn.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer[:4]); err != nil {
			b.Fatal(err)
		}
		n := int(binary.BigEndian.Uint32(answer))
		if _, err := io.ReadFull(conn, answer[:n]); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(n))
	}
}
