package workload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/perigeemq/perigee/e2e/checker"
)

// World is where a workload runs.
type World interface {
	// DialKafka and DialMoonMQ connect, or fail while the broker is not there.
	DialKafka() (net.Conn, error)
	DialMoonMQ() (net.Conn, error)
	// Now is the history's clock. It does not step back.
	Now() int64
	// Turn waits until an actor may send its next request, Answered until it may go
	// on with the answer.
	Turn(actor int)
	Answered(actor int)
	// Pause lets the world move on: the broker is away, or another actor has to
	// finish first.
	Pause(actor int)
	// Over reports that actors should stop.
	Over() bool
}

// Topics of the workload.
const (
	listTopic      = "list"
	trimmedTopic   = "trimmed"
	compactedTopic = "compacted"
	volatileTopic  = "volatile"
	inputTopic     = "input"
	workTopic      = "work"
	deadTopic      = "work.dlq"

	listPartitions  = 4
	inputPartitions = 3
	compactedKeys   = 5
)

// Place is a partition of the history.
type Place struct {
	Topic     string
	Partition int32
}

// Places are the partitions the checker judges; its number for one is the index.
var Places = []Place{
	{listTopic, 0}, {listTopic, 1}, {listTopic, 2}, {listTopic, 3},
	{trimmedTopic, 0}, {compactedTopic, 0},
}

const compactedPlace = 5

// groups are the consumer groups of copiers with the input partition each reads.
var groups = []struct {
	name      string
	partition int32
}{{"g-0", 0}, {"g-1", 1}, {"g-moon", 2}}

// Options describe a workload.
type Options struct {
	World World
	Seed  uint64
	// Report is told what is wrong and no invariant speaks of: an answer that may
	// not come. It may be called from any actor's goroutine.
	Report func(format string, args ...any)
	// Inputs and Work are how many records there are to consume.
	Inputs, Work int
	// MoonMQ says that the world has its listener.
	MoonMQ bool
	// Timeout is the transaction timeout of Kafka's workers, in milliseconds.
	Timeout int32
	// Past is an earlier workload on the same data, which this one continues.
	Past *Past
}

// Workload is one run.
type Workload struct {
	o     Options
	group sync.WaitGroup

	mu struct {
		sync.Mutex
		h     checker.History
		open  map[int]*begun    // under way, by actor
		done  []*begun          // those of h.Txns this workload began, in their order
		last  map[string]*begun // by id; nil when somebody asked for the id since
		value checker.Value     // handed out last
		reads int               // assignments handed out
	}
}

// begun is a transaction from its first request on.
type begun struct{ checker.Txn }

// Past is what a workload leaves to its successor.
type Past struct {
	History checker.History
	// Last are the transactions whose end may be asked for again: nothing has
	// been done under their ids since. Indexes into History.Txns.
	Last []int
}

// New returns a workload that does nothing yet.
func New(o Options) *Workload {
	w := &Workload{o: o}
	w.mu.open, w.mu.last = map[int]*begun{}, map[string]*begun{}
	if o.Past != nil {
		w.mu.h = detach(o.Past.History)
		w.mu.value, w.mu.reads = largestValue(&w.mu.h), 1_000*(1+countReaders(&w.mu.h)/1_000)
	}
	return w
}

func largestValue(h *checker.History) (largest checker.Value) {
	for _, t := range h.Txns {
		for _, a := range t.Appends {
			largest = max(largest, a.Value)
		}
	}
	return largest
}

// countReaders returns the largest number an assignment of the history has.
func countReaders(h *checker.History) (largest int) {
	for _, r := range h.Responses {
		n, _ := strconv.Atoi(r.Reader) // probes have no number
		largest = max(largest, n)
	}
	return largest
}

// Snapshot is the history as it is now: whatever has not been answered is
// unknown. What it returns does not change any more.
func (w *Workload) Snapshot() *Past {
	w.mu.Lock()
	defer w.mu.Unlock()
	past := Past{History: detach(w.mu.h)}
	h := &past.History
	older := len(h.Txns) - len(w.mu.done)
	for i, t := range w.mu.done {
		if w.mu.last[t.ID] == t {
			past.Last = append(past.Last, older+i)
		}
	}
	for _, actor := range slices.Sorted(maps.Keys(w.mu.open)) {
		t := w.mu.open[actor]
		if w.mu.last[t.ID] == t {
			past.Last = append(past.Last, len(h.Txns))
		}
		h.Txns = append(h.Txns, t.Clone())
	}
	return &past
}

// Work counts what a workload has done.
type Work struct {
	Txns  int // ended, however
	Dead  int // records given back for the last time
	Polls int // for the groups' offsets
}

