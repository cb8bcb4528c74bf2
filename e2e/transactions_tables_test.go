package e2e

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/e2e/txntable"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
	"github.com/perigeemq/perigee/storage/vfs"
)

// tableCase is a row of the decision tables in one request version, with a
// transactional id and producer ids of its own.
type tableCase struct {
	row     txntable.Row
	version int16
	id      string
	base    int64 // added to the producer ids of the row
}

// producer translates an identity of the row.
func (c tableCase) producer(p model.ProducerIdentity) identity {
	if p.ID < 0 {
		return identity{int64(p.ID), int16(p.Epoch)}
	}
	return identity{c.base + int64(p.ID), int16(p.Epoch)}
}

func (c tableCase) String() string {
	return fmt.Sprintf("tables.txt:%d %s v%d: %s", c.row.Line, c.row.Request.Verb, c.version, c.row.Text)
}

// Every row of the decision tables that a broker can be brought to holds over
// the wire, in every version of its request. The records before are written
// into __transaction_state of a stopped broker, so the start replays them.
func TestTransactionTablesOverTheWire(t *testing.T) {
	for _, level := range []txn.Version{txn.V0, txn.V2} {
		t.Run(fmt.Sprintf("transaction.version %d", level), func(t *testing.T) {
			b, w := txnBroker(t, quickTimeouts, fmt.Sprintf("perigee.transaction.version=%d", level))
			b.NeedsOwnProcess()
			w.newTopic("t", 2)
			topic := w.ids["t"]
			cases := wireCases(t, topic, level)
			b.Stop()
			seedRecords(t, b.Dir, cases)
			b.Restart()
			w = rawConn(t, b.Kafka)
			w.ids["t"] = topic
			for _, c := range cases {
				runCase(w, c)
			}
			checkMarkers(w, cases)
			t.Logf("%d rows and versions", len(cases))
		})
	}
}

// wireCases chooses the rows that exist over the wire. States in the middle of
// an end do not: a start finishes them. Nor do sessions, which are MoonMQ's.
func wireCases(t *testing.T, topic model.TopicID, level txn.Version) []tableCase {
	t.Helper()
	rows, err := txntable.Rows(topic)
	if err != nil {
		t.Fatal(err)
	}
	var cases []tableCase
	for _, row := range rows {
		r := row.Before
		if !slices.Contains(row.Levels, level) || row.Request.Session || strings.HasSuffix(row.Request.Verb, "S") ||
			r != nil && (r.Owner == txn.Session || r.State == txn.PrepareCommit || r.State == txn.PrepareAbort) {
			continue
		}
		for _, version := range versionsOf(row.Request) {
			n := len(cases)
			cases = append(cases, tableCase{row, version, fmt.Sprintf("case-%d-%d", level, n), int64(1_000_000 + 100*n)})
		}
	}
	return cases
}

func versionsOf(r txntable.Request) []int16 {
	switch r.Verb {
	case "init":
		if r.Producer.ID == model.NoProducerID && r.Producer.Epoch == model.NoProducerEpoch {
			return []int16{0, 1, 2, 3, 4, 5}
		}
		return []int16{3, 4, 5}
	case "add":
		return []int16{0, 1, 2, 3}
	case "addv4", "verify":
		return []int16{4, 5}
	case "commit0", "abort0":
		return []int16{0, 1, 2, 3, 4}
	}
	return []int16{5}
}

// seedRecords writes the records of the cases as a broker would.
func seedRecords(t *testing.T, dir string, cases []tableCase) {
	t.Helper()
	withEngine(t, dir, func(engine *storage.Engine) {
		for _, c := range cases {
			if c.row.Before != nil {
				seedRecord(t, engine, c)
			}
		}
	})
}

