package transport

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeemq/perigee/server/quota"
)

// script is a protocol whose sessions run a function for each frame.
type script struct {
	serve func(c *Conn, f *Frame) (Reply, error)

	mu     sync.Mutex
	closed int
}

func (s *script) Name() string { return "script" }

func (s *script) Open(c *Conn) Session { return &scriptSession{s, c} }

type scriptSession struct {
	*script
	c *Conn
}

func (s *scriptSession) Serve(f *Frame) (Reply, error) { return s.serve(s.c, f) }

func (s *scriptSession) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

// framed prefixes a body with its length.
func framed(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func echo(_ *Conn, f *Frame) (Reply, error) {
	return func(context.Context) (Output, error) {
		return Output{Parts: []Part{{Bytes: framed(string(f.Body))}}}, nil
	}, nil
}

// start serves p in memory until the test ends.
func start(t *testing.T, o Options, p Protocol) (*Server, *MemoryListener) {
	t.Helper()
	s := NewServer(o)
	m := ListenMemory("test:1")
	if err := s.ListenOn(&Listener{Name: "TEST", Protocol: p}, m); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
	})
	return s, m
}

// startTCP serves l, on a loopback port unless it says where.
func startTCP(t *testing.T, o Options, l *Listener) *Server {
	t.Helper()
	s := NewServer(o)
	l.Name, l.Bind = cmp.Or(l.Name, "TEST"), cmp.Or(l.Bind, "127.0.0.1:0")
	if err := s.Listen(l); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
	})
	return s
}

func dial(t *testing.T, m *MemoryListener) net.Conn {
	t.Helper()
	c, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dialTCP(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c net.Conn) string {
	t.Helper()
	var prefix [4]byte
	if _, err := io.ReadFull(c, prefix[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// expectClosed reads until the end.
func expectClosed(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); n != 0 {
		t.Errorf("%d unexpected bytes before the end (%v)", n, err)
	}
}

// reasons records why connections were closed.
type reasons chan error

func (r reasons) record(_ *Conn, reason error) { r <- reason }

func TestRepliesLeaveInRequestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := &script{serve: func(c *Conn, f *Frame) (Reply, error) {
			reply, _ := echo(c, f)
			switch string(f.Body) {
			case "slow":
				return func(ctx context.Context) (Output, error) { <-gate; return reply(ctx) }, nil
			case "silent":
				return nil, nil
			}
			return reply, nil
		}}
		_, m := start(t, Options{}, p)
		c := dial(t, m)
		go c.Write(bytes.Join([][]byte{framed("first"), framed("slow"), framed("silent"), framed("last")}, nil))

		if got := receive(t, c); got != "first" {
			t.Fatalf("got %q before the slow reply was released", got)
		}
		synctest.Wait()
		close(gate)
		for _, want := range []string{"slow", "last"} {
			if got := receive(t, c); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// writes counts the writes of a socket.
type writes struct {
	net.Conn
	n int
}

func (w *writes) Write(b []byte) (int, error) { w.n++; return w.Conn.Write(b) }

func TestReadyAnswersLeaveInOneWrite(t *testing.T) {
	for _, c := range []struct {
		name  string
		ready bool
		want  int
	}{{"ready", true, 1}, {"may block", false, 10}} {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			socket := &writes{Conn: ours}
			s := NewServer(Options{})
			conn := newConn(s, &Listener{readLabels: t.Context(), writeLabels: t.Context()}, socket)
			for range 10 {
				f := NewFrame(1)
				if c.ready {
					f.ReadyWhen(func() bool { return true })
				}
				reply, _ := echo(conn, f)
				conn.queue <- queued{reply, f}
			}
			close(conn.queue)
			go func() { conn.writeReplies(); ours.Close() }()
			io.Copy(io.Discard, theirs)
			if socket.n != c.want {
				t.Errorf("%d writes for ten answers, want %d", socket.n, c.want)
			}
		})
	}
}

func TestEveryReplyRunsAndReleasesOnceAfterTheClientIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := quota.NewMemory(1 << 20)
		var ran, released int
		p := &script{}
		p.serve = func(_ *Conn, f *Frame) (Reply, error) {
			return func(ctx context.Context) (Output, error) {
				<-ctx.Done()
				ran++
				return Output{Parts: []Part{{Bytes: framed("late")}}, Release: func() { released++ }}, nil
			}, nil
		}
		_, m := start(t, Options{Memory: memory}, p)
		c := dial(t, m)
		for range 3 {
			send(t, c, framed("wait"))
		}
		synctest.Wait()
		if want := 3 * frameCost(4); memory.Used() != want {
			t.Errorf("%d bytes reserved while three frames are in flight, want %d", memory.Used(), want)
		}
		c.Close()
		synctest.Wait()
		if ran != 3 || released != 3 || p.closed != 1 || memory.Used() != 0 {
			t.Errorf("ran %d, released %d, session closed %d, %d bytes reserved", ran, released, p.closed, memory.Used())
		}
	})
}

