package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Run starts a broker and keeps it until ctx ends, then stops it in good order
// and returns nil. It returns an error when the start fails, the stop is not
// clean, or the broker cannot go on (a failed sync). SIGUSR1 writes the stacks of
// all goroutines to stderr; SIGHUP opens the log file anew and takes over the
// settings that can change, see Options.Reload.
//
// The caller ends ctx at the first SIGTERM or SIGINT and leaves the second to
// the system.
func Run(ctx context.Context, o Options) error {
	defer followLoad()()
	b := New(o)
	b.supervised = true
	// The ports first: everything else can wait while clients are in their queues.
	if err := b.Listen(); err != nil {
		return errors.Join(err, b.stop())
	}
	defer b.handleSignals(ctx)()
	limitMemory()
	switch err := b.Start(ctx); {
	case err != nil && ctx.Err() != nil:
		b.log.Info().Msg("stopped before the start was done")
		return b.stop()
	case err != nil:
		return errors.Join(err, b.stop())
	}
	defer time.AfterFunc(afterStart, func() {
		if err := dropStartPages(); err != nil {
			b.log.Debug().Err(err).Msg("drop pages that only the start needed")
		}
	}).Stop()
	b.notify(daemon.SdNotifyReady)
	alive, stopAlive := watchdog()
	defer stopAlive()
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		select {
		case <-daily.C:
			b.warnOfExpiry()
		case <-alive:
			b.notify(daemon.SdNotifyWatchdog)
		case err := <-b.Failed():
			return errors.Join(err, b.stop())
		case <-ctx.Done():
			b.log.Info().Msg("stopping")
			b.notify(daemon.SdNotifyStopping)
			if err := b.stop(); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
			b.log.Info().Msg("stopped")
			return nil
		}
	}
}

// afterStart is when memory that only the start needed is given back: late enough not
// to be in the way of the first requests.
const afterStart = 500 * time.Millisecond

// handleSignals starts the goroutine that takes the signals which do not end the
// broker; it ends when the returned function is called.
func (b *Broker) handleSignals(ctx context.Context) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGHUP)
	var handler sync.WaitGroup
	handler.Go(func() {
		for s := range signals {
			if s == syscall.SIGUSR1 {
				b.dumpStacks()
			} else {
				b.reload(ctx)
			}
		}
	})
	return func() {
		signal.Stop(signals)
		close(signals)
		handler.Wait()
	}
}

func (b *Broker) dumpStacks() {
	if err := pprof.Lookup("goroutine").WriteTo(os.Stderr, 2); err != nil {
		b.log.Warn().Err(err).Msg("write stacks")
	}
}

// limitMemory tells the collector about a container's memory limit, so that it
// works harder before the kernel ends the process. GOMEMLIMIT wins.
func limitMemory() {
	// Without a limit there is nothing to tell, which the package calls an error.
	_, _ = memlimit.Set()
}

func (b *Broker) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), b.config.ShutdownTimeout)
	defer cancel()
	return b.Close(ctx)
}

// watchdog ticks as often as systemd wants to hear from us; without WatchdogSec
// in the unit, never.
func watchdog() (tick <-chan time.Time, stop func()) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil || within <= 0 {
		return nil, func() {}
	}
	t := time.NewTicker(within / 2)
	return t.C, t.Stop
}

// notify tells systemd, if that started us.
func (b *Broker) notify(state string) {
	if !b.supervised {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		b.log.Warn().Err(err).Msg("notify systemd")
	}
}