// withEngine opens the data of a stopped broker.
func withEngine(t *testing.T, dir string, use func(*storage.Engine)) {
	t.Helper()
	disk, err := vfs.OpenDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	engine, err := storage.Open(t.Context(), storage.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	use(engine)
	if err := engine.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func seedRecord(t *testing.T, engine *storage.Engine, c tableCase) {
	t.Helper()
	r := *c.row.Before
	began := time.Now()
	if c.row.Overdue {
		began = began.Add(-2 * r.Timeout)
	}
	r.ID, r.Start, r.Updated = c.id, model.Timestamp(began.UnixMilli()), model.Timestamp(began.UnixMilli())
	r.Producer.ID += model.ProducerID(c.base)
	if r.PrevID != model.NoProducerID {
		r.PrevID += model.ProducerID(c.base)
	}
	writeState(t, engine, txn.Fact{ID: r.ID, Record: &r}, r.Updated)
}

// writeState writes what is known of a transactional id, as a coordinator does.
func writeState(t *testing.T, engine *storage.Engine, f txn.Fact, at model.Timestamp) {
	t.Helper()
	key, value, _ := txn.Codec{}.Encode(f)
	b := batch.NewBuilder(batch.BuilderOptions{})
	b.Add(batch.NewRecord{Timestamp: at, Key: key, Value: value})
	view, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	tp := model.TopicPartition{Topic: catalog.InternalID(catalog.TransactionsTopic), Partition: javaPartition(f.ID, 50)}
	p, err := engine.OpenPartition(tp, catalog.TransactionsTopic, storage.PartitionConfig{Compact: true})
	if err != nil {
		t.Fatal(err)
	}
	pending, err := engine.Append(storage.Append{Partition: p, Batch: view, Internal: true})
	if err == nil {
		err = pending.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// javaPartition is where Kafka keeps a key of its internal topics.
func javaPartition(key string, partitions int32) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(key)) {
		h = 31*h + int32(unit)
	}
	if h == math.MinInt32 {
		return 0
	}
	return max(h, -h) % partitions
}

// runCase sends the row's request and compares the answer and the state after.
func runCase(w *raw, c tableCase) {
	w.t.Helper()
	got, code := sendCase(w, c)
	if want := wantCode(c); code != want {
		w.t.Errorf("%v: code %d, want %d", c, code, want)
		return
	}
	if want := c.row.Answer; want != (model.ProducerIdentity{}) && !c.same(want, got) {
		w.t.Errorf("%v: answered %v, want %v", c, got, want)
	}
	state := w.describe(c.id)
	if c.row.Request.Verb == "tick" && c.row.Changes {
		eventually(w.t, 10*time.Second, func() string { return c.String() + ": the transaction stays open" }, func() bool {
			state = w.describe(c.id)
			return state.State == c.row.After.State.String()
		})
	}
	c.checkState(w, state)
}

// same compares with an identity of the row, of which "new" is any that the row
// does not name.
func (c tableCase) same(want model.ProducerIdentity, got identity) bool {
	if want.ID == txntable.NewID {
		return got.id > 0 && (got.id < c.base || got.id >= c.base+100) && got.epoch == int16(want.Epoch)
	}
	return got == c.producer(want)
}

func (c tableCase) checkState(w *raw, got kmsg.DescribeTransactionsResponseTransactionState) {
	w.t.Helper()
	want := c.row.After
	if want == nil {
		if got.ErrorCode != 105 {
			w.t.Errorf("%v: the id exists afterwards, as %s", c, got.State)
		}
		return
	}
	var partitions []int32
	for _, topic := range got.Topics {
		partitions = append(partitions, topic.Partitions...)
	}
	var wanted []int32
	for _, p := range want.Partitions {
		wanted = append(wanted, p.Partition)
	}
	producer := identity{got.ProducerID, got.ProducerEpoch}
	if got.ErrorCode != 0 || got.State != want.State.String() || !c.same(want.Producer, producer) || !slices.Equal(partitions, wanted) {
		w.t.Errorf("%v: afterwards code %d, %s %v with partitions %v", c, got.ErrorCode, got.State, producer, partitions)
	}
}

func sendCase(w *raw, c tableCase) (identity, int16) {
	r := c.row.Request
	p := c.producer(r.Producer)
	switch r.Verb {
	case "init":
		return w.tryInit(c.version, c.id, r.Timeout, p)
	case "add", "addv4":
		return nobody, w.addPartitions(c.version, c.id, p, "t", r.Partitions...)
	case "verify":
		return nobody, w.verify(c.version, c.id, p, "t", r.Partitions[0])
	case "tick":
		return nobody, 0
	}
	return w.end(c.version, c.id, p, r.Verb[0] == 'c')
}

// wantCode is the code of a row's error in one version of its request.
func wantCode(c tableCase) int16 {
	if c.row.Error == nil {
		return 0
	}
	knows := func(version int16, code, instead int16) int16 {
		if c.version >= version {
			return code
		}
		return instead
	}
	switch c.row.Error {
	case txn.ErrFenced:
		if c.row.Request.Verb == "init" {
			return knows(4, 90, 47)
		}
		return knows(2, 90, 47)
	case txn.ErrNotEnrolled:
		return knows(4, 120, 48) // measured on Kafka 4.4
	}
	return map[error]int16{
		txn.ErrInvalidRequest: 42, txn.ErrInvalidTimeout: 50, txn.ErrMapping: 49, txn.ErrInvalidState: 48, txn.ErrConcurrent: 51,
	}[c.row.Error]
}

// checkMarkers reads both partitions and compares the control batches of every
// producer with the rows.
func checkMarkers(w *raw, cases []tableCase) {
	w.t.Helper()
	type marker struct {
		producer identity
		commit   bool
	}
	found := map[marker][]int32{}
	for partition := range int32(2) {
		for from, end := int64(0), w.latest("t", partition, false); from < end; {
			f := w.fetch(11, "t", partition, from, false)
			w.want("Fetch", f.code, 0)
			for _, view := range f.batches {
				from = int64(view.NextOffset())
				m, err := view.Marker()
				if err != nil {
					w.t.Fatalf("partition %d offset %d: %v", partition, view.BaseOffset(), err)
				}
				key := marker{identity{int64(m.Producer.ID), int16(m.Producer.Epoch)}, m.Type == batch.Commit}
				found[key] = append(found[key], partition)
			}
		}
	}
	for _, c := range cases {
		if m := c.row.Marker; m != nil && len(m.Partitions) > 0 {
			key := marker{c.producer(m.Producer), m.Outcome == txn.Commit}
			if got := found[key]; !slices.Equal(got, m.Partitions) {
				w.t.Errorf("%v: markers %+v on partitions %v", c, key, got)
			}
			delete(found, key)
		}
	}
	if len(found) > 0 {
		w.t.Errorf("markers nobody asked for: %v", found)
	}
}
