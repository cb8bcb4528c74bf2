package server

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/metrics"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/model"
)

// counts are what the engine's events add up to, for metrics.
type counts struct {
	checkpoints, compactions, rolled, dropped, expired atomic.Int64

	full       atomic.Bool
	partitions atomic.Int64 // that recovery found
	checkpoint atomic.Int64 // when the last one was taken, Unix nanoseconds; 0: none since the start
	flushes    metrics.Histogram
}

// sayHello is the first of the lines at start. sayReady is the last.
func (b *Broker) sayHello() {
	b.log.Info().Str("version", b.options.Build.Version).Str("commit", b.options.Build.Commit).Str("go", b.options.Build.Go).Msg("perigee")
	for _, warning := range b.options.Config.Warnings {
		b.log.Warn().Msg(warning)
	}
	if !b.config.Storage.Fsync {
		b.log.Warn().Msg("durability is os: acknowledged records survive a kill but not a power loss")
	}
	if files, few := OpenFileLimit(); few {
		b.log.Warn().Uint64("open_files", files).Msg("the limit of open files is low: raise it with ulimit -n")
	}
}

// fewFiles is a limit of open files below which a broker with some hundred
// clients and partitions will feel it.
const fewFiles = 4096

// OpenFileLimit returns how many files the process may open, 0 if it cannot be
// told, and whether that is few. The Go runtime has raised the soft limit to the
// hard one already.
func OpenFileLimit() (limit uint64, few bool) {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0, false
	}
	return l.Cur, l.Cur < fewFiles
}

func (b *Broker) sayReady(took time.Duration) {
	id := b.engine.Identity()
	b.log.Info().Str("data_dir", b.dataDir()).Str("cluster_id", id.ClusterID).Int32("incarnation", int32(id.Incarnation)).
		Bool("clean", id.CleanStart).Int64("partitions", b.counts.partitions.Load()).Msg("storage")
	for _, l := range b.listeners {
		b.log.Info().Str("listener", l.Name).Str("protocol", "kafka").Str("bound", l.Addr().String()).Str("advertised", advertised(l)).
			Bool("tls", l.TLS != nil).Msg("listening")
	}
	b.warnOfExpiry()
	if b.moonmq != nil {
		b.log.Info().Str("protocol", "moonmq").Str("bound", b.MoonMQAddr().String()).Bool("tls", b.moonmq.listener.TLS != nil).Msg("listening")
	}
	if b.admin != nil {
		b.log.Info().Str("protocol", "http").Str("bound", b.admin.Addr().String()).Msg("listening")
	}
	b.log.Info().Int64("ms", took.Milliseconds()).Msg("ready")
}

// advertised is what clients are told to connect to, as far as it is the same for
// all of them.
func advertised(l *transport.Listener) string {
	if l.Advertised != "" {
		return l.Advertised
	}
	host, _, err := net.SplitHostPort(l.Bind)
	if ip, notIP := netip.ParseAddr(host); err != nil || host == "" || notIP == nil && ip.IsUnspecified() {
		return "the address a client came by"
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Bind
	}
	return net.JoinHostPort(host, port)
}

// storageEvents turns what the engine reports into log lines and counts.
func (b *Broker) storageEvents() storage.Events {
	return storage.Events{
		Recovery: b.health.progressed,
		Flushed:  func(f storage.Flushed) { b.counts.flushes.Observe(f.Took) },
		Recovered: func(r storage.RecoveryResult) {
			b.counts.partitions.Store(int64(r.Partitions))
			if r.Clean {
				return
			}
			if r.Damage != "" {
				b.log.Warn().Str("damage", r.Damage).Msg("journal repaired: what stood behind the damage is lost")
			}
			if r.Tail != "" || r.CutBytes > 0 {
				b.log.Warn().Str("journal", r.Tail).Int64("cut_bytes", r.CutBytes).Msg("torn tail cut off: it was written and never acknowledged")
			}
			b.log.Info().Int64("entries", r.Entries).Int64("journal_bytes", r.JournalBytes).Int64("ms", r.Took.Milliseconds()).
				Msg("recovered after an unclean stop")
		},
		Poisoned: func(err error) {
			b.log.Error().Err(err).Msg("a sync failed: nothing more is acknowledged, the broker stops")
			b.fail(err)
		},
		StorageFull: func(free int64) {
			b.counts.full.Store(true)
			b.log.Error().Int64("free_bytes", free).Msg("storage full: produce is refused until there is room")
		},
		StorageFree: func(free int64) {
			b.counts.full.Store(false)
			b.log.Info().Int64("free_bytes", free).Msg("storage has room again")
		},
		PartitionOffline: func(tp model.TopicPartition, err error) {
			b.log.Error().Stringer("partition", tp).Err(err).Msg("partition offline")
		},
		CheckpointTaken: func(c storage.CheckpointInfo) {
			b.counts.checkpoints.Add(1)
			b.counts.checkpoint.Store(time.Now().UnixNano())
			b.log.Debug().Uint64("job", c.Job).Int("partitions", c.Partitions).Int("synced", c.Synced).Int64("ms", c.Took.Milliseconds()).Msg("checkpoint")
		},
		SegmentRolled: func(model.TopicPartition, model.Offset) { b.counts.rolled.Add(1) },
		SegmentsDropped: func(d storage.SegmentsDropped) {
			b.counts.dropped.Add(int64(d.Segments))
			b.log.Info().Uint64("job", d.Job).Stringer("partition", d.Partition).Str("reason", d.Reason).Int("segments", d.Segments).
				Int64("bytes", d.Bytes).Int64("start", int64(d.Start)).Msg("segments dropped")
		},
		Compacted: func(c storage.Compacted) {
			b.counts.compactions.Add(1)
			b.log.Debug().Uint64("job", c.Job).Stringer("partition", c.Partition).Int64("bytes_before", c.BytesBefore).
				Int64("bytes_after", c.BytesAfter).Int64("records_removed", c.RecordsRemoved).Msg("compacted")
		},
		BackgroundError: func(job uint64, what string, err error) {
			b.log.Error().Uint64("job", job).Str("work", what).Err(err).Msg("background work failed, it is tried again")
		},
		ProducersExpired: func(_ model.TopicPartition, n int) { b.counts.expired.Add(int64(n)) },
		PartitionRecovered: func(tp model.TopicPartition, lost string) {
			b.log.Warn().Stringer("partition", tp).Str("lost", lost).Msg("partition repaired")
		},
	}
}

