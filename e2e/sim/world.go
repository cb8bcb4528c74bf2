package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing/synctest"
	"time"

	"github.com/perigeemq/perigee/e2e/workload"
	"github.com/perigeemq/perigee/storage/vfs"
)

// World is one simulated computer with a broker on it, and whose turn it is. It
// lives inside a synctest bubble. Its driver calls the methods; those of
// workload.World are the actors'.
type World struct {
	rng    *rand.Rand
	disk   *vfs.Memory
	fault  *vfs.Fault
	found  *vfs.Memory // what a cut left; nil: what the disk has when the broker has stopped
	broker *broker
	report func(format string, args ...any)

	// onChange, if there is one, is called after every operation that changed the
	// disk, on whatever goroutine did it.
	onChange atomic.Pointer[func()]

	clock atomic.Int64
	over  atomic.Bool
	// off: the power is off. Nothing the broker still says arrives.
	off     atomic.Bool
	exiting atomic.Bool  // the broker cannot go on
	limping atomic.Bool  // it goes on, but not with all of its partitions
	cutIn   atomic.Int64 // changes of the disk until the power goes; negative for never

	mu struct {
		sync.Mutex
		waiting map[int]chan struct{} // actors that want a turn
		holder  int                   // who has it
		conns   []net.Conn
	}

	Tally
}

// Tally counts what a run went through.
type Tally struct {
	Turns      int
	Cuts       int // of the power, in the run; brokers that ended themselves included
	DoubleCuts int // again while recovering
	Failures   int // of syncs and writes
	FullDisks  int
}

func (n Tally) String() string {
	return fmt.Sprintf("%d turns, %d cuts, %d more while recovering, %d failed syncs and writes, %d full disks",
		n.Turns, n.Cuts, n.DoubleCuts, n.Failures, n.FullDisks)
}

// newWorld returns a computer with a disk and no broker yet.
func newWorld(disk *vfs.Memory, rng *rand.Rand, report func(string, ...any)) *World {
	w := &World{rng: rng, disk: disk, report: report}
	w.cutIn.Store(-1)
	w.mu.waiting = map[int]chan struct{}{}
	return w
}

// start switches the computer on.
func (w *World) start() error {
	w.exiting.Store(false)
	w.limping.Store(false)
	w.fault = vfs.NewFault(w.disk)
	w.fault.AfterEach(w.changed)
	var err error
	w.broker, err = startBroker(context.Background(), w.fault, func() { w.exiting.Store(true) }, func() { w.limping.Store(true) })
	w.off.Store(err != nil)
	return err
}

// changed is called after every operation that changed the disk.
func (w *World) changed(vfs.Event) {
	if f := w.onChange.Load(); f != nil {
		(*f)()
	}
	if w.cutIn.Add(-1) == 0 {
		w.off.Store(true)
		w.fault.StopAfter(0)
	}
}

// cut turns the power off while everybody is idle. What the disk has now is what
// will be found: a sync under way does not come to its end.
func (w *World) cut() {
	w.off.Store(true)
	w.fault.StopAfter(0)
	w.found = w.wreck()
}

// replaceDisk goes on with what the power, or the end of the process, left.
func (w *World) replaceDisk() {
	w.cutIn.Store(-1)
	if w.found == nil {
		w.found = w.wreck()
	}
	w.disk, w.found = w.found, nil
}

// stop ends the broker and everybody's connections.
func (w *World) stop() {
	w.mu.Lock()
	conns := w.mu.conns
	w.mu.conns = nil
	w.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	w.broker.stop()
}

// ---- what actors use

var errOff = errors.New("the power is off")

// conn is a client's end of a connection. After the power went nothing that was
// sent before arrives.
type conn struct {
	net.Conn
	w *World
}

func (c conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.w.off.Load() {
		return 0, errOff
	}
	return n, err
}

// DialKafka implements workload.World.
func (w *World) DialKafka() (net.Conn, error) { return w.dial(w.broker.dialKafka.Dial) }

// DialMoonMQ implements workload.World.
func (w *World) DialMoonMQ() (net.Conn, error) { return w.dial(w.broker.dialMoon.Dial) }

