package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// A connection that consumes, transforms and produces in transactions moves every
// input to the output exactly once, whenever the broker is killed.
func TestMoonMQExactlyOnceUnderKill(t *testing.T) {
	const inputs, kills = 300, 5
	b := Start(t)
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "in", 2)
	createMoon(side, "out", 2)
	for i := range inputs {
		side.produce("in", fmt.Sprint(i), fmt.Sprintf("input-%d", i))
	}
	rng := rand.New(rand.NewPCG(seedFor(t), 1))
	for kill := 0; ; kill++ {
		limit := 1 << 30
		if kill < kills {
			limit = 5 + rng.IntN(40) // transactions before the axe
		}
		if transformed(t, b, limit, rng) {
			break
		}
		b.Kill()
		b.Restart()
	}
	seen := map[string]int{}
	for _, r := range moon(t, b).fetch("out", "check", 1) {
		seen[string(r.Value)]++
	}
	for i := range inputs {
		if n := seen[fmt.Sprintf("output of input-%d", i)]; n != 1 {
			t.Errorf("input %d came out %d times", i, n)
		}
	}
	if len(seen) != inputs {
		t.Errorf("%d different outputs of %d inputs", len(seen), inputs)
	}
}

// transformed runs transactions until nothing is left to read (true), or limit of
// them; then the broker is killed, sometimes in the middle of one.
func transformed(t *testing.T, b *Broker, limit int, rng *rand.Rand) bool {
	t.Helper()
	p := moon(t, b).producer("transformer")
	for n := 0; n < limit; n++ {
		p.must(&wire.BeginTxn{}, wire.OpOK)
		records := p.fetchWith(&wire.Fetch{Topic: "in", Group: "etl", MaxRecords: 1 + rng.Uint32N(8), Flags: wire.FetchBatched, Isolation: 1, Trailers: 2})
		next := map[uint32]uint64{}
		for _, r := range records {
			p.put("out", string(r.Key), "output of "+string(r.Value))
			next[r.Partition] = r.Offset + 1
		}
		if len(records) == 0 {
			p.must(&wire.EndTxn{}, wire.OpOK)
			return true
		}
		commit := &wire.TxnOffsetCommit{Group: "etl"}
		for partition, offset := range next {
			commit.Offsets = append(commit.Offsets, wire.TxnOffset{Topic: "in", Partition: partition, Offset: offset})
		}
		p.must(commit, wire.OpOK)
		switch rng.IntN(8) {
		case 0: // an abort gives the inputs back
			p.must(&wire.EndTxn{}, wire.OpOK)
			continue
		case 1: // the axe falls while END is on its way
			if n == limit-1 {
				p.send(&wire.EndTxn{Commit: true})
				return false
			}
		}
		p.must(&wire.EndTxn{Commit: true}, wire.OpOK)
	}
	return false
}

// Every abort gives the inputs back, also several in a row on a connection whose
// first FETCH was inside a transaction.
func TestMoonMQAbortsInARowGiveTheSameInputsBack(t *testing.T) {
	b := Start(t)
	side := moon(t, b)
	createMoon(side, "in", 1)
	for i := range 10 {
		side.produce("in", "k", fmt.Sprint(i))
	}
	p := moon(t, b).producer("transformer")
	for n := uint32(1); n <= 4; n++ {
		p.must(&wire.BeginTxn{}, wire.OpOK)
		got := p.fetchWith(&wire.Fetch{Topic: "in", Group: "etl", MaxRecords: n, Flags: wire.FetchBatched, Isolation: 1, Trailers: 2})
		if uint32(len(got)) != n || string(got[0].Value) != "0" {
			t.Fatalf("after %d aborts: %d records, the first is %q", n-1, len(got), got[0].Value)
		}
		p.must(&wire.EndTxn{}, wire.OpOK)
	}
}

// A named producer that is cut off before its ack sends the record again after the
// broker came back; it is there once, and the ack says where.
func TestMoonMQRetryAcrossKill(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	createMoon(moon(t, b), "t", 1)
	for round := range 8 {
		p := moon(t, b).producer("writer")
		p.put("t", "k", fmt.Sprintf("%d-first", round))
		p.put("t", "k", fmt.Sprintf("%d-second", round))
		p.send(p.record("t", "k", fmt.Sprintf("%d-third", round), 2)) // its ack is never read
		b.Kill()
		b.Restart()
		again := moon(t, b).producer("writer")
		reply := again.call(again.record("t", "k", fmt.Sprintf("%d-third", round), 2))
		got := moon(t, b).fetch("t", fmt.Sprint("check", round), 0)
		last := got[len(got)-1]
		switch reply := reply.(type) {
		case *wire.ProduceAck: // it had arrived
			if string(last.Value) != fmt.Sprintf("%d-third", round) || reply.Offset != last.Offset {
				t.Errorf("round %d: acknowledged at %d, the log ends with %q at %d", round, reply.Offset, last.Value, last.Offset)
			}
		case *wire.Error: // it had not, and a new session begins at 0
			if reply.Code != wire.OutOfOrderSequence || string(last.Value) != fmt.Sprintf("%d-second", round) {
				t.Errorf("round %d: %s %q, the log ends with %q", round, reply.Code, reply.Message, last.Value)
			}
		}
	}
}

// NACK counts survive a kill.
func TestNackCountsSurviveKill(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	c := moon(t, b)
	createMoon(c, "t", 1)
	c.produce("t", "k", "poison")
	for attempt := uint16(1); attempt <= 3; attempt++ {
		c = moon(t, b)
		if got := c.fetch("t", "g", 0); len(got) != 1 {
			t.Fatalf("attempt %d: %d records", attempt, len(got))
		}
		ack := c.must(&wire.Nack{Topic: "t", Partition: 1, Reason: "no"}, wire.OpNackAck).(*wire.NackAck)
		if ack.Attempts != attempt || ack.DeadLettered != (attempt == 3) {
			t.Fatalf("attempt %d: %+v", attempt, ack)
		}
		b.Kill()
		b.Restart()
	}
	if got := moon(t, b).fetch("t", "g", 0); len(got) != 0 {
		t.Errorf("the dead record is delivered again: %v", got)
	}
	if got := moon(t, b).fetch("t.dlq", "inspector", 0); len(got) != 1 {
		t.Errorf("%d dead records", len(got))
	}
}

// The broker says goodbye to its clients before it stops.
func TestMoonMQShutdownIsAnnounced(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	c := moon(t, b)
	done := make(chan struct{})
	go func() { defer close(done); b.Stop() }()
	f, m := c.receive()
	if e, ok := m.(*wire.Error); !ok || e.Code != wire.Internal || e.Message != "server shutting down" || f.ID != (wire.CorrelationID{}) {
		t.Errorf("told %+v", m)
	}
	if !c.ended() {
		t.Error("the connection is still open")
	}
	<-done
	if raw, err := net.DialTimeout("tcp", b.MoonMQ, time.Second); err == nil {
		raw.Close()
		t.Error("the port is still open")
	}
}
