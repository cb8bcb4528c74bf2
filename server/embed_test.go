package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeemq/perigee/server"
	"github.com/perigeemq/perigee/storage/vfs"
)

func embed(t *testing.T, e server.Embedded) *server.Broker {
	t.Helper()
	b, err := server.Start(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func client(t *testing.T, b *server.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Bootstrap()), kgo.Dialer(b.Dial)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Broker and client in a bubble of fake time: hours of retention, and the
// timeout of a group's member, take no time at all.
func TestABrokerInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		b, err := server.Start(ctx, server.Embedded{})
		if err != nil {
			t.Fatal(err)
		}
		c := client(t, b)
		a := kadm.NewClient(c)
		hour := "3600000"
		if r, err := a.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": &hour, "segment.ms": &hour}, "orders"); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("old")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.Sleep(3 * time.Hour)
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("new")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // for the retention to be checked
		starts, err := a.ListStartOffsets(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := starts.Lookup("orders", 0); o.Offset != 1 {
			t.Errorf("the log starts at %d after %v, want 1", o.Offset, time.Since(began))
		}
		c.Close()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A second broker on what the first one left in memory.
func TestEmbeddedBrokersShareData(t *testing.T) {
	disk := vfs.NewMemory()
	first, err := server.Start(t.Context(), server.Embedded{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, first, kgo.AllowAutoTopicCreation())
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("kept")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := client(t, embed(t, server.Embedded{FS: disk}), kgo.ConsumeTopics("orders"))
	defer second.Close()
	if got := second.PollFetches(t.Context()).Records(); len(got) != 1 || string(got[0].Value) != "kept" {
		t.Errorf("%d records", len(got))
	}
}

func TestEmbeddedOnDiskAndSocket(t *testing.T) {
	dir := t.TempDir()
	b := embed(t, server.Embedded{DataDir: dir + "/data", Listen: "127.0.0.1:0"})
	c := client(t, b)
	defer c.Close()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := server.Start(t.Context(), server.Embedded{DataDir: dir + "/data"}); err == nil || !strings.Contains(err.Error(), "is in use by the process with pid") {
		t.Errorf("a second broker on the directory: %v", err)
	}
}

func TestWrongSettingsOfAnEmbeddedBroker(t *testing.T) {
	_, err := server.Start(t.Context(), server.Embedded{Settings: map[string]string{"num.partitons": "3", "log.retention.ms": "soon"}})
	if err == nil || !strings.Contains(err.Error(), `did you mean "num.partitions"?`) || !strings.Contains(err.Error(), "log.retention.ms") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := server.Start(ctx, server.Embedded{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a start whose context has ended: %v", err)
	}
}
