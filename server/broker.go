package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/server/admin"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/kafka"
	"github.com/perigeemq/perigee/server/metrics"
	"github.com/perigeemq/perigee/server/quota"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/vfs"
)

// Options configure a Broker.
type Options struct {
	// Config is what config.Load returned.
	Config *config.Loaded
	// Log gets the broker's log lines. The zero Logger drops them.
	Log zerolog.Logger
	// Logs, when set, is used instead of Log, and follows the settings.
	Logs *Logs
	// Reload reads the settings anew at SIGHUP. nil: they cannot be.
	Reload func() (*config.Loaded, error)
	// FS is where data lives. nil: the disk, at Config's data directory.
	FS vfs.FS
	// Kafka, when set, is listened on instead of Config's Kafka listeners: for
	// brokers inside another program, which dial it.
	Kafka *transport.MemoryListener
	// MoonMQ is what the MoonMQ listener knows beside Config.
	MoonMQ MoonMQ
	// Build is shown by metrics and at start.
	Build metrics.Build
}

// Broker is one broker. Start and Close may each be called once, in this order;
// Close also after a failed Start.
type Broker struct {
	options Options
	config  *config.Broker
	static  *config.Static // as last read
	log     zerolog.Logger
	repeats repeats

	failed chan error // capacity 1
	health health
	bound  bool
	// supervised: the process is this broker, and tells systemd about itself.
	supervised bool
	started    time.Time
	closing    sync.Once
	closed     error

	engine      *storage.Engine
	coordinator *coordinator.Coordinator
	memory      *quota.Memory
	kafka       *kafka.FrontEnd
	sockets     *transport.Server
	listeners   []*transport.Listener
	identities  map[string]*identity // of those listeners that speak TLS, by name
	moonmq      *moonSide            // nil when it is off
	admin       *admin.Server
	disk        *vfs.Disk // nil when Options.FS is set
	volume      func() (free, total int64, err error)

	requests  metrics.Kafka
	counts    counts
	lagReader lagReader
}

// New returns a broker that does nothing yet.
func New(o Options) *Broker {
	b := &Broker{options: o, config: o.Config.Broker, static: o.Config.Static, log: o.Log, failed: make(chan error, 1), lagReader: make(lagReader, 1)}
	if o.Logs != nil {
		b.log = o.Logs.Logger
	}
	b.health.enter(statusStarting, "starting")
	return b
}

// Failed delivers the error that makes it impossible to go on, at most once.
// The owner closes the broker and exits with a failure.
func (b *Broker) Failed() <-chan error { return b.failed }

func (b *Broker) fail(err error) {
	b.health.enter(statusFailed, err.Error())
	select {
	case b.failed <- err:
	default: // the first one counts
	}
}

// Start brings the broker up; when it returns nil, clients are served. ctx ends
// a long recovery early. After an error, call Close.
func (b *Broker) Start(ctx context.Context) error {
	began := time.Now()
	if err := b.Listen(); err != nil {
		return err
	}
	b.sayHello()
	if b.admin != nil {
		b.admin.Serve()
	}
	defer b.reportStart()()
	b.health.enter(statusStarting, "recovering the data directory")
	if err := b.openEngine(ctx); err != nil {
		return err
	}
	b.health.enter(statusStarting, "reading the catalog, groups and transactions")
	if err := b.openCoordinator(ctx); err != nil {
		return err
	}
	b.openFrontEnds()
	b.apply(b.coordinator.Catalog().Broker())
	b.openMoonMQ()
	b.sockets.Serve()
	b.started = time.Now()
	b.health.enter(statusReady, "")
	b.sayReady(time.Since(began))
	return nil
}

// Listen takes every port: clients that connect from now on wait in the
// system's queue until Start is done, instead of being refused. Start calls it;
// calling it earlier only shortens the time in which a restarting broker is not
// there at all. After an error, call Close.
func (b *Broker) Listen() error {
	if b.bound {
		return nil
	}
	b.bound = true
	return b.bind()
}

