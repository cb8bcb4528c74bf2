package deadletter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// memoryLog is a dead-letter topic of one partition in memory, read three records
// at a time.
type memoryLog struct {
	records   []Dead
	published []Publication
	committed model.Offset
	fail      error // of the next Publish
	order     []string
}

func (l *memoryLog) Read(_ context.Context, _ int32, from model.Offset) ([]Dead, model.Offset, error) {
	end := min(from+3, model.Offset(len(l.records)))
	return l.records[from:end], end, nil
}

func (l *memoryLog) Publish(_ context.Context, all []Publication) error {
	if err := l.fail; err != nil {
		l.fail = nil
		return err
	}
	l.published = append(l.published, all...)
	l.order = append(l.order, fmt.Sprint("publish ", len(all)))
	return nil
}

func (l *memoryLog) Commit(_ context.Context, group string, _ int32, next model.Offset) error {
	l.committed = next
	l.order = append(l.order, fmt.Sprint("commit ", next))
	return nil
}

func dead(offset model.Offset, topic, reason string, more ...batch.RecordHeader) Dead {
	d := Dead{Offset: offset, Key: []byte("k"), Value: fmt.Append(nil, offset)}
	if topic != "" {
		d.Headers = Headers(batch.EncodeHeaders(more), Provenance{Topic: topic, Partition: 1, Reason: reason, Deliveries: 3})
	}
	return d
}

func replayed(n string) batch.RecordHeader {
	return batch.RecordHeader{Key: HeaderReplays, Value: []byte(n)}
}

func TestRedriveFates(t *testing.T) {
	r := Redrive{Topic: "orders.dlq", Keep: func(d Dead) bool { return d.Offset != 3 }}
	for _, tt := range []struct {
		d    Dead
		want Fate
	}{
		{dead(0, "orders", "x"), Redriven},
		{dead(1, "", ""), NoOrigin},
		{dead(2, "orders.dlq", "x"), Loop},
		{dead(3, "orders", "x"), Filtered},
		{dead(4, "orders", "x", replayed("4")), Redriven},
		{dead(5, "orders", "x", replayed("5")), Exhausted},
		{dead(6, "orders", "x", batch.RecordHeader{Key: HeaderPointer, Value: []byte("true")}), Pointer},
	} {
		if _, _, got := r.Judge(tt.d); got != tt.want {
			t.Errorf("record %d: %s, want %s", tt.d.Offset, got, tt.want)
		}
	}
	own := batch.RecordHeader{Key: "trace", Value: []byte("7")}
	p, _, _ := r.Judge(dead(4, "orders", "x", own, replayed("4")))
	want := Publication{Topic: "orders", Partition: 1, Key: []byte("k"), Value: []byte("4"), Headers: []batch.RecordHeader{own, replayed("5")}}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("published %+v, want %+v", p, want)
	}
	elsewhere := Redrive{Topic: "orders.dlq", To: "orders.dlq"}
	if _, _, got := elsewhere.Judge(dead(0, "orders", "x")); got != Loop {
		t.Errorf("redriving a topic into itself: %s", got)
	}
}

// Published before committed, chunk by chunk; a run that breaks off is continued
// by the next, which repeats what was not committed and nothing else.
func TestRedriveIsResumable(t *testing.T) {
	l := &memoryLog{}
	for i := range model.Offset(7) {
		l.records = append(l.records, dead(i, "orders", []string{"bad json", "timeout"}[i%2]))
	}
	l.fail = errors.New("broker went away")
	r := Redrive{Topic: "orders.dlq", Group: "g", Execute: true}
	span := func() []Span { return []Span{{0, l.committed, 7}} }
	if _, err := r.Run(t.Context(), l, span()); err == nil {
		t.Fatal("the failure is lost")
	}
	if l.committed != 0 {
		t.Fatalf("committed %d although nothing was published", l.committed)
	}
	r.Max = 4
	report, err := r.Run(t.Context(), l, span())
	if err != nil || report.Fates[Redriven] != 4 || l.committed != 4 {
		t.Fatalf("first part: %+v, %v, committed %d", report, err, l.committed)
	}
	r.Max = 0
	report, err = r.Run(t.Context(), l, span())
	if err != nil || report.Fates[Redriven] != 3 || l.committed != 7 || len(l.published) != 7 {
		t.Fatalf("second part: %+v, %v, committed %d, published %d", report, err, l.committed, len(l.published))
	}
	want := []string{"publish 3", "commit 3", "publish 1", "commit 4", "publish 3", "commit 7"}
	if !slices.Equal(l.order, want) {
		t.Errorf("order %q, want %q", l.order, want)
	}
}

