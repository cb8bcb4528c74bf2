package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func say(text string) Reply {
	return func(context.Context) (Output, error) {
		return Output{Parts: []Part{{Bytes: framed(text)}}}, nil
	}
}

// A pushed frame leaves between two answers, and its Release tells the pusher
// that it was written.
func TestPushedRepliesLeaveBetweenAnswers(t *testing.T) {
	conns := make(chan *Conn, 1)
	_, m := start(t, Options{}, &script{serve: func(c *Conn, f *Frame) (Reply, error) {
		if string(f.Body) == "hello" {
			conns <- c
		}
		return echo(c, f)
	}})
	client := dial(t, m)
	send(t, client, framed("hello"))
	c := <-conns
	if got := receive(t, client); got != "hello" {
		t.Fatalf("answer %q", got)
	}
	written := make(chan struct{})
	pushed := func(ctx context.Context) (Output, error) {
		o, err := say("pushed")(ctx)
		o.Release = func() { close(written) }
		return o, err
	}
	if err := c.Push(t.Context(), pushed); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, client); got != "pushed" {
		t.Errorf("pushed frame %q", got)
	}
	<-written
	send(t, client, framed("again"))
	if got := receive(t, client); got != "again" {
		t.Errorf("answer %q", got)
	}
	client.Close()
	<-c.written
	if err := c.Push(t.Context(), say("late")); !errors.Is(err, errClosed) {
		t.Errorf("push to a closed connection: %v", err)
	}
	if c.Offer(say("late")) {
		t.Error("a closed connection took an offer")
	}
}

// Push waits for a busy writer and gives up with its context; Offer does not wait.
func TestPushWaitsForTheWriter(t *testing.T) {
	conns, release := make(chan *Conn, 1), make(chan struct{})
	_, m := start(t, Options{}, &script{serve: func(c *Conn, f *Frame) (Reply, error) {
		return func(ctx context.Context) (Output, error) {
			conns <- c
			<-release
			return say("late")(ctx)
		}, nil
	}})
	client := dial(t, m)
	send(t, client, framed("slow"))
	c := <-conns
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Push(ctx, say("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("push: %v", err)
	}
	if c.Offer(say("x")) {
		t.Error("a busy writer took an offer")
	}
	close(release)
	if got := receive(t, client); got != "late" {
		t.Errorf("answer %q", got)
	}
}

func TestHangUpAnswersWhatIsQueued(t *testing.T) {
	reasons := make(chan error, 1)
	o := Options{Events: Events{Closed: func(_ *Conn, reason error) { reasons <- reason }}}
	bored := errors.New("bored")
	_, m := start(t, o, &script{serve: func(c *Conn, f *Frame) (Reply, error) {
		c.HangUp(bored, say("the last word"))
		c.HangUp(errors.New("too late"), say("never said"))
		return echo(c, f)
	}})
	client := dial(t, m)
	send(t, client, framed("bye"))
	for _, want := range []string{"bye", "the last word"} {
		if got := receive(t, client); got != want {
			t.Errorf("answer %q, want %q", got, want)
		}
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the answer: %v", err)
	}
	if got := <-reasons; !errors.Is(got, bored) {
		t.Errorf("reason %v", got)
	}
}

// refuser is a session with a last word.
type refuser struct{ *scriptSession }

func (refuser) Refuse(n uint32) Reply { return say("too long") }

type refusing struct{ *script }

func (p refusing) Open(c *Conn) Session { return refuser{&scriptSession{p.script, c}} }

func TestOversizedFramesGetALastWord(t *testing.T) {
	_, m := start(t, Options{MaxFrameBytes: 8}, refusing{&script{serve: echo}})
	client := dial(t, m)
	send(t, client, framed("ok")[:6])
	send(t, client, []byte{0, 0, 0, 9})
	for _, want := range []string{"ok", "too long"} {
		if got := receive(t, client); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last word: %v", err)
	}
}

// A refused client is told why, also when it has sent something already.
func TestRefusedClientsAreTold(t *testing.T) {
	for _, tt := range []struct {
		name string
		gate string
		want string
	}{
		{"by the gate", "banned", "banned"},
		{"by a limit", "", LimitPerIP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &Listener{
				Protocol: &script{serve: echo},
				Gate:     func(netip.Addr) string { return tt.gate },
				Farewell: func(_ netip.Addr, reason string) []byte { return []byte(reason) },
			}
			startTCP(t, Options{Limits: Limits{MaxConnectionsPerIP: 1}}, l)
			if tt.gate == "" {
				first := dialTCP(t, l)
				send(t, first, framed("in"))
				receive(t, first)
			}
			client, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			client.Write(framed(strings.Repeat("x", 1000)))
			got, err := io.ReadAll(client)
			if string(got) != tt.want || err != nil {
				t.Errorf("told %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}