func TestConnectionsAreClosedWhen(t *testing.T) {
	stay := func(*Conn, *Frame) (Reply, error) {
		return func(ctx context.Context) (Output, error) { <-ctx.Done(); return Output{}, ctx.Err() }, nil
	}
	for _, c := range []struct {
		name    string
		options Options
		serve   func(*Conn, *Frame) (Reply, error)
		client  func(t *testing.T, c net.Conn)
		reason  string // of the close; "" = by the client
	}{
		{name: "the client leaves", serve: echo,
			client: func(t *testing.T, c net.Conn) { c.Close() }},
		{name: "nothing is asked for too long", serve: echo, options: Options{IdleTimeout: time.Minute},
			client: func(t *testing.T, c net.Conn) { expectClosed(t, c) }, reason: "idle for 1m0s"},
		{name: "a frame stops in its length", serve: echo, options: Options{IdleTimeout: time.Minute},
			client: func(t *testing.T, c net.Conn) { send(t, c, []byte{0, 0}); expectClosed(t, c) }, reason: "idle for 1m0s"},
		{name: "a frame stops in its body", serve: echo, options: Options{IdleTimeout: time.Minute},
			client: func(t *testing.T, c net.Conn) { send(t, c, []byte{0, 0, 0, 9, 1}); expectClosed(t, c) }, reason: "read frame of 9 bytes"},
		{name: "a frame stops in its body, long before the idle time", serve: echo, options: Options{IdleTimeout: time.Hour},
			client: func(t *testing.T, c net.Conn) {
				send(t, c, []byte{0, 0, 0, 9, 1})
				began := time.Now()
				expectClosed(t, c)
				if took := time.Since(began); took != bodyTimeout {
					t.Errorf("closed after %v, want %v", took, bodyTimeout)
				}
			}, reason: "read frame of 9 bytes"},
		{name: "a frame is larger than allowed", serve: echo, options: Options{MaxFrameBytes: 100},
			client: func(t *testing.T, c net.Conn) { send(t, c, []byte{0, 0, 0, 101}); expectClosed(t, c) }, reason: "frame of 101 bytes announced"},
		{name: "a length is negative", serve: echo,
			client: func(t *testing.T, c net.Conn) { send(t, c, []byte{0xff, 0, 0, 0}); expectClosed(t, c) }, reason: "frame of 4278190080 bytes"},
		{name: "the session fails", serve: func(*Conn, *Frame) (Reply, error) { return nil, errors.New("no such request") },
			client: func(t *testing.T, c net.Conn) { send(t, c, framed("x")); expectClosed(t, c) }, reason: "no such request"},
		{name: "the session panics", serve: func(*Conn, *Frame) (Reply, error) { panic("bug") },
			client: func(t *testing.T, c net.Conn) { send(t, c, framed("x")); expectClosed(t, c) }, reason: "internal error: bug"},
		{name: "a reply panics", serve: func(*Conn, *Frame) (Reply, error) {
			return func(context.Context) (Output, error) { panic("bug") }, nil
		}, client: func(t *testing.T, c net.Conn) { send(t, c, framed("x")); expectClosed(t, c) }, reason: "internal error: bug"},
		{name: "the client does not read its answers", serve: echo, options: Options{WriteTimeout: time.Second},
			client: func(t *testing.T, c net.Conn) {
				send(t, c, framed("x"))
				time.Sleep(2 * time.Second) // of the bubble
				expectClosed(t, c)
			}, reason: "write answer"},
		{name: "an answer waits, the client leaves", serve: stay,
			client: func(t *testing.T, c net.Conn) { send(t, c, framed("x")); c.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why := make(reasons, 1)
				c.options.Events = Events{Closed: why.record}
				s, m := start(t, c.options, &script{serve: c.serve})
				c.client(t, dial(t, m))
				reason := <-why
				if c.reason == "" && reason != nil || c.reason != "" && (reason == nil || !strings.Contains(reason.Error(), c.reason)) {
					t.Errorf("closed because %v, want %q", reason, c.reason)
				}
				synctest.Wait()
				if n := s.Connections(); n != 0 {
					t.Errorf("%d connections left", n)
				}
				if n := s.options.Memory.Used(); n != 0 {
					t.Errorf("%d bytes still reserved", n)
				}
			})
		})
	}
}

func TestWaitingForAnAnswerIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &script{serve: func(c *Conn, f *Frame) (Reply, error) {
			return func(ctx context.Context) (Output, error) {
				time.Sleep(time.Hour)
				reply, _ := echo(c, f)
				return reply(ctx)
			}, nil
		}}
		_, m := start(t, Options{IdleTimeout: time.Minute}, p)
		c := dial(t, m)
		send(t, c, framed("patience"))
		if got := receive(t, c); got != "patience" {
			t.Errorf("got %q", got)
		}
	})
}

func TestALastAnswerIsStillSentWhenTheSessionEnds(t *testing.T) {
	p := &script{serve: func(c *Conn, f *Frame) (Reply, error) {
		reply, _ := echo(c, f)
		return reply, errors.New("enough")
	}}
	_, m := start(t, Options{}, p)
	c := dial(t, m)
	send(t, c, framed("goodbye"))
	if got := receive(t, c); got != "goodbye" {
		t.Errorf("got %q", got)
	}
	expectClosed(t, c)
}

func TestConnectionLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := make(chan string, 1)
		o := Options{Limits: Limits{MaxConnections: 2}, Events: Events{Refused: func(_ *Listener, _ net.Addr, why string) { refused <- why }}}
		s, m := start(t, o, &script{serve: echo})
		first, second := dial(t, m), dial(t, m)
		expectClosed(t, dial(t, m))
		if why := <-refused; why != "max.connections" {
			t.Errorf("refused because of %s", why)
		}
		first.Close()
		synctest.Wait()
		third := dial(t, m)
		for _, c := range []net.Conn{second, third} {
			send(t, c, framed("in"))
			receive(t, c)
		}
		if n := s.Connections(); n != 2 {
			t.Errorf("%d connections open, want 2", n)
		}
		s.SetLimits(Limits{MaxConnections: 3}) // while it runs
		dial(t, m)
		synctest.Wait()
		expectClosed(t, dial(t, m))
		if n := s.Connections(); n != 3 {
			t.Errorf("%d connections open, want 3", n)
		}
	})
}

func TestConnectionLimitsPerAddress(t *testing.T) {
	a, b, local := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.Addr{}
	s := NewServer(Options{Limits: Limits{MaxConnectionsPerIP: 1, PerIPOverrides: map[netip.Addr]int{b: 2}}})
	for _, c := range []struct {
		ip   netip.Addr
		want string
	}{{a, ""}, {a, LimitPerIP}, {b, ""}, {b, ""}, {b, LimitPerIP}, {local, ""}, {local, ""}} {
		if got := s.admit(&Conn{ip: c.ip, listener: new(Listener)}); got != c.want {
			t.Errorf("%v: refusal %q, want %q", c.ip, got, c.want)
		}
	}
}

func TestConnectionsAreAcceptedAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m := start(t, Options{Limits: Limits{MaxConnectionRate: 10}}, &script{serve: echo})
		began := time.Now()
		for range 41 { // ten at once, for the idle second before
			dial(t, m)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("41 connections at 10 a second took %v", took)
		}
	})
}

func TestAFloodOfLargeFramesWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := frameCost(100)
		memory := quota.NewMemory(one + one/2)
		gate := make(chan struct{})
		served := make(chan struct{}, 10)
		p := &script{serve: func(c *Conn, f *Frame) (Reply, error) {
			served <- struct{}{}
			return func(ctx context.Context) (Output, error) { <-gate; return Output{}, nil }, nil
		}}
		_, m := start(t, Options{Memory: memory}, p)
		for range 3 {
			c := dial(t, m)
			go c.Write(framed(strings.Repeat("x", 100)))
		}
		synctest.Wait()
		if len(served) != 1 || memory.Used() != one {
			t.Fatalf("%d frames served with memory for one and a half, %d bytes in use", len(served), memory.Used())
		}
		close(gate)
		synctest.Wait()
		if len(served) != 3 || memory.Used() != 0 {
			t.Errorf("%d frames served in the end, %d bytes still reserved", len(served), memory.Used())
		}
	})
}

func TestUnloadedFramesHoldNoMemoryWhileTheirRepliesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := quota.NewMemory(frameCost(100))
		gate := make(chan struct{})
		served := make(chan struct{}, 10)
		p := &script{serve: func(c *Conn, f *Frame) (Reply, error) {
			served <- struct{}{}
			f.Unload()
			return func(ctx context.Context) (Output, error) { <-gate; return Output{}, nil }, nil
		}}
		_, m := start(t, Options{Memory: memory}, p)
		for range 3 {
			c := dial(t, m)
			go c.Write(framed(strings.Repeat("x", 100)))
		}
		synctest.Wait()
		if len(served) != 3 || memory.Used() != 0 {
			t.Errorf("%d of 3 frames served with memory for one, %d bytes in use", len(served), memory.Used())
		}
		close(gate)
		synctest.Wait()
		if memory.Used() != 0 {
			t.Errorf("%d bytes reserved in the end", memory.Used())
		}
	})
}

func TestAFrameThatOthersReadIsNotUnloaded(t *testing.T) {
	f := NewFrame(3)
	copy(f.Body, "abc")
	f.Retain()
	f.Unload()
	if string(f.Body) != "abc" {
		t.Errorf("body %q while somebody reads it", f.Body)
	}
	f.Release()
	f.Unload()
	f.Unload()
	if f.Body != nil {
		t.Errorf("body %q of an unloaded frame", f.Body)
	}
	f.Release()
}

func TestShutdownFinishesWhatWasPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		p := &script{serve: func(c *Conn, f *Frame) (Reply, error) {
			reply, _ := echo(c, f)
			return func(ctx context.Context) (Output, error) { <-gate; return reply(ctx) }, nil
		}}
		s, m := start(t, Options{}, p)
		c := dial(t, m)
		send(t, c, framed("promised"))
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- s.Shutdown(t.Context()) }()
		synctest.Wait()
		close(gate)
		if got := receive(t, c); got != "promised" {
			t.Errorf("got %q", got)
		}
		if err := <-stopped; err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if _, err := m.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial after shutdown: %v", err)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("second shutdown: %v", err)
		}
	})
}

func TestShutdownCutsWhatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended error
		p := &script{serve: func(*Conn, *Frame) (Reply, error) {
			return func(ctx context.Context) (Output, error) {
				<-ctx.Done()
				ended = context.Cause(ctx)
				return Output{}, nil
			}, nil
		}}
		s, m := start(t, Options{}, p)
		send(t, dial(t, m), framed("for ever"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("shutdown: %v", err)
		}
		if !errors.Is(ended, ErrShutdown) {
			t.Errorf("the reply ended with %v", ended)
		}
	})
}

func TestOtherProtocolsGetAShortAnswer(t *testing.T) {
	t.Run("HTTP", func(t *testing.T) {
		l := &Listener{Protocol: &script{serve: echo}}
		startTCP(t, Options{HTTPHint: "The console is at http://127.0.0.1:9404/."}, l)
		c := dialTCP(t, l)
		send(t, c, []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"))
		answer, err := io.ReadAll(c)
		if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) || !bytes.Contains(answer, []byte("speaks script, not HTTP. The console")) {
			t.Errorf("%v: %s", err, answer)
		}
	})
	t.Run("TLS", func(t *testing.T) {
		l := &Listener{Protocol: &script{serve: echo}}
		startTCP(t, Options{}, l)
		err := tls.Client(dialTCP(t, l), &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("handshake ended with %v, want an alert", err)
		}
	})
}