// An end that moves with the clock passes nothing by: the next run begins there.
func TestRedriveStopsAtItsEnd(t *testing.T) {
	l := &memoryLog{}
	for i := range model.Offset(7) {
		d := dead(i, "orders", "x")
		d.Timestamp = model.Timestamp(100 + i)
		l.records = append(l.records, d)
	}
	r := Redrive{Topic: "orders.dlq", Group: "g", Execute: true, End: 104}
	for _, run := range []struct {
		end       model.Timestamp
		redriven  int
		committed model.Offset
	}{{104, 4, 4}, {104, 0, 4}, {106, 2, 6}, {200, 1, 7}} {
		r.End = run.end
		report, err := r.Run(t.Context(), l, []Span{{0, l.committed, 7}})
		if err != nil || report.Fates[Redriven] != run.redriven || l.committed != run.committed || report.Fates[Filtered] != 0 {
			t.Errorf("until %d: %+v, %v, committed %d, want %d", run.end, report, err, l.committed, run.committed)
		}
	}
}

func TestRedriveDryRunAndRate(t *testing.T) {
	l := &memoryLog{}
	for i := range model.Offset(6) {
		l.records = append(l.records, dead(i, "orders", []string{"rare", "common", "common"}[i%3]))
	}
	dry := Redrive{Topic: "orders.dlq"}
	report, err := dry.Run(t.Context(), l, []Span{{0, 0, 6}})
	if err != nil || len(l.published) != 0 || len(l.order) != 0 {
		t.Fatalf("a dry run did something: %v, %v", l.order, err)
	}
	if got := report.TopReasons(); !slices.Equal(got, []string{"common", "rare"}) || report.Reasons["common"] != 4 || report.Targets["orders"] != 6 {
		t.Errorf("report %+v", report)
	}
	var paused time.Duration
	slow := Redrive{Topic: "orders.dlq", Group: "g", Execute: true, Rate: 2, Pause: func(_ context.Context, d time.Duration) error {
		paused += d
		return nil
	}}
	if _, err := slow.Run(t.Context(), l, []Span{{0, 0, 6}}); err != nil || paused != 3*time.Second {
		t.Errorf("six records at two a second paused for %v, %v", paused, err)
	}
}

// What a small read unpacks to is not published in one piece.
func TestRedrivePublishesInPieces(t *testing.T) {
	l := &memoryLog{}
	for i := range model.Offset(3) {
		d := dead(i, "orders", "x")
		d.Value = make([]byte, publishBytes*[]int{1, 3, 1}[i]/3)
		l.records = append(l.records, d)
	}
	r := Redrive{Topic: "orders.dlq", Group: "g", Execute: true}
	if _, err := r.Run(t.Context(), l, []Span{{0, 0, 3}}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"publish 1", "publish 1", "publish 1", "commit 3"}; !slices.Equal(l.order, want) {
		t.Errorf("order %q, want %q", l.order, want)
	}
}

func TestProgressGroup(t *testing.T) {
	plain := ProgressGroup("orders.dlq", "", "")
	if plain != "perigee-redrive-orders.dlq" {
		t.Errorf("without conditions: %s", plain)
	}
	seen := map[string][]string{plain: nil}
	for _, conditions := range [][]string{{"a", ""}, {"", "a"}, {"a", "b"}, {"a b"}, {"a", "b", "c"}} {
		name := ProgressGroup("orders.dlq", conditions...)
		if other, taken := seen[name]; taken {
			t.Errorf("%q and %q share %s", conditions, other, name)
		}
		seen[name] = conditions
		if ProgressGroup("orders.dlq", conditions...) != name {
			t.Errorf("%q has two groups", conditions)
		}
	}
}
