package checker

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func at(offset int64, v Value) Record { return Record{Offset: offset, Value: v} }

// sound is a small history without an anomaly: producer 1 of id a commits 10
// and 11 on two partitions, having consumed input 0/5 of group g; producer 2 of
// id b aborts 20.
//
//	partition 0   0:10 (1)   1:20 (2)   2:COMMIT 1   3:ABORT 2
//	partition 1   0:11 (1)   1:COMMIT 1
func sound() *History {
	source := Source{"g", 0, 5}
	data := func(first, pid int64, v Value) Batch {
		return Batch{First: first, Last: first, PID: pid, Transactional: true, Values: []Record{at(first, v)}}
	}
	marker := func(at, pid int64, commit bool) Batch {
		return Batch{First: at, Last: at, PID: pid, Transactional: true, Control: true, Commit: commit}
	}
	log0 := []Batch{data(0, 1, 10), data(1, 2, 20), marker(2, 1, true), marker(3, 2, false)}
	log1 := []Batch{data(0, 1, 11), marker(1, 1, true)}
	return &History{
		Inits: []Init{
			{Span: Span{1, 2}, ID: "a", PID: 1},
			{Span: Span{1, 2}, ID: "b", PID: 2},
		},
		Txns: []Txn{
			{
				ID: "a", PID: 1, Sources: []Source{source},
				Appends: []Append{
					{Span: Span{3, 4}, Partition: 0, Value: 10, Offset: 0, Outcome: Done, Source: &source},
					{Span: Span{3, 4}, Partition: 1, Value: 11, Offset: 0, Outcome: Done},
				},
				Endings: []Ending{{Span{7, 8}, true, Done}},
			},
			{
				ID: "b", PID: 2,
				Appends: []Append{{Span: Span{5, 6}, Partition: 0, Value: 20, Offset: 1, Outcome: Done}},
				Endings: []Ending{{Span{9, 10}, false, Done}},
			},
		},
		Responses: []Response{
			{Span: Span{11, 12}, Reader: "r", Partition: 0, Committed: true, From: 0, Next: 4, Stable: 4, High: 4, End: 4,
				Batches: log0, Aborted: []AbortedTxn{{2, 1}}, Delivered: []Record{at(0, 10)}},
			{Span: Span{11, 12}, Reader: "r", Partition: 1, Committed: true, From: 0, Next: 2, Stable: 2, High: 2, End: 2,
				Batches: log1, Delivered: []Record{at(0, 11)}},
		},
		Final: Final{
			Log: map[int32]Response{
				0: {Partition: 0, Next: 4, Stable: 4, High: 4, End: 4, Batches: log0},
				1: {Partition: 1, Next: 2, Stable: 2, High: 2, End: 2, Batches: log1},
			},
			Committed: map[int32][]Record{0: {at(0, 10)}, 1: {at(0, 11)}},
			Groups:    []GroupOffset{{Group: "g", Partition: 0, Offset: 6}},
			Dead:      []DeadLetter{{Source{"g", 0, 3}, 4}},
			Settled:   []GroupOffset{{Group: "g", Partition: 0, Offset: 9}},
		},
		Deliveries: []Delivery{
			{Span: Span{1, 2}, Group: "g", Offsets: []int64{3, 4}, Outcome: Done},
			{Span: Span{7, 8}, Group: "g", Offsets: []int64{4}, Outcome: Done},
		},
		Nacks: []Nack{
			{Span: Span{3, 4}, Source: Source{"g", 0, 3}, Dead: true, Outcome: Done},
			{Span: Span{5, 6}, Source: Source{"g", 0, 4}, Outcome: Done},
		},
	}
}

func TestSoundHistoryHasNoAnomaly(t *testing.T) {
	r := Check(sound())
	if len(r.Anomalies) > 0 {
		t.Errorf("%v", r.Anomalies)
	}
	if r.Committed != 1 || r.Aborted != 1 || r.Values != 3 {
		t.Errorf("%s", r)
	}
}

