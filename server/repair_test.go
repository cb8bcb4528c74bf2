package server

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/vfs"
)

// A damaged record of the catalog keeps the broker from starting; it says how it can.
// The topics of the other records are there then, and no data is deleted.
func TestADamagedCatalogCanBeRepaired(t *testing.T) {
	fs := vfs.NewMemory()
	b, _ := run(t, fs)
	for _, topic := range []string{"lost", "kept"} {
		createTopic(t, b, topic)
	}
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	catalog, at := findInFile(t, fs, "topics", "lost")
	if err := flipByte(fs, catalog, at); err != nil {
		t.Fatal(err)
	}
	broken := New(Options{Config: load(t), FS: fs, Log: zerolog.Nop()})
	err := broken.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--repair") {
		t.Fatalf("start: %v", err)
	}
	if err := broken.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	b, _ = run(t, fs, "perigee.repair=true")
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), clientOf(t, b))
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, topic := range resp.Topics {
		if !topic.IsInternal {
			left = append(left, *topic.Topic)
		}
	}
	if !slices.Equal(left, []string{"kept"}) {
		t.Errorf("topics %q", left)
	}
}

func clientOf(t *testing.T, b *Broker) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.KafkaAddr("PLAINTEXT").String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func createTopic(t *testing.T, b *Broker, name string) {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), clientOf(t, b))
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("create topic: %+v, %v", resp, err)
	}
}

// findInFile looks for a text in the files below a directory.
func findInFile(t *testing.T, fs vfs.FS, dir, text string) (name string, at int64) {
	t.Helper()
	infos, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		path := dir + "/" + i.Name
		if i.Dir {
			if name, at = findInFile(t, fs, path, text); name != "" {
				return name, at
			}
			continue
		}
		content, err := vfs.ReadFile(fs, path, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Index(string(content), text); n >= 0 {
			return path, int64(n)
		}
	}
	return "", 0
}

func flipByte(fs vfs.FS, name string, at int64) error {
	f, err := fs.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] ^= 4
	_, err = f.WriteAt(b[:], at)
	return err
}
