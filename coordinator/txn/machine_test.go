package txn_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/e2e/txntable"
	"github.com/perigeemq/perigee/storage/model"
)

var noProducer = model.ProducerIdentity{ID: model.NoProducerID, Epoch: model.NoProducerEpoch}

// world is a machine with a clock that a test moves.
type world struct {
	*testing.T
	m   *txn.Machine
	now time.Time
	ids model.ProducerID
}

func newWorld(t *testing.T) *world {
	return &world{T: t, m: txn.NewMachine(txn.Options{}), now: time.UnixMilli(1_000_000), ids: 100}
}

// do decides and applies.
func (w *world) do(c txn.Command) txn.Decision {
	w.Helper()
	d := w.m.Consider(w.now, c, model.NoProducerID)
	if d.NeedsProducerID {
		w.ids++
		d = w.m.Consider(w.now, c, w.ids)
	}
	for _, f := range d.Facts {
		w.m.Apply(throughBytes(w.T, f), 0)
	}
	return d
}

func (w *world) init(id string, timeout time.Duration, owner txn.Owner) model.ProducerIdentity {
	w.Helper()
	d := w.do(txn.Init{ID: id, Timeout: timeout, Given: noProducer, Owner: owner})
	if d.Err != nil {
		w.Fatalf("init %s: %v", id, d.Err)
	}
	return d.Producer
}

func (w *world) enrol(id string, p model.ProducerIdentity, partitions ...int32) {
	w.Helper()
	if d := w.do(txn.Enrol{ID: id, Producer: p, Partitions: txntable.Participants(topicT, partitions)}); d.Err != nil {
		w.Fatalf("enrol %s: %v", id, d.Err)
	}
}

func (w *world) state(id string) txn.State {
	w.Helper()
	r, ok := w.m.Lookup(id)
	if !ok {
		w.Fatalf("%s is unknown", id)
	}
	return r.State
}

// The timeout runs from the first enrolment: an id that only initialised, or
// that enrols more later, keeps the deadline of its transaction.
func TestTimeoutRunsFromTheFirstEnrolment(t *testing.T) {
	w := newWorld(t)
	p := w.init("a", 10*time.Second, txn.Client)
	w.now = w.now.Add(time.Hour)
	w.enrol("a", p, 0)
	w.now = w.now.Add(9 * time.Second)
	w.enrol("a", p, 1)
	w.now = w.now.Add(time.Second)
	if got := w.m.Overdue(w.now, 10); len(got) != 0 {
		t.Errorf("overdue at the deadline: %v", got)
	}
	w.now = w.now.Add(time.Millisecond)
	if got := w.m.Overdue(w.now, 10); !slices.Equal(got, []string{"a"}) {
		t.Errorf("overdue after the deadline: %v", got)
	}
}

func TestOverdueListsTheLongestFirst(t *testing.T) {
	w := newWorld(t)
	for i, id := range []string{"c", "a", "b"} {
		w.enrol(id, w.init(id, time.Duration(3-i)*time.Second, txn.Client), 0)
	}
	w.now = w.now.Add(time.Minute)
	if got := w.m.Overdue(w.now, 2); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got %v", got)
	}
}

// A broker that restarts with its clock an hour behind gives the transaction
// its timeout, not an hour more.
func TestClockThatWentBackOverARestart(t *testing.T) {
	w := newWorld(t)
	w.enrol("a", w.init("a", time.Minute, txn.Client), 0)
	w.now = w.now.Add(-time.Hour)
	w.m.Loaded(w.now)
	w.now = w.now.Add(time.Minute + time.Millisecond)
	if d := w.do(txn.TimeOut{ID: "a", Level: txn.V2}); d.Markers == nil {
		t.Error("the transaction is immortal")
	}
}

