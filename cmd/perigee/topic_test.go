package main

import (
	"regexp"
	"strings"
	"testing"
)

// withoutIDs replaces topic ids, which are random.
func withoutIDs(s string) string {
	return regexp.MustCompile(`"id": "[\w-]{22}"`).ReplaceAllString(s, `"id": "ID"`)
}

func TestTopicLifeCycle(t *testing.T) {
	s := newShell(t)
	equal(t, s.run("topic", "create", "orders", "state", "-p", "3", "--replication-factor", "1", "-c", "retention.ms=1000"), lines(
		"TOPIC   PARTITIONS  REPLICAS  STATUS",
		"orders  3           1         created",
		"state   3           1         created"))
	equal(t, s.run("topic", "list"), lines(
		"TOPIC   PARTITIONS  REPLICAS",
		"orders  3           1",
		"state   3           1"))
	equal(t, withoutIDs(s.run("topic", "list", "--format", "json", "-r", "ord.*", "stat")), `[
  {
    "topic": "orders",
    "id": "ID",
    "partitions": 3,
    "replicas": 1,
    "internal": false
  }
]
`)
	s.input("one\ntwo\n", "produce", "orders", "-p", "1")
	equal(t, s.run("topic", "offsets", "orders"), lines(
		"TOPIC   PARTITION  START  STABLE  END",
		"orders  0          0      0       0",
		"orders  1          0      2       2",
		"orders  2          0      0       0"))

	described := s.run("topic", "describe", "orders")
	for _, words := range []string{"NAME        orders\n", "PARTITION  LEADER  EPOCH  REPLICAS  IN-SYNC  START  STABLE  END  BYTES\n", "\nretention.ms ", " DYNAMIC_TOPIC_CONFIG\n"} {
		if !strings.Contains(described, words) {
			t.Errorf("no %q in\n%s", words, described)
		}
	}
	equal(t, s.run("topic", "alter", "orders", "--set", "retention.ms=2000", "--unset", "max.message.bytes", "--partitions", "4"), lines(
		"TOPIC   CHANGE      STATUS",
		"orders  configs     altered",
		"orders  partitions  altered"))
	if c := s.run("topic", "describe", "orders", "-c"); !regexp.MustCompile(`\nretention.ms +2000 +DYNAMIC_TOPIC_CONFIG\n`).MatchString(c) {
		t.Errorf("retention.ms is not 2000 in\n%s", c)
	}
	equal(t, s.run("topic", "trim", "orders", "-p", "1", "--before", "1", "--yes"), lines(
		"TOPIC   PARTITION  OLD-START  NEW-START  STATUS",
		"orders  1          0          1          trimmed"))
	equal(t, s.run("topic", "delete", "state"), lines("TOPIC  STATUS", "state  deleted"))
	s.fail(exitUsage, "delete orders: add --yes to confirm", "topic", "delete", "-r", "o.*")
	equal(t, s.run("topic", "delete", "-r", "o.*", "--yes"), lines("TOPIC   STATUS", "orders  deleted"))
	equal(t, s.run("topic", "list", "--format", "json"), "[]\n")
}

// One bad item fails the command, not the others; it is one line on stderr.
func TestPartialFailure(t *testing.T) {
	s := newShell(t, "there")
	r := s.fail(exitFailed, "perigee: there: TOPIC_ALREADY_EXISTS", "topic", "create", "there", "new", "--replication-factor", "1", "-p", "1")
	if strings.Count(r.err, "\n") != 1 {
		t.Fatalf("stderr: %s", r.err)
	}
	equal(t, r.out, lines(
		"TOPIC  PARTITIONS  REPLICAS  STATUS",
		"there  -           -         failed",
		"new    1           1         created"))
	equal(t, s.run("topic", "create", "there", "--if-not-exists"), lines(
		"TOPIC  PARTITIONS  REPLICAS  STATUS",
		"there  -           -         exists"))
	r = s.fail(exitFailed, "perigee: absent: UNKNOWN_TOPIC_OR_PARTITION", "topic", "delete", "absent", "new", "--format", "json")
	if !strings.Contains(r.out, `"status": "failed"`) || !strings.Contains(r.out, `"error": "UNKNOWN_TOPIC_OR_PARTITION`) {
		t.Fatalf("stdout: %s", r.out)
	}
	equal(t, s.run("topic", "delete", "absent", "--if-exists"), lines("TOPIC   STATUS", "absent  absent"))
	for _, line := range []string{"topic describe absent", "topic offsets absent", "consume absent -e"} {
		s.fail(exitFailed, "perigee: absent: UNKNOWN_TOPIC_OR_PARTITION", strings.Fields(line)...)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	s := newShell(t, "there")
	if out := s.run("topic", "create", "new", "--dry-run"); !strings.Contains(out, "would be created") {
		t.Fatal(out)
	}
	if out := s.run("topic", "alter", "there", "--partitions", "9", "--dry-run"); !strings.Contains(out, "would be altered") {
		t.Fatal(out)
	}
	equal(t, s.run("topic", "list"), lines("TOPIC  PARTITIONS  REPLICAS", "there  1           1"))
}

func TestOffsetsAtATime(t *testing.T) {
	s := newShell(t, "t")
	s.input("1000000000000 a\n2000000000000 b\n", "produce", "t", "-f", `%T %v\n`)
	equal(t, s.run("topic", "offsets", "t", "--at", "1500000000000"), lines(
		"TOPIC  PARTITION  OFFSET  TIMESTAMP      EPOCH",
		"t      0          1       2000000000000  0"))
	equal(t, s.run("topic", "trim", "t", "--before", "@2010-01-01", "--yes", "--format", "json"), `[
  {
    "topic": "t",
    "partition": 0,
    "from_offset": 0,
    "before_offset": 1,
    "start_offset": 1,
    "status": "trimmed"
  }
]
`)
}