// coordinatorEvents turns what the coordinator reports into log lines.
func (b *Broker) coordinatorEvents() coordinator.Events {
	return coordinator.Events{
		TopicCreated: func(c catalog.TopicCreated) {
			b.log.Info().Str("topic", c.Topic.Name).Int32("partitions", c.Topic.Partitions).Bool("auto", c.Auto).Msg("topic created")
			if c.Clamped > 0 {
				b.log.Warn().Str("topic", c.Topic.Name).Int16("asked", c.Clamped).Msg("replication factor stored as 1: there is one broker")
			}
			if len(c.Dropped) > 0 {
				b.log.Warn().Str("topic", c.Topic.Name).Strs("settings", c.Dropped).Msg("settings left out that Kafka 4 no longer has")
			}
		},
		TopicDeleted: func(t *catalog.Topic) { b.log.Info().Str("topic", t.Name).Msg("topic deleted") },
		TransactionHangs: func(h coordinator.HangingTransaction) {
			b.log.Warn().Str("topic", h.Partition.Name()).Int32("partition", h.Partition.ID().Partition).Int64("producer", int64(h.Producer.ID)).
				Int64("offset", int64(h.Start)).Msg("a transaction hangs: no transactional id knows its producer; see perigee txn find-hanging")
		},
		SettingsChanged: func(c *config.Broker) {
			b.log.Info().Msg("broker settings changed")
			b.apply(c)
		},
	}
}

// socketEvents turns what happens to connections into log lines.
func (b *Broker) socketEvents() transport.Events {
	return transport.Events{
		Closed: func(c *transport.Conn, reason error) {
			e := b.log.Debug()
			if worthSaying(reason) {
				e = b.repeats.rarely("closed", b.log.Warn())
			}
			e.Uint64("conn", c.ID()).Str("listener", c.Listener().Name).Stringer("remote", c.RemoteAddr()).AnErr("reason", reason).Msg("connection closed")
		},
		Refused: func(l *transport.Listener, remote net.Addr, reason string) {
			b.repeats.rarely("refused", b.log.Warn()).Str("listener", l.Name).Stringer("remote", remote).Str("limit", reason).Msg("connection refused")
		},
		Foreign: func(c *transport.Conn, spoken string) {
			b.repeats.rarely("foreign "+spoken, b.log.Warn()).Str("listener", c.Listener().Name).Stringer("remote", c.RemoteAddr()).Str("spoken", spoken).
				Msgf("client speaks %s on the port for %s", spoken, c.Listener().Protocol.Name())
		},
		Accept: func(l *transport.Listener, err error, retryIn time.Duration) {
			b.repeats.rarely("accept", b.log.Error()).Str("listener", l.Name).Err(err).Dur("retry_in", retryIn).Msg("accept")
		},
		Crashed: func(c *transport.Conn, panicked any, stack []byte) {
			b.log.Error().Uint64("conn", c.ID()).Interface("panic", panicked).Bytes("stack", stack).Msg("BUG: a request crashed its connection")
		},
	}
}

// worthSaying leaves out what is ordinary: clients that leave, also in the middle
// of something, idle ones, and our own shutdown.
func worthSaying(reason error) bool {
	var network net.Error
	return reason != nil && !errors.Is(reason, net.ErrClosed) && !errors.Is(reason, transport.ErrShutdown) &&
		!errors.Is(reason, io.EOF) && !errors.Is(reason, io.ErrUnexpectedEOF) && !errors.Is(reason, syscall.ECONNRESET) &&
		!errors.Is(reason, syscall.EPIPE) && !errors.As(reason, &network)
}