func (w *World) dial(dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	if w.off.Load() {
		return nil, errOff
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	raw, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	c := conn{raw, w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.conns = append(w.mu.conns, c)
	return c, nil
}

// Now implements workload.World: every event has a time of its own.
func (w *World) Now() int64 { return w.clock.Add(1) }

// Over implements workload.World.
func (w *World) Over() bool { return w.over.Load() }

// Turn implements workload.World. The driver, which has no number, does not wait.
func (w *World) Turn(actor int) {
	if actor < 0 {
		return
	}
	turn := make(chan struct{})
	w.mu.Lock()
	w.mu.waiting[actor] = turn
	w.mu.Unlock()
	<-turn
}

// Answered implements workload.World. Who is answered while another has the turn
// waits for one, so that never two work at the same time.
func (w *World) Answered(actor int) {
	w.mu.Lock()
	holds := w.mu.holder == actor
	w.mu.Unlock()
	if !holds {
		w.Turn(actor)
	}
}

// Pause implements workload.World.
func (w *World) Pause(actor int) { w.Turn(actor) }

// ---- what the driver does

// next waits until everybody is idle and gives one of those who want it a turn;
// false when all wait for the broker.
func (w *World) next() bool {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := slices.Sorted(maps.Keys(w.mu.waiting))
	if len(waiting) == 0 {
		return false
	}
	actor := waiting[w.rng.IntN(len(waiting))]
	w.mu.holder = actor
	close(w.mu.waiting[actor])
	delete(w.mu.waiting, actor)
	w.Turns++
	return true
}

// run gives n turns. between is called before each, when everybody is idle.
func (w *World) run(n int, between func() error) error {
	for range n {
		synctest.Wait()
		if err := between(); err != nil {
			return err
		}
		if !w.next() {
			time.Sleep(5 * time.Millisecond) // long polls
		}
	}
	return nil
}

// finish lets every actor of a workload see that it is over.
func (w *World) finish(l *workload.Workload, between func() error) error {
	w.over.Store(true)
	done := make(chan struct{})
	go func() { l.Wait(); close(done) }()
	for {
		synctest.Wait()
		select {
		case <-done:
			return nil
		default:
		}
		if err := between(); err != nil {
			return err
		}
		if !w.next() {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// abandon ends everything whatever state it is in: a bubble must not be left
// with goroutines in it. After a run that ended well it does nothing.
func (w *World) abandon(l *workload.Workload) {
	w.off.Store(true)
	w.stop()
	// Without power actors find no connection, see that it is over and end.
	_ = w.finish(l, func() error { return nil })
}

// restart replaces a computer that is off, or a broker that ended itself, by one
// with what is left of its disk; now and then the power goes again while it
// recovers.
func (w *World) restart() error {
	w.stop()
	w.replaceDisk()
	for w.rng.IntN(4) == 0 {
		w.DoubleCuts++
		w.cutIn.Store(1 + w.rng.Int64N(40))
		if err := w.start(); err == nil {
			w.stop()
		} else if !errors.Is(err, vfs.ErrStopped) {
			return fmt.Errorf("recover, and be cut: %w", err)
		}
		w.replaceDisk()
	}
	if err := w.start(); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}

// wreck is the disk after the power went, or after the process alone did.
func (w *World) wreck() *vfs.Memory {
	switch w.rng.IntN(5) {
	case 0:
		return w.disk.Crash(nil) // nothing that was not synced
	case 1:
		return w.disk.Clone() // everything: only the process was killed
	}
	return w.disk.Crash(w.rng)
}

// calamities is what a long run lives through.
type calamities struct {
	w       *World
	lifting func() // ends the fault that is on
	until   int    // turn at which it ends
	slow    bool   // it is a slow disk
}

// between is run's: it restarts what has ended and brings the next fault.
func (c *calamities) between() error {
	w := c.w
	if w.off.Load() || w.exiting.Load() || w.limping.Load() && w.rng.IntN(40) == 0 {
		c.lift()
		w.Cuts++
		return w.restart()
	}
	if c.lifting != nil && w.Turns >= c.until {
		c.lift()
	}
	if c.slow && w.rng.IntN(8) == 0 {
		w.cut() // while things wait for the disk
		return nil
	}
	if c.lifting != nil || w.rng.IntN(100) > 0 {
		return nil
	}
	switch w.rng.IntN(8) {
	case 0, 1, 2:
		w.cutIn.Store(1 + w.rng.Int64N(60))
	case 3:
		w.Failures++
		w.fault.Add(vfs.Rule{Op: vfs.OpSync, After: w.rng.IntN(6), Times: 1, Err: syscall.EIO, DropDirty: w.rng.IntN(2) == 0})
	case 4:
		w.Failures++
		w.fault.Add(vfs.Rule{Op: vfs.OpWrite, After: w.rng.IntN(10), Times: 1, Err: syscall.EIO, Short: w.rng.IntN(200)})
	case 5:
		w.FullDisks++
		free, total, _ := w.disk.Free()
		w.disk.SetTotal(total - free + w.rng.Int64N(reserve))
		c.during(20, func() { w.disk.SetTotal(total) })
	case 6: // a slow disk: what comes meanwhile waits for the decision under way
		w.fault.Add(vfs.Rule{Op: vfs.OpSync, Delay: time.Duration(10+w.rng.IntN(5_000)) * time.Millisecond})
		c.slow = true
		c.during(6, func() {
			w.fault.Clear()
			c.slow = false
		})
	case 7: // nobody does anything for longer than transactions may take
		time.Sleep(time.Duration(w.rng.IntN(90)) * time.Second)
	}
	return nil
}

func (c *calamities) during(turns int, lift func()) {
	c.until, c.lifting = c.w.Turns+turns, lift
}

func (c *calamities) lift() {
	if c.lifting != nil {
		c.lifting()
		c.lifting = nil
	}
}