// bind takes every port.
func (b *Broker) bind() error {
	b.memory = quota.NewMemory(inFlightBytes(b.config.Network))
	b.sockets = transport.NewServer(b.transportOptions())
	if b.options.Kafka != nil {
		address := b.options.Kafka.Addr().String()
		l := &transport.Listener{Name: "MEMORY", Bind: address}
		b.listeners = append(b.listeners, l)
		if err := b.sockets.ListenOn(l, b.options.Kafka); err != nil {
			return err
		}
	} else if err := b.bindKafka(); err != nil {
		return err
	}
	if err := b.bindMoonMQ(); err != nil {
		return err
	}
	return b.bindAdmin()
}

func (b *Broker) bindKafka() error {
	for _, c := range b.config.Kafka {
		l := &transport.Listener{Name: c.Name, Bind: c.Address(), Advertised: c.Advertised()}
		if c.TLS {
			if err := b.useTLS(l); err != nil {
				return fmt.Errorf("listener %s: %w", l.Name, err)
			}
		}
		if err := b.sockets.Listen(l); err != nil {
			return err
		}
		b.listeners = append(b.listeners, l)
	}
	return nil
}

func (b *Broker) bindAdmin() error {
	if b.config.HTTP == nil {
		return nil
	}
	collector := &metrics.Collector{
		Snapshot:      b.snapshot,
		Kafka:         &b.requests,
		Flushes:       &b.counts.flushes,
		API:           kafka.APIName,
		MaxSeries:     b.config.Metrics.MaxSeries,
		KafkaExporter: b.config.Metrics.KafkaExporter,
		JMX:           b.config.Metrics.JMX,
	}
	collectors := []prometheus.Collector{collector}
	if b.moonmq != nil {
		collectors = append(collectors, b.moonmq.metrics, moonGauges{b})
	}
	var err error
	b.admin, err = admin.Listen(admin.Options{Address: b.config.HTTP.Address(), Health: b.healthForAdmin, Collectors: collectors})
	if err == nil {
		b.deadLetterRoutes(b.admin)
	}
	return err
}

// inFlightBytes is the memory for requests on all connections. By default it
// holds five of the largest, which is what one idempotent producer may have in
// flight.
func inFlightBytes(n config.Network) int64 {
	if n.InFlightBytes > 0 {
		return max(n.InFlightBytes, int64(n.RequestMaxBytes))
	}
	return 5 * int64(n.RequestMaxBytes)
}

func (b *Broker) transportOptions() transport.Options {
	n := b.config.Network
	o := transport.Options{
		MaxFrameBytes: int32(min(n.RequestMaxBytes, 1<<31-1)),
		Memory:        b.memory,
		IdleTimeout:   n.MaxIdle,
		Events:        b.socketEvents(),
	}
	if b.config.HTTP != nil {
		o.HTTPHint = fmt.Sprintf("Metrics and health are at http://%s/.", b.config.HTTP.Address())
	}
	return o
}

// openEngine recovers the data directory.
func (b *Broker) openEngine(ctx context.Context) error {
	fs := b.options.FS
	if fs == nil {
		disk, err := vfs.OpenDisk(b.config.DataDir)
		if err != nil {
			return fmt.Errorf("open data directory %s: %w", b.dataDir(), err)
		}
		b.disk, fs = disk, disk
	}
	b.volume = fs.Free
	s := b.config.Storage
	o := storage.Options{
		FS:                     fs,
		SyncDelay:              s.SyncDelay,
		JournalFileBytes:       s.JournalFileBytes,
		JournalBytes:           s.JournalBytes,
		ReferenceThreshold:     s.ReferenceThreshold,
		ReserveBytes:           s.ReserveBytes,
		Workers:                s.Workers,
		RetentionCheckInterval: s.RetentionInterval,
		CleanerBackoff:         s.CleanerBackoff,
		CleanerMemoryBytes:     s.CleanerMemoryBytes,
		ProducerExpiry:         s.ProducerExpiry,
		ProducerExpiryCheck:    s.ProducerExpiryCheck,
		Repair:                 s.Repair,
		Events:                 b.storageEvents(),
	}
	if !s.Fsync {
		o.Durability = storage.OS
	}
	if s.ReserveBytes == 0 {
		o.ReserveBytes = -1 // to the engine 0 is its default
	}
	engine, err := storage.Open(ctx, o)
	if err != nil {
		return b.explain(err)
	}
	b.engine = engine
	return nil
}

