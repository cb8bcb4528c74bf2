package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (s *shell) client(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(s.brokers))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// What was printed is committed, what was not is not; the end is the end for a group too.
func TestConsumeInAGroup(t *testing.T) {
	s := newShell(t, "t")
	s.input("1\n2\n3\n4\n5\n", "produce", "t")
	equal(t, s.run("consume", "t", "-g", "g", "-n", "2"), "1\n2\n")
	equal(t, s.run("consume", "t", "-g", "g", "-e"), "3\n4\n5\n")
	equal(t, s.run("consume", "t", "-g", "g", "-e", "-o", "end"), "")
	equal(t, s.run("consume", "t", "-g", "late", "-e", "-o", "end"), "")
	equal(t, s.run("consume", "-r", "t.*", "-g", "third", "-e", "-o", "+3"), "4\n5\n")
}

func TestGroupDescribe(t *testing.T) {
	s := newShell(t, "t")
	s.input("1\n2\n3\n", "produce", "t")
	s.run("consume", "t", "-g", "g", "-n", "1")
	equal(t, s.run("group", "list"), lines(
		"GROUP  STATE  TYPE     PROTOCOL-TYPE  COORDINATOR",
		"g      Empty  classic  consumer       0"))
	equal(t, s.run("group", "describe", "g"), lines(
		"SUMMARY",
		"GROUP        g",
		"STATE        Empty",
		"PROTOCOL     -",
		"COORDINATOR  0",
		"MEMBERS      0",
		"TOTAL-LAG    2",
		"",
		"PARTITIONS",
		"TOPIC  PARTITION  OFFSET  START  END  LAG  MEMBER  CLIENT  HOST",
		"t      0          1       0      3    2    -       -       -"))
	equal(t, s.run("group", "describe", "-r", "g.*", "--format", "json"), `[
  {
    "group": "g",
    "state": "Empty",
    "protocol": "",
    "coordinator": 0,
    "members": [],
    "total_lag": 2,
    "partitions": [
      {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "start_offset": 0,
        "end_offset": 3,
        "lag": 2
      }
    ]
  }
]
`)
}

func TestGroupDescribeShowsMembers(t *testing.T) {
	s := newShell(t, "t")
	s.input("1\n", "produce", "t")
	member := s.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ClientID("worker"), kgo.InstanceID("w1"))
	if f := member.PollFetches(t.Context()); f.NumRecords() != 1 {
		t.Fatal(f.Errors())
	}
	out := s.run("group", "describe", "g", "--members")
	for _, words := range []string{"STATE        Stable", "MEMBERS      1", "MEMBERS\nMEMBER ", " w1        worker "} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	s.fail(exitFailed, "perigee: g: NON_EMPTY_GROUP", "group", "delete", "g")
	r := s.fail(exitFailed, "group g is Stable with 1 members: stop them first", "group", "reset-offsets", "g", "-t", "t", "--to-earliest", "--execute")
	equal(t, r.out, "")
}

