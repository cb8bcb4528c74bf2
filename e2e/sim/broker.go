package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/kafka"
	"github.com/perigeemq/perigee/server/metrics"
	"github.com/perigeemq/perigee/server/moonmq"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// broker is everything of a broker but the process and its log.
type broker struct {
	engine      *storage.Engine
	coordinator *coordinator.Coordinator
	moon        *moonmq.FrontEnd
	sockets     *transport.Server

	dialKafka, dialMoon *transport.MemoryListener
}

// settings make timers and cleaning frequent enough to be met.
var settings = sync.OnceValue(func() *config.Loaded {
	loaded, err := config.Load(config.Sources{Set: []string{
		"listeners=PLAINTEXT://127.0.0.1:0", "moonmq.listen=off", "perigee.http.listen=off",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
	}})
	if err != nil {
		panic(err)
	}
	return loaded
})

// reserve is the free space the engine keeps.
const reserve = 256 << 10

// startBroker opens what is on the disk and serves it. broken is called when the
// broker would end its process, limping when it goes on without a partition until
// somebody starts it again.
func startBroker(ctx context.Context, fs vfs.FS, broken, limping func()) (b *broker, err error) {
	b = &broker{}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	b.engine, err = storage.Open(ctx, storage.Options{
		FS: fs, JournalFileBytes: 64 << 10, JournalBytes: 512 << 10, ReserveBytes: reserve,
		CleanerBackoff: 200 * time.Millisecond, RetentionCheckInterval: time.Second,
		Events: storage.Events{
			Poisoned:         func(error) { broken() },
			PartitionOffline: func(model.TopicPartition, error) { limping() },
		},
	})
	if err != nil {
		return b, err
	}
	s := settings()
	if b.coordinator, err = coordinator.Open(ctx, b.engine, coordinator.Options{Static: s.Static, Broker: s.Broker}); err != nil {
		return b, err
	}
	b.sockets = transport.NewServer(transport.Options{})
	front := kafka.New(kafka.Options{Coordinator: b.coordinator, Config: s.Broker, Log: zerolog.Nop(), Metrics: new(metrics.Kafka)})
	b.moon = moonmq.New(moonmq.Options{
		Coordinator: b.coordinator, Access: access.NewDirectory(access.Static{}, b.coordinator.Catalog),
		Limits: s.Broker.MoonMQLimits, DeadLetters: s.Broker.DeadLetters, Log: zerolog.Nop(),
	})
	b.dialKafka, b.dialMoon = transport.ListenMemory("memory:9092"), transport.ListenMemory("memory:9192")
	err = errors.Join(
		b.sockets.ListenOn(&transport.Listener{Name: "KAFKA", Protocol: front}, b.dialKafka),
		b.sockets.ListenOn(&transport.Listener{Name: "MOONMQ", Protocol: b.moon}, b.dialMoon),
	)
	b.sockets.Serve()
	return b, err
}

// stop ends every goroutine. What a broken disk makes of it does not matter.
func (b *broker) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nothing is waited for: the power is off
	if b.sockets != nil {
		b.sockets.Shutdown(ctx)
	}
	if b.moon != nil {
		b.moon.Close()
	}
	if b.coordinator != nil {
		b.coordinator.Close()
	}
	if b.engine != nil {
		b.engine.Close(context.Background())
	}
}
