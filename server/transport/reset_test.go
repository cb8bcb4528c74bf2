package transport

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"
)

// A session that is busy with one frame can tell, before it serves the next,
// whether the client has torn the connection down meanwhile; a client that closed
// its sending side still waits for answers.
func TestAResetIsSeenBeforeWhatCameAheadOfItIsServed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	for name, test := range map[string]struct {
		end  func(*net.TCPConn)
		want bool
	}{
		"reset":      {func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, true},
		"half-close": {func(c *net.TCPConn) { c.CloseWrite() }, false},
		"open":       {func(*net.TCPConn) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			first, ended := make(chan *Conn, 1), make(chan struct{})
			second := make(chan bool, 1)
			l := &Listener{Name: "TEST", Protocol: &script{serve: func(c *Conn, f *Frame) (Reply, error) {
				if string(f.Body) == "first" {
					first <- c
					<-ended
				} else {
					second <- c.Reset()
				}
				return nil, nil
			}}}
			startTCP(t, Options{}, l)
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.Write(append(framed("first"), framed("second")...)); err != nil {
				t.Fatal(err)
			}
			c := <-first
			test.end(client.(*net.TCPConn))
			for deadline := time.Now().Add(10 * time.Second); c.Reset() != test.want; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("reset: %v", c.Reset())
				}
			}
			close(ended)
			if got := <-second; got != test.want {
				t.Errorf("reset: %v", got)
			}
		})
	}
}

// Frames that were read ahead of a failed write are not served.
func TestNothingIsServedAfterAFailedWrite(t *testing.T) {
	served := make(chan string, 2)
	_, m := start(t, Options{}, &script{serve: func(c *Conn, f *Frame) (Reply, error) {
		served <- string(f.Body)
		c.cancel(errors.New("write answer: broken")) // as fail does on the write goroutine
		return nil, nil
	}})
	client := dial(t, m)
	if _, err := client.Write(append(framed("first"), framed("second")...)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("an answer")
	}
	if got := <-served; got != "first" || len(served) > 0 {
		t.Errorf("served %q and %d more", got, len(served))
	}
}
