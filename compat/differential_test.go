package compat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A side is one of two brokers, with what it has told so far: the same step has
// other ids, names and members on each.
type side struct {
	t      *testing.T
	addr   string
	conn   *wire
	ranges map[int16][2]int16 // versions by API key
	prefix string             // of every name, so that a broker with a past can be asked
	node   int32
	settle time.Duration // how long an answer may take to become what a step waits for

	ids       map[[16]byte]string // topic ids, by the name they stand for
	topics    map[string]topic
	members   map[string]member
	producers map[string]producer
}

// A step is one request, made for each side from what that side has told.
type step struct {
	name    string
	version int16 // newest that both serve when newest
	request func(s *side) kmsg.Request
	learn   func(s *side, resp kmsg.Response) // may be nil
	until   func(resp kmsg.Response) bool     // may be nil: ask again until it holds
}

// An answer is one step's outcome as fields by path.
type answer struct {
	Step   string
	Fields map[string]string
}

func newSide(t *testing.T, addr, prefix string, settle time.Duration) *side {
	s := &side{t: t, addr: addr, prefix: prefix, settle: settle, ids: map[[16]byte]string{}, ranges: map[int16][2]int16{},
		topics: map[string]topic{}, members: map[string]member{"nobody": nobody}, producers: map[string]producer{}}
	s.conn = dial(t, addr)
	for _, k := range ask[*kmsg.ApiVersionsResponse](t, s.conn, 0, kmsg.NewPtrApiVersionsRequest()).ApiKeys {
		s.ranges[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	s.node = ask[*kmsg.MetadataResponse](t, s.conn, 9, metadataOf()).Brokers[0].NodeID
	return s
}

func newOurs(t *testing.T) *side {
	return newSide(t, start(t, "group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false"), "", 0)
}

// topic returns a topic by its name in the workload; one that was never created
// has an id nobody knows.
func (s *side) topic(name string) topic {
	if known, ok := s.topics[name]; ok {
		return known
	}
	return topic{s.prefix + name, [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}
}

func (s *side) producer(name string) producer {
	if known, ok := s.producers[name]; ok {
		return known
	}
	return producer{s.prefix + name, 4711, 0}
}

// transient answers mean "ask again": a broker with asynchronous coordinators
// gives them where one without answers.
var transient = []error{kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.ConcurrentTransactions, kerr.NotLeaderForPartition}

// run asks one side and returns the answer as fields.
func (s *side) run(st step, version int16) map[string]string {
	for deadline := time.Now().Add(s.settle); ; {
		req := st.request(s)
		req.SetVersion(version)
		resp, err := s.conn.ask(req)
		if err != nil {
			s.conn = dial(s.t, s.addr)
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return map[string]string{"": "connection closed"}
			}
			return map[string]string{"": err.Error()}
		}
		settled := st.until == nil || st.until(resp)
		for _, code := range errorCodes(resp) {
			settled = settled && !slices.Contains(transient, kerr.ErrorForCode(code))
		}
		if !settled && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond) // the other side's work, of which nothing tells the end
			continue
		}
		if st.learn != nil {
			st.learn(s, resp)
		}
		return s.flatten(resp)
	}
}

// workload is the whole conversation: a story, then requests at random, always
// the same.
func workload() iter.Seq[step] {
	const seed = 20
	r := rand.New(rand.NewPCG(seed, seed))
	return func(yield func(step) bool) {
		for i, st := range slices.Concat(topicStory(), recordStory(), groupStory(), transactionStory(), configStory(), sessionStory(), operatorStory(), clusterStory(), oddStory(), randomSteps(r, 400)) {
			st.name = strconv.Itoa(i) + " " + st.name
			if !yield(st) {
				return
			}
		}
	}
}

// converse has the conversation with us and with another broker, where ranges
// are the other's versions. Steps that only one of both serves are left out.
func converse(ours *side, ranges map[int16][2]int16) iter.Seq2[string, func(*side) map[string]string] {
	return func(yield func(string, func(*side) map[string]string) bool) {
		for st := range workload() {
			key := st.request(ours).Key()
			a, b := ours.ranges[key], ranges[key]
			low, high := max(a[0], b[0]), min(a[1], b[1])
			if _, known := ranges[key]; !known || st.version > high || st.version != newest && st.version < low {
				continue
			}
			version := st.version
			if version == newest {
				version = high
			}
			what := fmt.Sprintf("%s: %s v%d", st.name, kmsg.NameForKey(key), version)
			if !yield(what, func(s *side) map[string]string { return s.run(st, version) }) {
				return
			}
		}
	}
}