// A checker that has never failed proves nothing: each anomaly is planted in
// the sound history, and must be flagged under its own name.
func TestPlantedAnomalies(t *testing.T) {
	for name, test := range map[string]struct {
		invariant string
		plant     func(*History)
	}{
		"an aborted value is read": {"I1", func(h *History) {
			h.Responses[0].Delivered = append(h.Responses[0].Delivered, at(1, 20))
		}},
		"a committed value is gone": {"I2", func(h *History) { h.Final.Committed[1] = nil }},
		"a retry was written twice": {"I3", func(h *History) {
			h.Final.Committed[1] = append(h.Final.Committed[1], at(5, 11))
		}},
		"an aborted transaction is committed on one partition": {"I4", func(h *History) {
			h.Final.Committed[0] = append(h.Final.Committed[0], at(1, 20))
		}},
		"half of a transaction nobody knows the end of": {"I4", func(h *History) {
			h.Txns[0].Endings[0].Outcome = Unknown
			h.Final.Committed[1] = nil
		}},
		"a transaction nobody committed is visible": {"I4", func(h *History) { h.Txns[0].Endings = nil }},
		"a reader saw a hole":                       {"I5", func(h *History) { h.Responses[0].Delivered = nil }},
		"transactions read from each other": {"I6", func(h *History) {
			h.Txns[0].Reads, h.Txns[1].Reads = []Value{20}, []Value{10}
		}},
		"the output is there, the offset is not": {"I7", func(h *History) { h.Final.Groups[0].Offset = 5 }},
		"the offset is there, further than the output": {"I7", func(h *History) {
			h.Final.Groups[0].Offset = 9
		}},
		"one input, two outputs": {"I7", func(h *History) { h.Txns[0].Appends[1].Source = h.Txns[0].Appends[0].Source }},
		"the stable offset went back": {"I8", func(h *History) {
			h.Responses = append(h.Responses, Response{Span: Span{20, 21}, Partition: 0, Stable: 1, High: 4})
		}},
		"the high watermark went back": {"I8", func(h *History) {
			h.Responses = append(h.Responses, Response{Span: Span{20, 21}, Partition: 1, Stable: 1, High: 1})
		}},
		"the stable offset is above the high watermark": {"I8", func(h *History) { h.Responses[1].High = 1 }},
		"an aborted batch is not listed":                {"I9", func(h *History) { h.Responses[0].Aborted = nil }},
		"a committed batch is listed as aborted": {"I9", func(h *History) {
			h.Responses[1].Aborted = []AbortedTxn{{1, 0}}
		}},
		"an offset changed its value": {"I10", func(h *History) { h.Txns[0].Appends[1].Value, h.Txns[0].Appends[1].Outcome = 12, Done }},
		"what was read is gone": {"I10", func(h *History) {
			h.Responses[1].Batches = append(slices.Clone(h.Responses[1].Batches), Batch{First: 2, Last: 2, Values: []Record{at(2, 77)}})
		}},
		"a fenced producer wrote": {"I11", func(h *History) {
			h.Inits = append(h.Inits, Init{Span: Span{2, 2}, ID: "b", PID: 2, Epoch: 1})
		}},
		"a producer of a rotated id wrote": {"I11", func(h *History) {
			h.Inits = append(h.Inits, Init{Span: Span{3, 4}, ID: "b", PID: 9})
		}},
		"both outcomes were acknowledged": {"I12", func(h *History) {
			h.Txns[0].Endings = append(h.Txns[0].Endings, Ending{Span{13, 14}, false, Done})
		}},
		"the stable offset is stuck": {"I13", func(h *History) {
			r := h.Final.Log[0]
			r.High, r.End = 9, 9
			h.Final.Log[0] = r
		}},
		"a group offset stays unstable": {"I13", func(h *History) { h.Final.Groups[0].Unstable = true }},
		"a producer stays open":         {"I13", func(h *History) { h.Final.OpenAt = []int32{1} }},
		"an id stays ongoing":           {"I13", func(h *History) { h.Final.Ongoing = []string{"a"} }},
		"two owners of a producer id":   {"I14", func(h *History) { h.Inits[1].PID = 1 }},
		"an epoch handed out twice": {"I14", func(h *History) {
			h.Inits = append(h.Inits, Init{Span: Span{20, 21}, ID: "a", PID: 1})
		}},
		"an epoch that goes back": {"I14", func(h *History) {
			h.Inits = append(h.Inits, Init{Span: Span{20, 21}, ID: "a", PID: 1, Epoch: 4}, Init{Span: Span{22, 23}, ID: "a", PID: 1, Epoch: 3})
		}},
		"a reader went back": {"I15", func(h *History) {
			h.Responses = append(h.Responses, Response{Span: Span{20, 21}, Reader: "r", Partition: 0, From: 2, Next: 4, Stable: 4, High: 4})
		}},
		"a reader was handed an offset twice": {"I15", func(h *History) {
			h.Responses[0].Delivered = []Record{at(0, 10), at(0, 10)}
		}},
		"a read beyond the stable offset": {"I16", func(h *History) { h.Responses[1].Stable = 0 }},
		"a transaction reads itself":      {"I16", func(h *History) { h.Txns[0].Reads = []Value{10} }},
		"a dead letter twice": {"I17", func(h *History) {
			h.Final.Dead = append(h.Final.Dead, h.Final.Dead[0])
		}},
		"a dead letter in front of its group":  {"I17", func(h *History) { h.Final.Dead[0].Settled = 3 }},
		"a record said to be dead is not":      {"I17", func(h *History) { h.Final.Dead = nil }},
		"a record given back never came again": {"I17", func(h *History) { h.Deliveries = h.Deliveries[:1] }},
		"a dead letter nobody gave up":         {"I17", func(h *History) { h.Nacks = h.Nacks[1:] }},
		"a group went back": {"I7", func(h *History) {
			h.Offsets = []GroupOffset{{Span: Span{20, 21}, Group: "g", Offset: 6}, {Span: Span{22, 23}, Group: "g", Offset: 5}}
		}},
		"the newest value of a key was compacted away": {"I2", func(h *History) {
			h.Final.Compacted = []int32{1}
			h.Final.Committed[1] = nil
		}},
		"more than the front was deleted": {"I2", func(h *History) {
			r := h.Final.Log[1]
			r.Start = 0
			h.Final.Log[1] = r
			h.Final.Committed[1] = nil
		}},
		"a refused value was written": {"I18", func(h *History) { h.Txns[1].Appends[0].Outcome = Refused }},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			test.plant(h)
			flagged := Check(h).Anomalies
			if !slices.ContainsFunc(flagged, func(a Anomaly) bool { return a.Invariant == test.invariant }) {
				t.Errorf("%s was not flagged; flagged: %v", test.invariant, flagged)
			}
		})
	}
}

