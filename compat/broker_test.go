package compat

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage/vfs"
)

// start returns the address of a broker that lives in this process, with the
// given settings (key=value) beside its defaults.
func start(t *testing.T, set ...string) string {
	t.Helper()
	return startBroker(t, set...).KafkaAddr("PLAINTEXT").String()
}

// startBroker is start for a broker with other listeners.
func startBroker(t *testing.T, set ...string) *server.Broker {
	t.Helper()
	set = append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "moonmq.listen=off", "perigee.http.listen=off"}, set...)
	loaded, err := config.Load(config.Sources{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	b := server.New(server.Options{Config: loaded, FS: vfs.NewMemory()})
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close broker: %v", err)
		}
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// kafkaClient returns a kgo client of the broker at addr.
func kafkaClient(t *testing.T, addr string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// wire is one connection that speaks single requests, each in the version that
// is set in it.
type wire struct {
	conn net.Conn
	next int32
}

// dial connects; the connection is closed with the test.
func dial(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &wire{conn: conn}
}

// ask sends a request and returns its decoded answer. A broker that closes the
// connection instead is io.EOF. Bytes that do not decode, or that are left over,
// are errors.
func (w *wire) ask(req kmsg.Request) (kmsg.Response, error) {
	w.next++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("compat")).AppendRequest(nil, req, w.next)
	body, err := w.exchange(frame)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if correlation := int32(binary.BigEndian.Uint32(body)); correlation != w.next {
		return nil, fmt.Errorf("answer to request %d instead of %d", correlation, w.next)
	}
	body = body[4:]
	if resp.IsFlexible() && kmsg.Key(req.Key()) != kmsg.ApiVersions {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("header tags % x", body)
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	if n := len(resp.AppendTo(nil)); n != len(body) {
		return nil, fmt.Errorf("the answer has %d bytes, its version %d", len(body), n)
	}
	return resp, nil
}

// exchange sends a frame, length included, and returns the next frame's body.
func (w *wire) exchange(frame []byte) ([]byte, error) {
	w.conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := w.conn.Write(frame); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(w.conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 64<<20 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(w.conn, body)
	return body, err
}

// ask is wire.ask for a request that must be answered.
func ask[R kmsg.Response](t *testing.T, w *wire, version int16, req kmsg.Request) R {
	t.Helper()
	req.SetVersion(version)
	resp, err := w.ask(req)
	if err != nil {
		t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err)
	}
	return resp.(R)
}