// Did is the work that has been done so far.
func (w *Workload) Did() Work {
	w.mu.Lock()
	defer w.mu.Unlock()
	work := Work{Txns: len(w.mu.done), Polls: len(w.mu.h.Offsets)}
	for _, n := range w.mu.h.Nacks {
		if n.Dead {
			work.Dead++
		}
	}
	return work
}

// detach returns a history that can go on without changing the one it was.
func detach(h checker.History) checker.History {
	h.Inits, h.Responses, h.Offsets = slices.Clip(h.Inits), slices.Clip(h.Responses), slices.Clip(h.Offsets)
	h.Txns, h.Nacks, h.Deliveries = slices.Clone(h.Txns), slices.Clone(h.Nacks), slices.Clone(h.Deliveries)
	return h
}

func (w *Workload) record(f func(*checker.History)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.mu.h)
}

// begin puts a transaction under way; the returned function changes it.
func (w *Workload) begin(actor int, t checker.Txn) (note func(func(*checker.Txn))) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &begun{t}
	w.mu.open[actor], w.mu.last[t.ID] = b, b
	return func(f func(*checker.Txn)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		f(&b.Txn)
	}
}

// finish puts an actor's transaction into the history.
func (w *Workload) finish(actor int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.mu.open[actor]
	delete(w.mu.open, actor)
	w.mu.h.Txns = append(w.mu.h.Txns, b.Txn)
	w.mu.done = append(w.mu.done, b)
}

// taking notes that somebody is about to ask for an id.
func (w *Workload) taking(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.last, id)
}

// newValues returns n values nobody has written.
func (w *Workload) newValues(n int) []checker.Value {
	w.mu.Lock()
	defer w.mu.Unlock()
	values := make([]checker.Value, n)
	for i := range values {
		w.mu.value++
		values[i] = w.mu.value
	}
	return values
}

// newReader names an assignment.
func (w *Workload) newReader() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.reads++
	return strconv.Itoa(w.mu.reads)
}

func (w *Workload) now() int64 { return w.o.World.Now() }
func (w *Workload) over() bool { return w.o.World.Over() }

// Crowd is how many actors of which kind there are.
type Crowd struct {
	Writers, Copiers, Sharers int  // of Kafka; half of each speak v1
	Readers, Around           bool // readers of every place; admin, poller, nacker
}

// Everybody is the crowd of a long run, Few that of a short script.
var (
	Everybody = Crowd{Writers: 4, Copiers: 3, Sharers: 2, Readers: true, Around: true}
	Few       = Crowd{Writers: 2, Copiers: 1}
)

// Start starts the actors.
func (w *Workload) Start(c Crowd) {
	for n := range c.Writers {
		w.kafkaWorker(n, fmt.Sprint("solo-", n), n%2 == 0, -1)
	}
	for n := range c.Copiers {
		copies := min(n, 1) // all but the first are instances of one id and group, and fence each other
		w.kafkaWorker(100+n, fmt.Sprint("copy-", copies), copies == 0, copies)
	}
	for n := range c.Sharers {
		w.kafkaWorker(200+n, "shared", n%2 == 0, -1)
	}
	if w.o.MoonMQ {
		w.moonWorkers(c)
	}
	if c.Readers {
		for p := range Places {
			w.actor(400+p, func(n int, _ *rand.Rand) { w.read(n, p, true) })
			w.actor(420+p, func(n int, _ *rand.Rand) { w.read(n, p, false) })
		}
	}
	if c.Around {
		w.actor(500, w.poll)
		w.actor(501, w.administrate)
	}
}

// moonWorkers are sessions: one of its own, one that shares its name with
// Kafka's sharers, one that copies.
func (w *Workload) moonWorkers(c Crowd) {
	if c.Writers > 0 {
		w.moonWorker(300, "moon-0", -1)
	}
	if c.Sharers > 0 {
		w.moonWorker(301, "shared", -1)
	}
	if c.Copiers > 0 {
		w.moonWorker(302, "moon-copy", 2)
	}
	if c.Around {
		w.actor(502, w.nack)
	}
}

// actor starts one. Each has its own random numbers, so that what it does
// depends on nothing but the seed and what it is answered.
func (w *Workload) actor(n int, run func(n int, rng *rand.Rand)) {
	w.group.Go(func() {
		w.o.World.Turn(n)
		run(n, rand.New(rand.NewPCG(w.o.Seed, uint64(n))))
	})
}

// Wait waits until every actor has seen that it is over.
func (w *Workload) Wait() { w.group.Wait() }
