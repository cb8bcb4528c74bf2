// Relay stands between clients and a broker that is killed and started again. It
// always accepts: a client that dials while nobody serves waits until somebody
// does, instead of being refused. What happens on a connection afterwards, a
// broken one above all, reaches the client unchanged.
//
//	relay LISTEN TARGET
//
// It is for clients whose reaction to a refused dial would hide what a suite is
// about: franz-go hands it to a polling group member at once when there is no
// second broker to go to.
//
// Two goroutines for each client, until either end closes.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const (
	redial        = 10 * time.Millisecond
	giveUp        = 20 * time.Second
	firstFrameMax = 1 << 20
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: relay LISTEN TARGET")
		os.Exit(2)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go serve(client, os.Args[2])
	}
}

// serve brings the client's first request, ApiVersions, to a broker that answers
// it; from then on it copies bytes.
func serve(client net.Conn, target string) {
	defer client.Close()
	request, err := frame(client)
	if err != nil {
		return
	}
	broker, response := first(request, target)
	if broker == nil {
		return
	}
	defer broker.Close()
	if _, err := client.Write(response); err != nil {
		return
	}
	go func() {
		io.Copy(broker, client)
		broker.Close()
		client.Close()
	}()
	io.Copy(client, broker)
}

// first asks brokers at target until one answers, or until it takes too long.
func first(request []byte, target string) (net.Conn, []byte) {
	for deadline := time.Now().Add(giveUp); time.Now().Before(deadline); time.Sleep(redial) {
		broker, err := net.Dial("tcp", target)
		if err != nil {
			continue
		}
		if _, err = broker.Write(request); err == nil {
			if response, err := frame(broker); err == nil {
				return broker, response
			}
		}
		broker.Close()
	}
	return nil, nil
}

// frame reads a length and as many bytes.
func frame(from io.Reader) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(from, size); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size)
	if n > firstFrameMax {
		return nil, fmt.Errorf("a first frame of %d bytes", n)
	}
	all := append(size, make([]byte, n)...)
	_, err := io.ReadFull(from, all[4:])
	return all, err
}