// recording is what Apache Kafka 4.4.0 answered; its first line is the versions
// it serves. To make it again, on a broker with group.initial.rebalance.delay.ms=0:
//
//	PERIGEE_ORACLE=HOST:PORT PERIGEE_RECORD=1 go test ./compat -run DifferentialAgainstKafka
const recording = "corpus/kafka-4.4.0-answers.jsonl"

func recorded(t *testing.T) (ranges map[int16][2]int16, answers []answer) {
	t.Helper()
	file, err := os.ReadFile(recording)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(file))
	lines.Buffer(nil, 1<<20)
	for n := 0; lines.Scan(); n++ {
		var a answer
		into := any(&ranges)
		if n > 0 {
			into = &a
		}
		if err := json.Unmarshal(lines.Bytes(), into); err != nil {
			t.Fatalf("%s line %d: %v", recording, n+1, err)
		}
		if n > 0 {
			answers = append(answers, a)
		}
	}
	return ranges, answers
}

// The same requests, valid and invalid, to us and to Apache Kafka: the same
// answers, field by field, or a difference that is listed with its reason.
// Kafka's are a recording, or those of the broker PERIGEE_ORACLE names.
func TestDifferentialAgainstKafka(t *testing.T) {
	ours := newOurs(t)
	ranges, answers := recorded(t)
	var theirs *side
	if addr := os.Getenv("PERIGEE_ORACLE"); addr != "" {
		theirs = newSide(t, addr, fmt.Sprintf("d%d-", time.Now().UnixNano()), 10*time.Second)
		ranges, answers = theirs.ranges, nil
	}
	asked, used := 0, make([]bool, len(differences))
	for what, run := range converse(ours, ranges) {
		got := run(ours)
		if theirs != nil {
			answers = append(answers, answer{what, run(theirs)})
		}
		if asked == len(answers) || answers[asked].Step != what {
			t.Fatalf("the recording has another conversation at step %q: make it again", what)
		}
		for path := range differ(got, answers[asked].Fields) {
			if i := excuse(what, path, got); i >= 0 {
				used[i] = true
				continue
			}
			t.Errorf("%s: %s: ours %q, Kafka's %q", what, path, got[path], answers[asked].Fields[path])
		}
		asked++
	}
	for i, d := range differences {
		if !used[i] {
			t.Errorf("difference %q %q does not occur: take it off the list", d.step, d.field)
		}
	}
	t.Logf("%d requests", asked)
	if theirs != nil && os.Getenv("PERIGEE_RECORD") != "" {
		record(t, ranges, answers)
	}
}

func record(t *testing.T, ranges map[int16][2]int16, answers []answer) {
	var out bytes.Buffer
	encode := json.NewEncoder(&out)
	encode.SetEscapeHTML(false)
	encode.Encode(ranges)
	for _, a := range answers {
		encode.Encode(a)
	}
	if err := os.WriteFile(recording, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The same to us and to kfake, an independent broker in Go. Where it differs it
// is right, unless Kafka is known to answer as we do, or the difference is listed.
func TestDifferentialAgainstKfake(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ours, theirs := newOurs(t), newSide(t, c.ListenAddrs()[0], "", 0)
	_, answers := recorded(t)
	kafka := map[string]map[string]string{}
	for _, a := range answers {
		kafka[a.Step] = a.Fields
	}
	same, outvoted := 0, 0
	for what, run := range converse(ours, theirs.ranges) {
		got, want, kafkas := run(ours), run(theirs), kafka[what]
		if kafkas == nil {
			continue // Kafka was asked in another version, or not at all
		}
		count := &same
		for path := range differ(got, want) {
			if kafkas[path] == got[path] {
				count = &outvoted
			} else if excuse(what, path, got) < 0 {
				t.Errorf("%s: %s: ours %q, kfake's %q, Kafka's %q", what, path, got[path], want[path], kafkas[path])
			}
		}
		*count++
	}
	t.Logf("kfake answers %d requests as we do; %d otherwise, where Kafka answers as we do", same, outvoted)
}

// differ yields the paths at which two answers differ, in order.
func differ(a, b map[string]string) iter.Seq[string] {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return func(yield func(string) bool) {
		for _, path := range slices.Sorted(maps.Keys(all)) {
			if a[path] != b[path] && !yield(path) {
				return
			}
		}
	}
}

// excuse returns the row of differences that explains a difference, or -1.
func excuse(what, path string, got map[string]string) int {
	beside := got[path[:strings.LastIndex(path, ".")+1]+"ErrorCode"]
	return slices.IndexFunc(differences, func(d difference) bool {
		return regexp.MustCompile(d.step).MatchString(what) && regexp.MustCompile(d.field).MatchString(path) && (!d.refused || beside != "0")
	})
}
