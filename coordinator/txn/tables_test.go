package txn_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/e2e/txntable"
	"github.com/perigeemq/perigee/storage/model"
)

// fresh is the producer id the tests offer when a decision asks for one.
const fresh model.ProducerID = 1000

var topicT = model.TopicID{15: 1}

// Every row of the decision tables holds for the pure machine, at each level,
// and again after the record went through its bytes.
func TestTables(t *testing.T) {
	rows, err := txntable.Rows(topicT)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, level := range row.Levels {
			t.Run(fmt.Sprintf("%s/line %d level %d", row.Table, row.Line, level), func(t *testing.T) {
				runRow(t, row, level)
			})
		}
	}
}

func runRow(t *testing.T, row txntable.Row, level txn.Version) {
	t.Log(row.Text)
	now := time.UnixMilli(1_000_000_000)
	began := now.Add(-time.Second)
	if row.Overdue {
		began = now.Add(-2 * txntable.DefaultTimeout)
	}
	m := txn.NewMachine(txn.Options{})
	if row.Before != nil {
		r := *row.Before
		r.ID, r.Start, r.Updated = "id", model.Timestamp(began.UnixMilli()), model.Timestamp(began.UnixMilli())
		m.Apply(throughBytes(t, txn.Fact{ID: "id", Record: &r}), 0)
	}
	before, _ := m.Lookup("id")

	d := decide(m, now, command(row.Request, level))
	got := d.Err
	if len(d.Missing) > 0 {
		got = txn.ErrNotEnrolled
	}
	if !errors.Is(got, row.Error) || (row.Error == nil && got != nil) {
		t.Fatalf("refused with %v, want %v", got, row.Error)
	}
	if want := actual(row.Answer); want != (model.ProducerIdentity{}) && d.Producer != want {
		t.Errorf("answered %v, want %v", d.Producer, want)
	}
	checkMarkers(t, d.Markers, row.Marker)
	if !row.Changes && len(d.Facts) > 0 && !sameRecord(*d.Facts[0].Record, before) {
		t.Errorf("wrote %+v, want nothing new", d.Facts[0].Record)
	}
	if after, _ := m.Lookup("id"); !cmp.Equal(after, before) {
		t.Errorf("deciding changed the record to %+v", after)
	}
	for _, f := range d.Facts {
		m.Apply(throughBytes(t, f), 1)
	}
	after, known := m.Lookup("id")
	if known != (row.After != nil) {
		t.Fatalf("id is known: %v", known)
	}
	if !known {
		return
	}
	want := *row.After
	want.ID = "id"
	want.Producer = actual(want.Producer)
	if !sameRecord(after, want) {
		t.Errorf("record after, -want +got:\n%s", cmp.Diff(want, after))
	}
}

// decide considers a command, with a new producer id if it asks for one.
func decide(m *txn.Machine, now time.Time, c txn.Command) txn.Decision {
	d := m.Consider(now, c, model.NoProducerID)
	if d.NeedsProducerID {
		d = m.Consider(now, c, fresh)
	}
	return d
}

func command(r txntable.Request, level txn.Version) txn.Command {
	owner := txn.Client
	if r.Session {
		owner = txn.Session
	}
	parts := txntable.Participants(topicT, r.Partitions)
	switch r.Verb {
	case "init":
		return txn.Init{ID: "id", Timeout: r.Timeout, Given: r.Producer, Owner: owner, Level: level}
	case "add":
		return txn.Enrol{ID: "id", Producer: r.Producer, Partitions: parts, Version: txn.V0}
	case "addv4":
		return txn.Enrol{ID: "id", Producer: r.Producer, Partitions: parts, Version: txn.V2}
	case "verify":
		return txn.Verify{ID: "id", Producer: r.Producer, Partitions: parts}
	case "tick":
		return txn.TimeOut{ID: "id", Level: level}
	}
	end := txn.End{ID: "id", Producer: r.Producer}
	if r.Verb[0] == 'c' {
		end.Outcome = txn.Commit
	}
	switch r.Verb[len(r.Verb)-1] {
	case '2':
		end.Version = txn.V2
	case 'S':
		end.Owner = txn.Session
	}
	return end
}

func actual(p model.ProducerIdentity) model.ProducerIdentity {
	if p.ID == txntable.NewID {
		p.ID = fresh
	}
	return p
}

func checkMarkers(t *testing.T, got *txn.Markers, want *txntable.Marker) {
	t.Helper()
	if (got == nil) != (want == nil) {
		t.Fatalf("markers %+v, want %+v", got, want)
	}
	if got == nil {
		return
	}
	var partitions []int32
	for _, p := range got.Partitions {
		partitions = append(partitions, p.Partition)
	}
	if got.Producer != want.Producer || got.Outcome != want.Outcome || !slices.Equal(partitions, want.Partitions) {
		t.Errorf("markers %+v, want %+v", got, want)
	}
}

// sameRecord compares what the tables speak of: not the times.
func sameRecord(a, b txn.Record) bool {
	for _, r := range []*txn.Record{&a, &b} {
		r.Start, r.Updated, r.Timeout, r.TimedOut = 0, 0, 0, false
	}
	return cmp.Equal(a, b)
}
