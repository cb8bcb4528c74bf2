package coordinator

import "github.com/perigeemq/perigee/coordinator/txn"

// HoldName says that a connection is about to become, or is, the owner of a named
// producer: while it lives the name is not forgotten, however idle it is. Call it
// before InitProducer. holder is anything comparable that stands for the connection;
// the newest holder of a name counts. It costs memory only.
func (t *transactions) HoldName(name string, holder any) {
	h, err := t.hold(name)
	if err != nil {
		return // the Init that follows reports it
	}
	defer h.Release()
	h.s.live[name] = holder
}

// LeaveName says that the connection is gone. The time after which the name is
// forgotten begins now, if no other connection has taken the name over.
func (t *transactions) LeaveName(name string, holder any) {
	h, err := t.hold(name)
	if err != nil {
		return
	}
	defer h.Release()
	if h.s.live[name] == holder {
		h.keep(name)
		delete(h.s.live, name)
	}
}

// keepLive writes down that the names with a connection are in use: after a crash
// they have the whole time before them, less what passed since this scan.
func (h heldShard) keepLive() {
	for name := range h.s.live {
		h.keep(name)
	}
}

// keep restarts a name's time. If that fails, a live name is passed over by
// forgetExpired until the next scan makes it good, and one that was left has its
// time from the last scan.
func (h heldShard) keep(name string) { _ = h.do(txn.Keep{ID: name}) }
