package coordinator

import (
	"slices"
	"time"

	"github.com/perigeemq/perigee/coordinator/txn"
)

const (
	// timeoutsAtOnce bounds how long one shard is looked after before the next;
	// the rest comes with the next round, longest overdue first.
	timeoutsAtOnce = 100
	// expiriesAtOnce bounds the batch of tombstones one decision writes.
	expiriesAtOnce = 1000
)

// watch is the goroutine of the transactions' deadlines. They are not a
// machine's Due because an abort may need a new producer id, which is not a
// machine's to take; and because what users tune is how often one looks.
func (t *transactions) watch() {
	timeouts, expiries := time.NewTicker(t.o.TimeoutScan), time.NewTicker(t.o.ExpiryScan)
	defer timeouts.Stop()
	defer expiries.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-timeouts.C:
			t.eachShard(heldShard.abortOverdue)
		case <-expiries.C:
			t.expire()
		}
	}
}

// expire forgets ids that nobody uses and, with them, what is kept for them.
func (t *transactions) expire() {
	t.eachShard(heldShard.keepLive)
	if !t.reachable() {
		return
	}
	t.eachShard(heldShard.forgetExpired)
	if t.o.Expired != nil {
		t.o.Expired()
	}
}

// eachShard visits the shards one after the other, each under its lock. What
// fails is tried again with the next round: an abort that found the disk full
// must not be given up, and has nobody to be reported to but the disk's own event.
func (t *transactions) eachShard(visit func(heldShard)) {
	for _, s := range t.shards {
		if h, err := t.holdShard(s); err == nil {
			visit(h)
			h.Release()
		}
	}
}

// abortOverdue aborts transactions that took longer than their producer allowed.
func (h heldShard) abortOverdue() {
	for _, id := range h.s.ids.Overdue(h.t.o.Now(), timeoutsAtOnce) {
		_ = h.do(txn.TimeOut{ID: id, Level: h.t.o.Level()})
	}
}

// forgetExpired writes tombstones for ids nobody has used for long. A live name is
// here only if it could not be kept.
func (h heldShard) forgetExpired() {
	ids := slices.DeleteFunc(h.s.ids.Expired(h.t.o.Now(), expiriesAtOnce), h.owned)
	if len(ids) > 0 {
		_ = h.do(txn.Forget{IDs: ids})
	}
}

// owned reports whether a MoonMQ connection owns the id at this moment.
func (h heldShard) owned(id string) bool {
	_, live := h.s.live[id]
	r, _ := h.s.ids.Lookup(id)
	return live && r.Owner == txn.Session
}