func TestGroupReset(t *testing.T) {
	s := newShell(t, "t", "u")
	s.input("1000 0\n2000 1\n3000 2\n4000 3\n", "produce", "t", "-f", `%T %v\n`)
	s.input("x\n", "produce", "u")
	s.run("consume", "t", "-g", "g", "-n", "2")

	// Without --execute nothing happens.
	r := s.try("", "group", "reset-offsets", "g", "-t", "t", "--to-earliest")
	if r.code != exitDone || r.err != "Nothing was changed. Add --execute to do it.\n" {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	equal(t, r.out, lines("TOPIC  PARTITION  FROM  TO  STATUS", "t      0          2     0   planned"))
	equal(t, s.run("consume", "t", "-g", "g", "-n", "1"), "2\n")

	file := filepath.Join(t.TempDir(), "offsets.csv")
	if err := os.WriteFile(file, []byte("# topic,partition,offset\nt, 0, 1\nu,0,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ flags, want string }{
		{"-t t --to-earliest", "t 0 3 0"},
		{"-t t:0 --to-latest", "t 0 0 4"},
		{"-t t --shift-by -3", "t 0 4 1"},
		{"-t t --shift-by 100", "t 0 1 4"}, // no further than the end
		{"--all-topics --to-offset 2", "t 0 4 2"},
		{"-t t --to-current", "t 0 2 2"},
		{"-t t --to-datetime 1970-01-01T00:00:03Z", "t 0 2 2"},
		{"-t t --to-datetime 2100-01-01", "t 0 2 4"},
		{"-t t --by-duration 1h", "t 0 4 4"},
		{"--from-file " + file, "t 0 4 1 u 0 - 1"},
		{"--all-topics --to-earliest", "t 0 1 0 u 0 1 0"},
	} {
		out := s.run(append([]string{"group", "reset-offsets", "g", "--execute"}, strings.Fields(tc.flags)...)...)
		_, rows, _ := strings.Cut(out, "\n")
		equal(t, strings.ReplaceAll(strings.Join(strings.Fields(rows), " "), " reset", ""), tc.want)
	}
	s.fail(exitFailed, "t/7: ", "group", "reset-offsets", "g", "-t", "t:7", "--to-earliest")
	s.fail(exitFailed, "absent: UNKNOWN_TOPIC_OR_PARTITION", "group", "reset-offsets", "g", "-t", "absent", "--to-earliest")
	s.fail(exitFailed, "u/0: nothing to shift", "group", "reset-offsets", "new", "-t", "u", "--shift-by", "1")
	if err := os.WriteFile(file, []byte("t,0,1\nt,zero,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.fail(exitFailed, "offsets.csv:2: ", "group", "reset-offsets", "g", "--from-file", file)
}

func TestGroupDelete(t *testing.T) {
	s := newShell(t, "t", "u")
	for _, topic := range []string{"t", "u"} {
		s.input("x\n", "produce", topic)
	}
	s.run("consume", "t", "u", "-g", "g1", "-n", "2")
	s.run("consume", "t", "-g", "g2", "-n", "1")
	equal(t, s.run("group", "delete-offsets", "g1", "-t", "u", "-t", "t:0"), lines(
		"TOPIC  PARTITION  STATUS", "t      0          deleted", "u      0          deleted"))
	s.fail(exitFailed, "perigee: t: the group has no offsets of this topic", "group", "delete-offsets", "g1", "-t", "t")
	if lag := s.run("group", "describe", "g1", "--format", "json"); !strings.Contains(lag, `"partitions": []`) {
		t.Fatal(lag)
	}
	s.fail(exitUsage, "delete g1, g2: add --yes to confirm", "group", "delete", "-r", "g.")
	equal(t, s.run("group", "delete", "-r", "g.", "--yes"), lines("GROUP  STATUS", "g1     deleted", "g2     deleted"))
	equal(t, s.run("group", "list", "--format", "json"), "[]\n")
	s.fail(exitFailed, "perigee: g1: GROUP_ID_NOT_FOUND", "group", "delete", "g1")
}

// The last stable offset may stand in front of a marker: what is aborted before it
// is never delivered, and the consumer has to find out that it is at the end.
func TestConsumeEndsInFrontOfAnOpenTransaction(t *testing.T) {
	s := newShell(t, "t")
	begin := func(id string) *kgo.Client {
		c := s.client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte(id)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	aborting := begin("aborted")
	begin("open")
	if err := aborting.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	equal(t, s.run("consume", "t", "-e", "--read-committed"), "")
	equal(t, s.run("consume", "t", "-e"), "aborted\nopen\n")
	equal(t, s.run("topic", "offsets", "t"), lines("TOPIC  PARTITION  START  STABLE  END", "t      0          0      1       3"))

	t.Run("txn verbs", func(t *testing.T) { s.t = t; checkTxnVerbs(t, s) })
}

// checkTxnVerbs looks at the transaction "open", and aborts it.
func checkTxnVerbs(t *testing.T, s *shell) {
	if out := s.run("txn", "list", "--state", "Ongoing"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "\nopen ") {
		t.Fatal(out)
	}
	out := s.run("txn", "describe", "open")
	if !strings.Contains(out, " Ongoing  60000 ") || !strings.Contains(out, " t/0 ") {
		t.Fatal(out)
	}
	s.fail(exitFailed, "perigee: nobody: TRANSACTIONAL_ID_NOT_FOUND", "txn", "describe", "nobody")
	producers := s.run("txn", "producers", "t:0", "--format", "json")
	if !strings.Contains(producers, `"transaction_start_offset": 1,`) {
		t.Fatal(producers)
	}
	// An hour old it might hang; it does not, its coordinator knows it.
	equal(t, s.run("txn", "find-hanging", "t", "--max-transaction-timeout", "0s", "--format", "json"), "[]\n")

	s.fail(exitUsage, "fence the producer of open: add --yes", "txn", "abort", "open")
	s.fail(exitFailed, "nobody: TRANSACTIONAL_ID_NOT_FOUND", "txn", "abort", "nobody", "--yes")
	s.fail(exitFailed, "t/0: no open transaction begins at offset 0", "txn", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0", "--yes")
	if out := s.run("txn", "abort", "open", "--yes"); !strings.HasPrefix(out, "ABORTED  PRODUCER-ID ") || !strings.Contains(out, "\nopen ") {
		t.Fatal(out)
	}
	equal(t, s.run("consume", "t", "-e", "--read-committed"), "")
	s.fail(exitFailed, "open: nothing to abort, its state is ", "txn", "abort", "open", "--yes")
}

// A transaction whose coordinator has forgotten it hangs, is found and is ended.
func TestHangingTransaction(t *testing.T) {
	p := kadm.DescribedProducer{Topic: "t", ProducerID: 1, LastTimestamp: 0, CurrentTxnStartOffset: 4}
	closed := kadm.DescribedProducer{Topic: "t", ProducerID: 2, CurrentTxnStartOffset: -1}
	young := kadm.DescribedProducer{Topic: "t", ProducerID: 3, LastTimestamp: 3_600_000, CurrentTxnStartOffset: 5}
	old := chooseOld([]kadm.DescribedProducer{p, closed, young}, time.UnixMilli(3_600_001), time.Hour)
	if len(old) != 1 || old[0].ProducerID != 1 {
		t.Fatalf("%+v", old)
	}
	s := newShell(t, "t")
	c := s.client()
	h, hangs, err := examine(t.Context(), kadm.NewClient(c), p)
	if err != nil || !hangs || h.Reason != "no coordinator knows the producer" || h.StartOffset != 4 {
		t.Fatalf("%+v, %v, %v", h, hangs, err)
	}
}
