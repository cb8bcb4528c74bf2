package machine

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigeemq/perigee/storage/model"
)

// The ledger of these tests counts per account, parks a withdrawal until there
// is enough, and forgets parked ones after a minute.
type (
	ledgerCommand interface{ command() }
	deposit       struct {
		account string
		amount  int64
		reply   *Promise[int64]
	}
	withdraw struct {
		account string
		amount  int64
		reply   *Promise[int64]
	}
	balance struct {
		account string
		reply   *Promise[int64]
	}

	ledgerFact interface{ fact() }
	balanceSet struct {
		account string
		amount  int64
	}
	parked   struct{ withdrawal waiting }
	unparked struct{}
)

func (deposit) command()  {}
func (withdraw) command() {}
func (balance) command()  {}
func (balanceSet) fact()  {}
func (parked) fact()      {}
func (unparked) fact()    {}

var errTimedOut = errors.New("not enough in time")

type waiting struct {
	withdraw
	until time.Time
}

type ledger struct {
	balances map[string]int64
	waiting  *waiting
	offsets  []model.Offset
}

func newLedger() Machine[ledgerCommand, ledgerFact] {
	return &ledger{balances: map[string]int64{}}
}

func (l *ledger) Decide(now time.Time, c ledgerCommand) (d Decision[ledgerFact]) {
	switch c := c.(type) {
	case nil:
		if l.waiting != nil && !l.waiting.until.After(now) {
			d.Facts = append(d.Facts, unparked{})
			d.Replies = append(d.Replies, Refuse(l.waiting.reply, errTimedOut))
		}
	case deposit:
		sum := l.balances[c.account] + c.amount
		d.Replies = append(d.Replies, Answer(c.reply, sum))
		if w := l.waiting; w != nil && w.account == c.account && w.amount <= sum {
			sum -= w.amount
			d.Facts = append(d.Facts, unparked{})
			d.Replies = append(d.Replies, Answer(w.reply, sum))
		}
		d.Facts = append(d.Facts, balanceSet{c.account, sum})
	case withdraw:
		if left := l.balances[c.account] - c.amount; left >= 0 {
			d.Facts = append(d.Facts, balanceSet{c.account, left})
			d.Replies = append(d.Replies, Answer(c.reply, left))
		} else {
			d.Facts = append(d.Facts, parked{waiting{c, now.Add(time.Minute)}})
		}
	case balance:
		d.Replies = append(d.Replies, Answer(c.reply, l.balances[c.account]))
	}
	return d
}

func (l *ledger) Apply(f ledgerFact, at model.Offset) {
	switch f := f.(type) {
	case balanceSet:
		l.balances[f.account] = f.amount
		l.offsets = append(l.offsets, at)
	case parked:
		l.waiting = &f.withdrawal
	case unparked:
		l.waiting = nil
	}
}

func (l *ledger) Due() time.Time {
	if l.waiting == nil {
		return time.Time{}
	}
	return l.waiting.until
}

type ledgerCodec struct{}

func (ledgerCodec) Encode(f ledgerFact) (key, value []byte, ok bool) {
	set, ok := f.(balanceSet)
	if !ok {
		return nil, nil, false
	}
	return []byte(set.account), binary.BigEndian.AppendUint64(nil, uint64(set.amount)), true
}

func (ledgerCodec) Decode(r Record) (ledgerFact, error) {
	if string(r.Key) == "from the future" {
		return nil, ErrUnknownFact
	}
	if len(r.Value) != 8 {
		return nil, ErrMalformed
	}
	return balanceSet{string(r.Key), int64(binary.BigEndian.Uint64(r.Value))}, nil
}

func openLedger(facts Facts, index int32, t *Timer) *Shard[ledgerCommand, ledgerFact] {
	return NewShard(Options[ledgerCommand, ledgerFact]{
		Name: "ledger", Index: index, New: newLedger, Codec: ledgerCodec{}, Facts: facts, Timer: t,
	})
}

func doDeposit(s *Shard[ledgerCommand, ledgerFact], account string, amount int64) Future[int64] {
	return Call(s, func(p *Promise[int64]) ledgerCommand { return deposit{account, amount, p} })
}

func doWithdraw(s *Shard[ledgerCommand, ledgerFact], account string, amount int64) Future[int64] {
	return Call(s, func(p *Promise[int64]) ledgerCommand { return withdraw{account, amount, p} })
}

func doBalance(s *Shard[ledgerCommand, ledgerFact], account string) Future[int64] {
	return Call(s, func(p *Promise[int64]) ledgerCommand { return balance{account, p} })
}

func wantAnswer(t *testing.T, f Future[int64], want int64) {
	t.Helper()
	got, err := f.Wait(t.Context())
	if err != nil || got != want {
		t.Fatalf("answer %d, %v; want %d", got, err, want)
	}
}

func TestReplyIsReleasedWhenItsFactsAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := &MemoryFacts{}
		s := openLedger(facts, 0, nil)
		release := facts.Hold()
		put := doDeposit(s, "a", 5)
		read := doBalance(s, "a") // has no facts, yet shows what a crash could undo

		short, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for name, f := range map[string]Future[int64]{"deposit": put, "read": read} {
			if v, err := f.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%s answered %d, %v before the sync", name, v, err)
			}
		}
		release()
		wantAnswer(t, put, 5)
		wantAnswer(t, read, 5)
		wantAnswer(t, doBalance(s, "a"), 5)
	})
}