// explain says about an engine that did not open, or topics of its own that cannot be
// read, what an operator can do.
func (b *Broker) explain(err error) error {
	dir := b.dataDir()
	if locked, ok := errors.AsType[*vfs.LockedError](err); ok {
		holder := "another process"
		if locked.Holder != "" {
			holder = "the process with pid " + locked.Holder
		}
		return fmt.Errorf("data directory %s is in use by %s: %w", dir, holder, err)
	}
	if _, ok := errors.AsType[*storage.CorruptionError](err); ok && !b.config.Storage.Repair {
		return fmt.Errorf("open data directory %s: %w; what can be read is kept, and the rest given up, with --repair", dir, err)
	}
	return fmt.Errorf("open data directory %s: %w", dir, err)
}

// dataDir is the data directory as a path that means the same everywhere.
func (b *Broker) dataDir() string {
	if abs, err := filepath.Abs(b.config.DataDir); err == nil {
		return abs
	}
	return b.config.DataDir
}

func (b *Broker) openCoordinator(ctx context.Context) error {
	c, err := coordinator.Open(ctx, b.engine, coordinator.Options{
		Static: b.options.Config.Static,
		Broker: b.config,
		Events: b.coordinatorEvents(),
		Volume: b.volume,
	})
	if err != nil {
		return b.explain(err)
	}
	b.coordinator = c
	return nil
}

func (b *Broker) openFrontEnds() {
	b.kafka = kafka.New(kafka.Options{Coordinator: b.coordinator, Config: b.config, Log: b.log, Metrics: &b.requests})
	for _, l := range b.listeners {
		l.Protocol = b.kafka
	}
}

// KafkaAddr returns the bound address of a Kafka listener by its name, or nil.
func (b *Broker) KafkaAddr(name string) net.Addr {
	for _, l := range b.listeners {
		if l.Name == name {
			return l.Addr()
		}
	}
	return nil
}

// HTTPAddr returns the bound address of the HTTP listener, or nil.
func (b *Broker) HTTPAddr() net.Addr {
	if b.admin == nil {
		return nil
	}
	return b.admin.Addr()
}

// drainTime bounds how long answers that were promised may take at a stop.
// Appends need milliseconds; what takes longer waits for other clients, and
// those are being stopped too.
const drainTime = 3 * time.Second

// Close stops the broker: it drains, syncs, and leaves the clean-shutdown mark.
// When ctx ends first, what is left is cut; everything acknowledged is safe
// either way. Calling it again returns the first result.
func (b *Broker) Close(ctx context.Context) error {
	b.closing.Do(func() { b.closed = b.close(ctx) })
	return b.closed
}

func (b *Broker) close(ctx context.Context) error {
	b.health.enter(statusStopping, "shutting down")
	var problems []error
	if b.sockets != nil {
		drain, cancel := context.WithTimeout(ctx, drainTime)
		b.closeMoonMQ(drain)
		if err := b.sockets.Shutdown(drain); err != nil {
			b.log.Warn().Msg("connections were cut that still waited for an answer")
		}
		cancel()
	}
	if b.coordinator != nil {
		b.coordinator.Close()
	}
	if b.engine != nil {
		problems = append(problems, b.engine.Close(ctx))
	}
	if b.admin != nil {
		b.admin.Close(ctx)
	}
	if b.disk != nil {
		problems = append(problems, b.disk.Close())
	}
	return errors.Join(problems...)
}
