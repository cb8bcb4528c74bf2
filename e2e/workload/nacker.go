package workload

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/perigeemq/perigee/e2e/checker"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// nackGroup reads the work topic.
const nackGroup = "workers"

// nack is an actor that reads the work topic and, now and then, gives a record
// back: it must come again, or be dead, which the answer says. A record it gave
// back before it mostly gives back again. Sometimes delivery moves the group on,
// as MoonMQ does; else the actor commits what it is done with.
func (w *Workload) nack(n int, rng *rand.Rand) {
	var l *moonLink
	bad := int64(-1) // offset of the record given back last
	commits := false
	for !w.over() {
		if l == nil || l.broken {
			l = w.connectMoon(n)
			commits = rng.IntN(3) > 0
			continue
		}
		records, ok := w.takeWork(n, l, commits)
		if len(records) == 0 {
			w.o.World.Pause(n)
		}
		if !ok || len(records) == 0 {
			continue
		}
		last := records[len(records)-1]
		if rng.IntN(5) == 0 {
			w.done(n, l, commits, last.Partition, last.Offset+1)
			continue
		}
		i := slices.IndexFunc(records, func(r wire.Record) bool { return int64(r.Offset) == bad })
		if i < 0 { // mostly the first, which an earlier life may have given back
			i = max(0, rng.IntN(2*len(records))-len(records))
		}
		bad = int64(records[i].Offset)
		if w.done(n, l, commits, last.Partition, records[i].Offset) {
			w.giveBack(n, l, records[i])
		}
	}
	l.close()
}

// done commits that everything before an offset has been processed.
func (w *Workload) done(n int, l *moonLink, commits bool, partition uint32, next uint64) bool {
	if !commits {
		return true
	}
	reply, err := w.askMoon(n, l, &wire.Commit{Topic: workTopic, Partition: partition, Offset: next})
	return err == nil && reply.Op() == wire.OpOK
}

// takeWork fetches a few records.
func (w *Workload) takeWork(n int, l *moonLink, commits bool) ([]wire.Record, bool) {
	flags := wire.FetchBatched
	if commits {
		flags |= wire.FetchNoCommit
	}
	invoked := w.now()
	at := 0
	w.record(func(h *checker.History) {
		at = len(h.Deliveries)
		h.Deliveries = append(h.Deliveries, checker.Delivery{Span: checker.Unanswered(invoked), Group: nackGroup})
	})
	w.o.World.Turn(n)
	records, err := l.fetch(&wire.Fetch{Topic: workTopic, Group: nackGroup, MaxRecords: 3, Flags: flags, Trailers: 2})
	w.o.World.Answered(n)
	completed := w.now()
	refused := errors.As(err, new(*wire.Error))
	w.record(func(h *checker.History) {
		d := &h.Deliveries[at]
		d.Completed = completed
		switch {
		case err == nil:
			d.Outcome = checker.Done
		case refused:
			d.Outcome = checker.Refused
		}
		for _, r := range records {
			d.Offsets = append(d.Offsets, int64(r.Offset))
		}
	})
	return records, err == nil
}

func (w *Workload) giveBack(n int, l *moonLink, r wire.Record) {
	invoked := w.now()
	at := 0
	w.record(func(h *checker.History) {
		at = len(h.Nacks)
		h.Nacks = append(h.Nacks, checker.Nack{
			Span:   checker.Unanswered(invoked),
			Source: checker.Source{Group: nackGroup, Partition: int32(r.Partition) - 1, Offset: int64(r.Offset)},
		})
	})
	reply, err := w.askMoon(n, l, &wire.Nack{Topic: workTopic, Partition: r.Partition, Offset: r.Offset, Reason: "the workload's whim"})
	completed := w.now()
	w.record(func(h *checker.History) {
		nack := &h.Nacks[at]
		nack.Completed = completed
		switch ack, ok := reply.(*wire.NackAck); {
		case err != nil:
		case ok:
			nack.Outcome, nack.Dead = checker.Done, ack.DeadLettered
		default:
			nack.Outcome = checker.Refused
		}
	})
}
