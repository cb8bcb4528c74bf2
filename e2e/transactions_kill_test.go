package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/perigeemq/perigee/e2e/checker"
)

var (
	txnKills   = flag.Int("txn.kills", 50, "SIGKILLs in the transaction checker's run; 1000 for a soak")
	txnHistory = flag.String("txn.history", "", "write the history of the checker's run to this file")
)

// Transactions of every kind run while the broker is killed again and again,
// also while it recovers. The history of everything anybody was told has no
// anomaly.
func TestTransactionsSurviveKills(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	seed := seedFor(t)
	w := newWorkload(t, b.Kafka)
	w.run(seed)
	killer(t, b, *txnKills, seed)
	time.Sleep(300 * time.Millisecond) // a last stretch without a kill
	w.finish()
	judge(t, w.final(), *txnKills)
}

// Without faults there is no anomaly either, and most transactions are decided.
func TestTransactionsInPeace(t *testing.T) {
	b := Start(t)
	w := newWorkload(t, b.Kafka)
	w.run(seedFor(t))
	time.Sleep(2 * time.Second) // how long they run is the experiment
	w.finish()
	r := judge(t, w.final(), 0)
	if r.Committed < r.Txns/10 {
		t.Errorf("only %d of %d transactions committed", r.Committed, r.Txns)
	}
}

func judge(t *testing.T, h *checker.History, kills int) checker.Report {
	t.Helper()
	r := checker.Check(h)
	t.Logf("%d kills: %s", kills, r)
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