func TestLaterDecisionAnswersAParkedCommand(t *testing.T) {
	s := openLedger(&MemoryFacts{}, 0, nil)
	w := doWithdraw(s, "a", 8)
	wantAnswer(t, doDeposit(s, "a", 5), 5)
	select {
	case <-w.Answered():
		t.Fatal("answered too early")
	default:
	}
	wantAnswer(t, doDeposit(s, "a", 5), 10)
	wantAnswer(t, w, 2)
	wantAnswer(t, doBalance(s, "a"), 2)
}

func TestRefusalByTheLogAppliesNothing(t *testing.T) {
	full := errors.New("disk full")
	facts := &MemoryFacts{}
	s := openLedger(facts, 0, nil)
	wantAnswer(t, doDeposit(s, "a", 5), 5)
	w := doWithdraw(s, "a", 6)

	facts.Refuse(full)
	if _, err := doDeposit(s, "a", 5).Wait(t.Context()); !errors.Is(err, full) {
		t.Fatalf("deposit: %v, want %v", err, full)
	}
	facts.Refuse(nil)
	wantAnswer(t, doBalance(s, "a"), 5)
	wantAnswer(t, doDeposit(s, "a", 1), 6) // the parked withdrawal was not lost
	wantAnswer(t, w, 0)
}

func TestRestartReplaysTheFacts(t *testing.T) {
	facts := &MemoryFacts{}
	s := openLedger(facts, 0, nil)
	wantAnswer(t, doDeposit(s, "a", 5), 5)
	wantAnswer(t, doDeposit(s, "b", 7), 7)
	wantAnswer(t, doWithdraw(s, "a", 1), 4)
	if _, err := facts.Append(Batch{Records: []Record{{Key: []byte("from the future")}}}); err != nil {
		t.Fatal(err)
	}
	facts.Compact()

	s = openLedger(facts, 0, nil)
	wantAnswer(t, doBalance(s, "a"), 4)
	wantAnswer(t, doBalance(s, "b"), 7)
}

func TestDamagedFactKeepsTheShardUnloaded(t *testing.T) {
	facts := &MemoryFacts{}
	if _, err := facts.Append(Batch{Records: []Record{{Key: []byte("a"), Value: []byte("short")}}}); err != nil {
		t.Fatal(err)
	}
	s := openLedger(facts, 0, nil)
	if _, err := doBalance(s, "a").Wait(t.Context()); !errors.Is(err, ErrMalformed) {
		t.Fatalf("balance: %v, want %v", err, ErrMalformed)
	}
}

func TestTimerAsksTheMachineWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := NewTimer(nil)
		facts := &MemoryFacts{}
		s := openLedger(facts, 0, timer)
		openLedger(&MemoryFacts{}, 1, timer) // never due, never loaded
		timer.Start()
		defer timer.Close()

		start := time.Now()
		_, err := doWithdraw(s, "a", 1).Wait(t.Context())
		if !errors.Is(err, errTimedOut) || time.Since(start) != time.Minute {
			t.Fatalf("%v after %v, want %v after a minute", err, time.Since(start), errTimedOut)
		}
		// An alarm set earlier than the one awaited wakes the timer.
		w := doWithdraw(s, "a", 1)
		wantAnswer(t, doDeposit(s, "a", 1), 1)
		wantAnswer(t, w, 0)
	})
}

func TestTickServesShardsByHand(t *testing.T) {
	now := time.Unix(1000, 0)
	timer := NewTimer(func() time.Time { return now })
	s := NewShard(Options[ledgerCommand, ledgerFact]{
		Name: "ledger", New: newLedger, Codec: ledgerCodec{}, Facts: &MemoryFacts{}, Timer: timer,
		Now: func() time.Time { return now },
	})
	w := doWithdraw(s, "a", 1)
	if next := timer.Tick(); !next.Equal(now.Add(time.Minute)) {
		t.Fatalf("next due %v, want a minute from %v", next, now)
	}
	now = now.Add(time.Minute)
	if next := timer.Tick(); !next.IsZero() {
		t.Fatalf("due at %v after the timeout was served", next)
	}
	if _, err := w.Wait(t.Context()); !errors.Is(err, errTimedOut) {
		t.Fatalf("withdrawal: %v, want %v", err, errTimedOut)
	}
}

func TestSequenceJoinsTheEntryAndHeldShardsAdoptIt(t *testing.T) {
	facts, other := &MemoryFacts{}, &MemoryFacts{}
	a, b := openLedger(facts, 0, nil), openLedger(other, 1, nil)
	held, err := HoldAll([]*Shard[ledgerCommand, ledgerFact]{a, b})
	if err != nil {
		t.Fatal(err)
	}
	p := NewPromise[int64]()
	err = held[0].RunWith(deposit{"a", 3, p}, func(batch Batch) (Sequenced, error) {
		got, err := facts.Append(batch)
		held[1].Adopt(got.Pending, 40, balanceSet{"b", 4})
		return got, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		h.Release()
	}
	wantAnswer(t, p.Future(), 3)
	wantAnswer(t, doBalance(b, "b"), 4)
}

func TestFactsKnowTheirOffset(t *testing.T) {
	l := newLedger().(*ledger)
	facts := &MemoryFacts{}
	s := NewShard(Options[ledgerCommand, ledgerFact]{
		New: func() Machine[ledgerCommand, ledgerFact] { return l }, Codec: ledgerCodec{}, Facts: facts,
	})
	doDeposit(s, "a", 1)
	doWithdraw(s, "b", 1) // parked: volatile, takes no offset
	doDeposit(s, "b", 1)
	if want := []model.Offset{0, 1}; len(l.offsets) != 2 || l.offsets[0] != want[0] || l.offsets[1] != want[1] {
		t.Fatalf("applied at %v, want %v", l.offsets, want)
	}
}