// What nobody was told the outcome of may have happened or not.
func TestUnknownOutcomesAreNotAnomalies(t *testing.T) {
	for name, change := range map[string]func(*History){
		"a commit without an answer that happened": func(h *History) { h.Txns[0].Endings[0].Outcome = Unknown },
		"an append without an answer that did not happen": func(h *History) {
			h.Txns[0].Appends = append(h.Txns[0].Appends, Append{Partition: 1, Value: 99, Offset: -1})
		},
		"the front of a log was deleted": func(h *History) {
			h.Final.Log[1] = Response{Partition: 1, Start: 1, Next: 2, Stable: 2, High: 2, End: 2}
			h.Final.Committed[1] = nil
		},
		"compaction kept the newer value of a key": func(h *History) {
			h.Final.Compacted = []int32{1}
			h.Final.Committed[1] = []Record{at(7, 12)}
		},
		"a poll without an answer may have delivered": func(h *History) {
			h.Deliveries[1] = Delivery{Span: Span{7, 8}, Group: "g"}
		},
		"a record given back is still to come": func(h *History) {
			h.Deliveries = nil
			h.Final.Settled[0].Offset = 4
		},
		"two transactions that wrote behind each other": func(h *History) {
			h.Txns[1].Endings[0].Commit = true
			h.Final.Committed[0] = []Record{at(0, 10), at(1, 20)}
			h.Responses = nil
			for p, r := range h.Final.Log {
				r.Batches = nil
				h.Final.Log[p] = r
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			change(h)
			if r := Check(h); len(r.Anomalies) > 0 {
				t.Errorf("%v", r.Anomalies)
			}
		})
	}
}

func TestHistorySurvivesItsFile(t *testing.T) {
	var file bytes.Buffer
	h := sound()
	if err := h.Write(&file); err != nil {
		t.Fatal(err)
	}
	back, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h, back); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
