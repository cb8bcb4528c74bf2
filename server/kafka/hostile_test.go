package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/transport"
)

// Requests of every API and version with random content end with an answer, an
// error or a closed connection. Replies run with a context that has ended, so
// that none waits. A panic fails the test with its stack.
func TestRandomRequestsNeverCrash(t *testing.T) {
	b := startBroker(t)
	b.create("orders", 2)
	connected := make(chan *transport.Conn, 1)
	conn := connection(t, b, connected)
	r := rand.New(rand.NewPCG(5, 6))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("fuzz"))
	for _, row := range table {
		for version := row.min; version <= row.max; version++ {
			for round := range 40 {
				s := b.Open(conn)
				req := kmsg.RequestForKey(row.key)
				randomize(r, reflect.ValueOf(req).Elem(), round%4 == 0)
				req.SetVersion(version)
				frame := frameOf(format.AppendRequest(nil, req, 1)[4:])
				if round%8 == 7 {
					frame.Body = frame.Body[:r.IntN(len(frame.Body))]
				}
				serveAndAnswer(t, over, s, frame, fmt.Sprintf("%s v%d round %d: %+v", row.name, version, round, req))
			}
		}
	}
}

func serveAndAnswer(t *testing.T, ctx context.Context, s transport.Session, f *transport.Frame, what string) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Logf("crashed by %s", what)
			panic(p)
		}
	}()
	reply, _ := s.Serve(f)
	if reply != nil {
		if out, _ := reply(ctx); out.Release != nil {
			out.Release()
		}
	}
	f.Abandon()
	f.Release()
	s.Close()
}

func frameOf(body []byte) *transport.Frame {
	f := transport.NewFrame(len(body))
	copy(f.Body, body)
	return f
}

// grab is a protocol that hands its connection to a test.
type grab struct{ to chan<- *transport.Conn }

func (grab) Name() string { return "grab" }
func (g grab) Open(c *transport.Conn) transport.Session {
	g.to <- c
	return g
}
func (grab) Serve(*transport.Frame) (transport.Reply, error) { return nil, nil }
func (grab) Close()                                          {}

// connection returns a connection a session can be opened on by hand.
func connection(t *testing.T, b *testBroker, to chan *transport.Conn) *transport.Conn {
	t.Helper()
	m := transport.ListenMemory("memory:9092")
	s := transport.NewServer(transport.Options{})
	if err := s.ListenOn(&transport.Listener{Name: "MEMORY", Bind: "memory:9092", Protocol: grab{to}}, m); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	c, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return <-to
}

var words = []string{"", "orders", "__consumer_offsets", "readers", "clerk", "no/slashes", "consumer", "range", "cleanup.policy", "compact", "0", "-1", "retention.ms", "*", "\x00\xff", "metadata.version", "transaction.version"}

// randomize fills a request. Numbers are small and often -1; wild ones span
// their type.
func randomize(r *rand.Rand, v reflect.Value, wild bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if r.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomize(r, v.Elem(), wild)
		}
	case reflect.Struct:
		if v.Type().Name() == "Tags" {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				randomize(r, v.Field(i), wild)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, r.IntN(90))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			v.SetBytes(b)
			return
		}
		n := r.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			randomize(r, v.Index(i), wild)
		}
	case reflect.Array:
		for i := range v.Len() {
			randomize(r, v.Index(i), wild)
		}
	case reflect.String:
		v.SetString(words[r.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n := int64(r.IntN(6) - 2); !wild {
			v.SetInt(n)
			return
		}
		v.SetInt(int64(r.Uint64()) >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat(r.Float64())
	}
}