// Seven days of silence forget an id, but never one with a transaction; what
// its producer sends afterwards is not understood.
func TestExpiry(t *testing.T) {
	w := newWorld(t)
	idle, busy := w.init("idle", time.Minute, txn.Client), w.init("busy", time.Minute, txn.Client)
	w.enrol("busy", busy, 0)
	endless, _ := w.m.Lookup("busy") // as Kafka writes it for two-phase commit
	endless.Timeout = txn.NoTimeout
	w.m.Apply(txn.Fact{ID: "busy", Record: &endless}, 0)
	w.now = w.now.Add(7*24*time.Hour - time.Millisecond)
	if got := w.m.Expired(w.now, 10); len(got) != 0 {
		t.Errorf("expired early: %v", got)
	}
	w.now = w.now.Add(time.Millisecond)
	if got := w.m.Expired(w.now, 10); !slices.Equal(got, []string{"idle"}) {
		t.Fatalf("expired %v", got)
	}
	if d := w.do(txn.Forget{IDs: []string{"idle", "busy"}}); len(d.Facts) != 1 {
		t.Fatalf("forgot %+v", d.Facts)
	}
	if d := w.do(txn.Enrol{ID: "idle", Producer: idle, Partitions: txntable.Participants(topicT, []int32{0})}); !errors.Is(d.Err, txn.ErrMapping) {
		t.Errorf("enrol after expiry: %v", d.Err)
	}
	if d := w.do(txn.End{ID: "idle", Producer: idle}); !errors.Is(d.Err, txn.ErrMapping) {
		t.Errorf("end after expiry: %v", d.Err)
	}
	if d := w.do(txn.Init{ID: "idle", Timeout: time.Minute, Given: idle}); d.Err != nil || d.Producer.ID == idle.ID || d.Producer.Epoch != 0 {
		t.Errorf("init after expiry: %v, %v", d.Producer, d.Err)
	}
	if overdue := w.m.Overdue(w.now, 10); len(overdue) != 0 {
		t.Errorf("a transaction without a timeout is overdue: %v", overdue)
	}
}

// An id used between being listed and being forgotten stays.
func TestForgetLooksAgain(t *testing.T) {
	w := newWorld(t)
	w.init("a", time.Minute, txn.Client)
	w.now = w.now.Add(8 * 24 * time.Hour)
	listed := w.m.Expired(w.now, 10)
	w.init("a", time.Minute, txn.Client)
	if d := w.do(txn.Forget{IDs: listed}); len(d.Facts) != 0 {
		t.Errorf("forgot %v", d.Facts)
	}
}

// The session whose transaction timed out is told so until it starts over; a
// Kafka producer is told that it is fenced.
func TestTimedOutSession(t *testing.T) {
	w := newWorld(t)
	s, k := w.init("s", time.Second, txn.Session), w.init("k", time.Second, txn.Client)
	w.enrol("s", s, 0)
	w.enrol("k", k, 0)
	w.now = w.now.Add(time.Minute)
	for _, id := range w.m.Overdue(w.now, 10) {
		d := w.m.Consider(w.now, txn.TimeOut{ID: id}, model.NoProducerID)
		w.m.Apply(d.Facts[0], 0) // live: not through bytes
	}
	if d := w.do(txn.End{ID: "s", Producer: s, Outcome: txn.Commit, Owner: txn.Session}); !errors.Is(d.Err, txn.ErrTimedOut) {
		t.Errorf("session: %v", d.Err)
	}
	if d := w.do(txn.End{ID: "k", Producer: k, Outcome: txn.Commit}); !errors.Is(d.Err, txn.ErrFenced) {
		t.Errorf("client: %v", d.Err)
	}
	s2 := w.init("s", time.Second, txn.Session)
	if d := w.do(txn.End{ID: "s", Producer: s, Owner: txn.Session}); !errors.Is(d.Err, txn.ErrFenced) {
		t.Errorf("the old session after another began: %v", d.Err)
	}
	if s2.Epoch <= s.Epoch+1 {
		t.Errorf("the epoch of the abort was handed out: %v after %v", s2, s)
	}
}

