package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
)

// fromCLI runs a command and decodes what it prints as JSON.
func fromCLI[T any](b *Broker, args ...string) T {
	b.t.Helper()
	var v T
	out := b.CLI("", append(args, "--format", "json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		b.t.Fatalf("perigee %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return v
}

type cliTxn struct {
	ID         string   `json:"transactional_id"`
	ProducerID int64    `json:"producer_id"`
	State      string   `json:"state"`
	Partitions []string `json:"partitions"`
	AgeMs      int64    `json:"age_ms"`
}

type cliProducer struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	ID        int64  `json:"producer_id"`
	Epoch     int16  `json:"producer_epoch"`
	TxnStart  int64  `json:"transaction_start_offset"`
}

type cliHanging struct {
	cliProducer
	Start  int64  `json:"start_offset"`
	Reason string `json:"reason"`
}

// anyAge makes find-hanging look at transactions of every age.
const anyAge = "--max-transaction-timeout=0s"

// An operator sees a transaction that is under way from both sides, and ends it.
func TestTransactionsFromTheCommandLine(t *testing.T) {
	b, w := txnBroker(t)
	w.newTopic("t", 2)
	p := w.init("busy")
	_, code := w.produce(12, "busy", p, 0, "t", 1, "a", "b")
	w.want("Produce", code, 0)
	w.init("idle")

	if got := fromCLI[[]cliTxn](b, "txn", "list"); len(got) != 2 || got[0].ID != "busy" || got[1].State != "Empty" {
		t.Errorf("list: %+v", got)
	}
	if got := fromCLI[[]cliTxn](b, "txn", "list", "--state", "Ongoing"); len(got) != 1 || got[0].ID != "busy" || got[0].ProducerID != p.id {
		t.Errorf("list of one state: %+v", got)
	}
	got := fromCLI[[]cliTxn](b, "txn", "describe", "busy")
	if len(got) != 1 || got[0].State != "Ongoing" || got[0].AgeMs < 0 || fmt.Sprint(got[0].Partitions) != "[t/1]" {
		t.Errorf("describe: %+v", got)
	}
	producers := fromCLI[[]cliProducer](b, "txn", "producers", "t")
	if len(producers) != 1 || producers[0] != (cliProducer{"t", 1, p.id, p.epoch, 0}) {
		t.Errorf("producers: %+v", producers)
	}
	if got := fromCLI[[]cliHanging](b, "txn", "find-hanging", anyAge); len(got) != 0 {
		t.Errorf("a transaction that is under way does not hang: %+v", got)
	}
	if out, err := b.TryCLI("", "txn", "describe", "nobody"); err == nil {
		t.Errorf("describe of an id that does not exist: %s", out)
	}

	b.CLI("", "txn", "abort", "busy", "--yes")
	w.closed("t", 1)
	if state := w.describe("busy").State; state != "Empty" && state != "CompleteAbort" {
		t.Errorf("after the abort: %s", state)
	}
	_, code = w.produce(12, "busy", p, 2, "t", 1, "late")
	w.want("Produce of the fenced producer", code, 47)
	if out, err := b.TryCLI("", "txn", "abort", "busy", "--yes"); err == nil {
		t.Errorf("abort of nothing: %s", out)
	}
}

// A transaction whose id the coordinator has lost hangs for ever: the broker says
// so when it starts, find-hanging names it, and abort lets readers go on.
func TestAHangingTransactionIsFoundAndAborted(t *testing.T) {
	b, w := txnBroker(t)
	b.NeedsOwnProcess()
	w.newTopic("t", 2)
	_, code := w.produce(12, "", nobody, 0, "t", 1, "before")
	w.want("Produce", code, 0)
	p := w.init("lost")
	_, code = w.produce(12, "lost", p, 0, "t", 1, "hangs")
	w.want("Produce", code, 0)
	_, code = w.produce(12, "", nobody, 0, "t", 1, "after")
	w.want("Produce", code, 0)
	b.Stop()
	withEngine(t, b.Dir, func(e *storage.Engine) { writeState(t, e, txn.Fact{ID: "lost"}, 0) })
	b.Restart()
	w = rawConn(t, b.Kafka)

	if !strings.Contains(b.Output(), "a transaction hangs") {
		t.Errorf("the start does not say that a transaction hangs:\n%s", b.Output())
	}
	if stable := w.latest("t", 1, true); stable != 1 {
		t.Fatalf("stable offset %d", stable)
	}
	found := fromCLI[[]cliHanging](b, "txn", "find-hanging", anyAge)
	if len(found) != 1 || found[0].Topic != "t" || found[0].Partition != 1 || found[0].ID != p.id || found[0].Start != 1 ||
		found[0].Reason != "no coordinator knows the producer" {
		t.Fatalf("find-hanging: %+v", found)
	}
	b.CLI("", "txn", "abort", "--topic", "t", "--partition", "1", "--start-offset", "1", "--yes")
	w.closed("t", 1)
	if got := w.fetch(11, "t", 1, 0, true).committedValues(); fmt.Sprint(got) != "[before after]" {
		t.Errorf("committed %v", got)
	}
	if found = fromCLI[[]cliHanging](b, "txn", "find-hanging", anyAge); len(found) != 0 {
		t.Errorf("after the abort: %+v", found)
	}
	p = w.init("lost")
	_, code = w.produce(12, "lost", p, 0, "t", 1, "a new life")
	w.want("Produce", code, 0)
}
