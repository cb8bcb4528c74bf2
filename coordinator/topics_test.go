package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/group"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// openBroker is a whole coordinator on an engine on a disk in memory.
type openBroker struct {
	*Coordinator
	t      *testing.T
	disk   *vfs.Memory
	static *config.Static
	events []string
}

func newBroker(t *testing.T, set ...string) *openBroker {
	t.Helper()
	loaded, err := config.Load(config.Sources{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	b := &openBroker{t: t, disk: vfs.NewMemory(), static: loaded.Static}
	b.start()
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *openBroker) start() {
	b.t.Helper()
	e, err := storage.Open(b.t.Context(), storage.Options{FS: b.disk, ReserveBytes: -1})
	if err != nil {
		b.t.Fatal(err)
	}
	b.Coordinator, err = Open(b.t.Context(), e, Options{Static: b.static, Volume: b.disk.Free, Events: Events{
		TopicCreated: func(c catalog.TopicCreated) {
			b.events = append(b.events, fmt.Sprintf("created %s, auto %v, asked for %d copies, dropped %v", c.Topic.Name, c.Auto, c.Clamped, c.Dropped))
		},
		TopicDeleted:    func(t *catalog.Topic) { b.events = append(b.events, "deleted "+t.Name) },
		SettingsChanged: func(s *config.Broker) { b.events = append(b.events, fmt.Sprintf("%d partitions", s.Topics.Partitions)) },
	}})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *openBroker) stop() {
	b.Coordinator.Close()
	if err := b.engine.Close(context.Background()); err != nil {
		b.t.Error(err)
	}
}

func (b *openBroker) restart() { b.t.Helper(); b.stop(); b.start() }

func (b *openBroker) create(topics ...catalog.NewTopic) []catalog.CreatedTopic {
	b.t.Helper()
	created, err := b.CreateTopics(topics, false).Wait(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return created
}

func (b *openBroker) delete(names ...string) []catalog.DeletedTopic {
	b.t.Helper()
	var refs []catalog.TopicRef
	for _, name := range names {
		refs = append(refs, catalog.TopicRef{Name: name})
	}
	deleted, err := b.DeleteTopics(refs)(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return deleted
}

// produce appends one record and waits for it.
func (b *openBroker) produce(t *catalog.Topic, partition int32) {
	b.t.Helper()
	p, err := b.Partition(t, partition)
	if err != nil {
		b.t.Fatal(err)
	}
	records := batch.NewBuilder(batch.BuilderOptions{})
	records.Add(batch.NewRecord{Timestamp: model.Timestamp(time.Now().UnixMilli()), Value: []byte("v")})
	view, err := records.Build()
	if err != nil {
		b.t.Fatal(err)
	}
	pending, err := b.engine.Append(storage.Append{Partition: p, Batch: view})
	if err == nil {
		err = pending.Wait(b.t.Context())
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func plain(name string, partitions int32) catalog.NewTopic {
	return catalog.NewTopic{Name: name, Partitions: partitions, ReplicationFactor: 1}
}

// A deleted topic's handles are dead at once, its data goes, also when the
// broker stopped before it could; the offsets committed for it are forgotten.
func TestDeletedTopicLeavesNothing(t *testing.T) {
	b := newBroker(t)
	topic := b.create(plain("t", 2), plain("kept", 1))[0].Topic
	b.produce(topic, 0)
	kept, _ := b.Catalog().Topic("kept")
	b.produce(kept, 0)
	commit := b.CommitOffsets(group.CommitOffsets{Group: "g", Caller: group.Caller{Generation: -1}, Offsets: []group.Commit{{Topic: "t", TopicID: topic.ID, Partition: 0, Offset: 1}}})
	if errs, err := commit.Wait(t.Context()); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	log, err := b.Partition(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if r := b.delete("t")[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	if err := log.Err(); !errors.Is(err, storage.ErrPartitionDeleted) {
		t.Errorf("an old handle says %v", err)
	}
	if _, err := b.Partition(topic, 0); !errors.Is(err, catalog.ErrUnknownTopic) {
		t.Errorf("a new handle says %v", err)
	}
	fetch := b.FetchOffsets(group.FetchOffsets{Group: "g"})
	if offsets, err := fetch.Wait(t.Context()); err != nil || len(offsets) > 0 {
		t.Errorf("offsets %v are left, %v", offsets, err)
	}
	b.restart()
	for _, tp := range b.engine.Known() {
		if tp.Topic == topic.ID {
			t.Errorf("data of %s is left after a restart", tp)
		}
	}
	if p, err := b.Partition(kept, 0); err != nil || p.Bounds().End != 1 {
		t.Errorf("the other topic: %v", err)
	}
}

// Data whose topic is not in the catalog is what a crash left between the fact
// of a deletion and its end. A start removes it.
func TestStartRemovesOrphans(t *testing.T) {
	b := newBroker(t)
	orphan := &catalog.Topic{ID: model.NewTopicID(), Name: "orphan", Partitions: 1}
	if _, err := b.engine.OpenPartition(orphan.Partition(0), orphan.Name, storage.PartitionConfig{}); err != nil {
		t.Fatal(err)
	}
	b.produce(orphan, 0)
	b.restart()
	if _, ok := b.engine.Partition(orphan.Partition(0)); ok {
		t.Error("the orphan has a handle")
	}
	for _, tp := range b.engine.Known() {
		if tp.Topic == orphan.ID {
			t.Error("the orphan's data is still there")
		}
	}
}

func TestAutoCreate(t *testing.T) {
	b := newBroker(t, "num.partitions=3")
	b.create(plain("old", 1))
	results, err := b.AutoCreate([]string{"new", "__new", "a/b", "old"})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []error{nil, catalog.ErrUnknownTopic, catalog.ErrInvalidTopicName, nil} {
		if !errors.Is(results[i].Err, kind) {
			t.Errorf("%d: %v, want %v", i, results[i].Err, kind)
		}
	}
	if results[0].Topic.Partitions != 3 || results[3].Topic.Partitions != 1 {
		t.Errorf("%d and %d partitions", results[0].Topic.Partitions, results[3].Topic.Partitions)
	}
}

func TestOperatorHearsOfTopicsAndSettings(t *testing.T) {
	b := newBroker(t)
	three := plain("three", 1)
	three.ReplicationFactor, three.Settings = 3, map[string]string{"message.format.version": "2.8"}
	b.create(three)
	if _, err := b.AutoCreate([]string{"auto"})(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.delete("auto")
	four := "4"
	change := catalog.ConfigChange{Type: config.ResourceBroker, Changes: []catalog.Alteration{{Op: catalog.OpSet, Name: "num.partitions", Value: &four}}}
	if errs, err := b.AlterConfigs([]catalog.ConfigChange{change}, false).Wait(t.Context()); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	want := []string{
		"created three, auto false, asked for 3 copies, dropped [message.format.version]",
		"created auto, auto true, asked for 0 copies, dropped []",
		"deleted auto",
		"4 partitions",
	}
	if diff := cmp.Diff(want, b.events); diff != "" {
		t.Error(diff)
	}
}

// A broker setting changed at run time reaches every topic's log that does not
// set its own.
func TestBrokerSettingReachesLogs(t *testing.T) {
	b := newBroker(t)
	own := plain("own", 1)
	own.Settings = map[string]string{"segment.bytes": "5000000"}
	created := b.create(plain("plain", 1), own)
	value := "2000000"
	change := catalog.ConfigChange{Type: config.ResourceBroker, Name: "1", Changes: []catalog.Alteration{{Op: catalog.OpSet, Name: "log.segment.bytes", Value: &value}}}
	if errs, err := b.AlterConfigs([]catalog.ConfigChange{change}, false).Wait(t.Context()); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	check := func(when string) {
		for i, want := range []int64{2000000, 5000000} {
			p, err := b.Partition(created[i].Topic, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Config().SegmentBytes; got != want {
				t.Errorf("%s: segments of %s have %d bytes, want %d", when, p.Name(), got, want)
			}
		}
	}
	check("at once")
	b.restart()
	check("after a restart")
}

// Producer ids go on behind the last block, whatever a crash left unused.
func TestProducerIDsGrowOverRestarts(t *testing.T) {
	b := newBroker(t)
	last := model.NoProducerID
	for range 3 {
		for range 2 {
			id, err := b.ids.get(t.Context())
			if err != nil || id <= last {
				t.Fatalf("id %d after %d, %v", id, last, err)
			}
			last = id
		}
		b.restart()
	}
}

// What the log refuses has not happened, not even as a handle.
func TestRefusedTopicLeavesNoHandle(t *testing.T) {
	b := newBroker(t)
	if err := b.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.CreateTopics([]catalog.NewTopic{plain("t", 1)}, false).Wait(t.Context()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("error is %v", err)
	}
	if _, ok := b.Catalog().Topic("t"); ok {
		t.Error("the topic exists")
	}
}

func TestVolume(t *testing.T) {
	b := newBroker(t)
	b.disk.SetTotal(1 << 30)
	if free, total := b.Volume(); total != 1<<30 || free <= 0 || free > total {
		t.Errorf("%d of %d", free, total)
	}
	b.volume = nil
	if free, total := b.Volume(); free != -1 || total != -1 {
		t.Errorf("%d of %d, want unknown", free, total)
	}
}