// Recovery finishes what only a restart can finish: decided ends roll forward,
// transactions of dead sessions are aborted, a Kafka producer's stays open.
func TestRecover(t *testing.T) {
	w := newWorld(t)
	for id, r := range map[string]txn.Record{
		"forward": {State: txn.PrepareCommit},
		"back":    {State: txn.PrepareAbort},
		"rotates": {State: txn.PrepareCommit, NextID: 50},
		"session": {State: txn.Ongoing, Owner: txn.Session},
		"client":  {State: txn.Ongoing},
		"done":    {State: txn.CompleteCommit},
	} {
		r.ID, r.Partitions = id, txntable.Participants(topicT, []int32{3})
		r.Producer, r.PrevID, r.LastEpoch = model.ProducerIdentity{ID: 9, Epoch: 4}, model.NoProducerID, model.NoProducerEpoch
		if r.NextID == 0 {
			r.NextID = model.NoProducerID
		}
		w.m.Apply(txn.Fact{ID: id, Record: &r}, 0)
	}
	unfinished := w.m.Unfinished()
	if want := []string{"back", "forward", "rotates", "session"}; !slices.Equal(unfinished, want) {
		t.Fatalf("unfinished %v, want %v", unfinished, want)
	}
	outcomes := map[string]txn.Outcome{}
	for _, id := range append(unfinished, "client", "done", "absent") {
		if d := w.do(txn.Recover{ID: id}); d.Markers != nil {
			outcomes[id] = d.Markers.Outcome
			if d.Markers.Producer != (model.ProducerIdentity{ID: 9, Epoch: 4}) || len(d.Markers.Partitions) != 1 {
				t.Errorf("%s: markers %+v", id, d.Markers)
			}
		}
	}
	if want := map[string]txn.Outcome{"back": txn.Abort, "forward": txn.Commit, "rotates": txn.Commit, "session": txn.Abort}; !cmp.Equal(outcomes, want) {
		t.Errorf("-want +got:\n%s", cmp.Diff(want, outcomes))
	}
	if r, _ := w.m.Lookup("rotates"); r.Producer != (model.ProducerIdentity{ID: 50}) || r.PrevID != 9 {
		t.Errorf("rotation forgotten: %+v", r)
	}
	if again := w.m.Unfinished(); len(again) != 0 {
		t.Errorf("still unfinished: %v", again)
	}
	if w.state("client") != txn.Ongoing {
		t.Errorf("client: %v", w.state("client"))
	}
}

func TestListAndDescribe(t *testing.T) {
	w := newWorld(t)
	var ids []model.ProducerID
	for _, id := range []string{"pay-2", "pay-1", "log"} {
		p := w.init(id, time.Minute, txn.Client)
		ids = append(ids, p.ID)
		if id != "log" {
			w.enrol(id, p, 0)
		}
		w.now = w.now.Add(10 * time.Second)
	}
	fifteen := 15 * time.Second
	pattern, err := txn.CompilePattern("pay")
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := txn.CompilePattern("pay-.|x")
	for name, test := range map[string]struct {
		filter txn.List
		want   []string
	}{
		"everything":        {txn.List{}, []string{"log", "pay-1", "pay-2"}},
		"by state":          {txn.List{States: []txn.State{txn.Ongoing}}, []string{"pay-1", "pay-2"}},
		"by producer":       {txn.List{Producers: ids[:1]}, []string{"pay-2"}},
		"by duration":       {txn.List{Longer: &fifteen, States: []txn.State{txn.Ongoing}}, []string{"pay-1", "pay-2"}},
		"part of the id":    {txn.List{Pattern: pattern}, nil},
		"pattern of the id": {txn.List{Pattern: whole}, []string{"pay-1", "pay-2"}},
	} {
		var got []string
		for _, r := range w.do(test.filter).Records {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if _, err := txn.CompilePattern("a)(b"); err == nil {
		t.Error("a pattern that is two halves was accepted")
	}
	if d := w.do(txn.Describe{ID: "pay-1"}); d.Err != nil || d.Records[0].State != txn.Ongoing {
		t.Errorf("describe: %+v", d)
	}
	for id, want := range map[string]error{"": txn.ErrInvalidRequest, "nobody": txn.ErrNotFound} {
		if d := w.do(txn.Describe{ID: id}); !errors.Is(d.Err, want) {
			t.Errorf("describe %q: %v", id, d.Err)
		}
	}
}

// Ids a MoonMQ session owned last are kept as long as either setting says.
func TestSessionExpiration(t *testing.T) {
	day := 24 * time.Hour
	for _, tt := range []struct {
		owner       txn.Owner
		ids, moonmq time.Duration
		idle        time.Duration
		want        bool
	}{
		{txn.Client, day, 7 * day, 2 * day, true},
		{txn.Session, day, 7 * day, 2 * day, false},
		{txn.Session, day, 7 * day, 8 * day, true},
		{txn.Session, 7 * day, day, 2 * day, false},
		{txn.Session, day, -1, 1000 * day, false},
	} {
		m := txn.NewMachine(txn.Options{IDExpiration: tt.ids, SessionExpiration: tt.moonmq})
		m.Apply(txn.Fact{ID: "x", Record: &txn.Record{ID: "x", State: txn.Empty, Owner: tt.owner}}, 0)
		if got := len(m.Expired(time.UnixMilli(0).Add(tt.idle), 10)) == 1; got != tt.want {
			t.Errorf("%+v: expired %v", tt, got)
		}
	}
}
