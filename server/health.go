package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigeemq/perigee/server/admin"
	"github.com/perigeemq/perigee/storage"
)

// status is what a broker is doing, in one word.
type status string

const (
	statusStarting status = "starting"
	statusReady    status = "ready"
	statusStopping status = "stopping"
	statusFailed   status = "failed"
)

// health is what a broker can say about itself at any time, from any goroutine.
type health struct {
	now      atomic.Pointer[phase]
	progress atomic.Pointer[storage.RecoveryProgress] // of the journal; nil before and after
}

type phase struct {
	status status
	reason string // why clients are not served
}

func (h *health) enter(s status, reason string) {
	h.progress.Store(nil)
	h.now.Store(&phase{s, reason})
}

// progressed is an event of the engine while it recovers.
func (h *health) progressed(p storage.RecoveryProgress) { h.progress.Store(&p) }

// NotReadyError says why a broker does not serve clients.
type NotReadyError struct{ Reason string }

func (e *NotReadyError) Error() string { return e.Reason }

// Ready returns nil while clients are served, else a *NotReadyError.
func (b *Broker) Ready() error {
	if p := b.health.now.Load(); p.status != statusReady {
		return &NotReadyError{p.reason}
	}
	return nil
}

// healthForAdmin is what /readyz answers.
func (b *Broker) healthForAdmin() admin.Health {
	p := b.health.now.Load()
	h := admin.Health{Ready: p.status == statusReady, Status: string(p.status), Reason: p.reason}
	if r := b.health.progress.Load(); r != nil {
		h.Progress = &admin.Progress{JournalBytes: r.JournalBytes, JournalTotal: r.JournalTotal, Entries: r.Entries}
	}
	return h
}

// A start that takes long says so at this interval, and asks the supervisor for
// more time than until it will ask again.
const (
	reportEvery = 5 * time.Second
	moreTime    = 30 * time.Second
)

// reportStart reports how far a start is until the returned function is called.
// Its goroutine ends then.
func (b *Broker) reportStart() (done func()) {
	stop := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		for tick := time.NewTicker(reportEvery); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				b.reportPhase()
			}
		}
	})
	return func() { close(stop); reporter.Wait() }
}

func (b *Broker) reportPhase() {
	e := b.log.Info()
	if p := b.health.progress.Load(); p != nil {
		e = e.Int64("journal_bytes", p.JournalBytes).Int64("journal_total", p.JournalTotal).Int64("entries", p.Entries)
	}
	e.Msg(b.health.now.Load().reason)
	b.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", moreTime.Microseconds()))
}
