package e2e

import (
	"flag"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeemq/perigee/e2e/checker"
	"github.com/perigeemq/perigee/e2e/workload"
)

var (
	txnKills   = flag.Int("txn.kills", 50, "SIGKILLs in the transaction checker's run; 1000 for a soak")
	txnHistory = flag.String("txn.history", "", "write the history of the checker's run to this file")
)

// processWorld runs a workload against a broker that is a process: every actor
// goes as fast as it is answered.
type processWorld struct {
	b     *Broker
	start time.Time
	stop  chan struct{}
}

func (w *processWorld) DialKafka() (net.Conn, error) {
	return net.DialTimeout("tcp", w.b.Kafka, time.Second)
}
func (w *processWorld) DialMoonMQ() (net.Conn, error) {
	return net.DialTimeout("tcp", w.b.MoonMQ, time.Second)
}

func (w *processWorld) Now() int64   { return int64(time.Since(w.start)) }
func (w *processWorld) Turn(int)     {}
func (w *processWorld) Answered(int) {}

// Pause keeps actors from spinning while the broker is down.
func (w *processWorld) Pause(int) { time.Sleep(time.Millisecond) }

func (w *processWorld) Over() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// txnSettings make timers and cleaning frequent enough to be met in a short run.
var txnSettings = []string{
	"--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
	"--set", "log.cleaner.backoff.ms=100",
}

// runWorkload lets everybody loose on a broker until the experiment returns,
// and returns the history.
func runWorkload(t *testing.T, b *Broker, experiment func(w *workload.Workload, seed uint64)) *checker.History {
	t.Helper()
	seed := seedFor(t)
	world := &processWorld{b: b, start: time.Now(), stop: make(chan struct{})}
	w := workload.New(workload.Options{
		World: world, Seed: seed, Report: t.Errorf, MoonMQ: true, Timeout: 60_000,
		Inputs: 20_000, Work: 20_000, // more than a short run consumes; a long one goes on without
	})
	if err := w.Prepare(); err != nil {
		t.Fatal(err)
	}
	w.Start(workload.Everybody)
	experiment(w, seed)
	close(world.stop)
	w.Wait()
	if err := w.TakeOver(); err != nil {
		t.Fatal(err)
	}
	h, err := w.Final()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Transactions of every kind run while the broker is killed again and again,
// also while it recovers. The history of everything anybody was told has no
// anomaly.
func TestTransactionsSurviveKills(t *testing.T) {
	b := Start(t, txnSettings...)
	b.NeedsOwnProcess()
	h := runWorkload(t, b, func(_ *workload.Workload, seed uint64) {
		killer(t, b, *txnKills, seed)
		time.Sleep(300 * time.Millisecond) // a last stretch without a kill
	})
	judge(t, h, *txnKills)
}

// Without faults there is no anomaly either, and most transactions are decided.
func TestTransactionsInPeace(t *testing.T) {
	b := Start(t, txnSettings...)
	h := runWorkload(t, b, func(w *workload.Workload, _ uint64) {
		time.Sleep(2 * time.Second) // how long they run is the experiment
		awaitWork(w)
	})
	r := judge(t, h, 0)
	if r.Committed < r.Txns/10 {
		t.Errorf("only %d of %d transactions committed", r.Committed, r.Txns)
	}
	if len(h.Final.Dead) == 0 || len(h.Offsets) == 0 {
		t.Errorf("%d dead letters, %d polls: the workload does not do what it is for", len(h.Final.Dead), len(h.Offsets))
	}
}

// awaitWork gives a slow machine the time to do what others do in two seconds, about;
// what is missing in the end is the judge's to say.
func awaitWork(w *workload.Workload) {
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(50 * time.Millisecond) {
		if did := w.Did(); did.Txns >= 500 && did.Dead > 0 && did.Polls > 0 {
			return
		}
	}
}

func judge(t *testing.T, h *checker.History, kills int) checker.Report {
	t.Helper()
	r := checker.Check(h)
	t.Logf("%d kills: %s; an offset was unstable for at most %v", kills, r, time.Duration(r.LongestUnstable))
	for i, a := range r.Anomalies {
		if i == 20 {
			t.Errorf("and %d more", len(r.Anomalies)-i)
			break
		}
		t.Error(a)
	}
	file := *txnHistory
	if file == "" && t.Failed() {
		file = filepath.Join(os.TempDir(), "perigee-txn-history.json")
	}
	if file != "" {
		writeHistory(t, h, file)
	}
	return r
}

func writeHistory(t *testing.T, h *checker.History, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := h.Write(f); err != nil {
		t.Fatal(err)
	}
	t.Logf("history in %s", name)
}
