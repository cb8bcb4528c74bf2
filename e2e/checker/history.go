package checker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// Outcome is what a client knows of an operation.
type Outcome int8

const (
	Unknown Outcome = iota // may or may not have happened
	Done                   // acknowledged
	Refused                // proven not to have happened
)

// Span is when an operation was under way, on one clock of the whole history.
type Span struct {
	Invoked, Completed int64
}

// Unanswered is the span of what nobody has answered yet.
func Unanswered(invoked int64) Span { return Span{invoked, math.MaxInt64} }

// before reports whether a was over when b began.
func (a Span) before(b Span) bool { return a.Completed < b.Invoked }

// Value is a record's value, unique in a history.
type Value int64

// Append is one record a client sent.
type Append struct {
	Span
	Partition int32
	Value     Value
	Key       string `json:",omitempty"` // in a compacted partition
	Offset    int64  // -1: not known
	Outcome   Outcome
	Source    *Source // the input this output was made from
}

// Source is an input record and where it stood.
type Source struct {
	Group     string
	Partition int32
	Offset    int64
}

// Ending is one try to end a transaction.
type Ending struct {
	Span
	Commit  bool
	Outcome Outcome
}

// Txn is one transaction of one worker.
type Txn struct {
	Worker   int
	ID       string // transactional id
	Protocol string `json:",omitempty"` // for people
	PID      int64
	Epoch    int16
	Appends  []Append
	Sources  []Source // inputs whose offsets it committed to their group
	Endings  []Ending
	Reads    []Value // seen by its own read_committed reads, while it was open
	Fenced   bool    // somebody else owned the id before it ended
}

// Clone copies a transaction that goes on.
func (t *Txn) Clone() Txn {
	c := *t
	c.Appends, c.Sources = slices.Clone(t.Appends), slices.Clone(t.Sources)
	c.Endings, c.Reads = slices.Clone(t.Endings), slices.Clone(t.Reads)
	return c
}

// decision is what is known of a transaction's end.
func (t Txn) decision() (commit bool, known bool) {
	for _, e := range t.Endings {
		if e.Outcome == Done {
			return e.Commit, true
		}
	}
	return false, len(t.Endings) == 0 && t.Fenced
}

// mayCommit reports whether any try to commit could have taken effect.
func (t Txn) mayCommit() bool {
	for _, e := range t.Endings {
		if e.Commit && e.Outcome != Refused {
			return true
		}
	}
	return false
}

// Init is an answered InitProducerId.
type Init struct {
	Span
	ID      string // transactional id, "" for an idempotent producer's own id
	PID     int64
	Epoch   int16
	Retried bool // may repeat what an earlier answer said
}

// Record is a record a reader saw.
type Record struct {
	Offset int64
	Value  Value
	Key    string `json:",omitempty"`
}

// Batch is a batch of a response as it stood there.
type Batch struct {
	First, Last   int64
	PID           int64
	Transactional bool
	Control       bool
	Commit        bool // with Control
	Values        []Record
}

// AbortedTxn is an entry of a response's aborted list.
type AbortedTxn struct{ PID, First int64 }

// Response is one fetch of one partition.
type Response struct {
	Span
	Reader     string // "" for a probe; else one assignment of one consumer
	Partition  int32
	Committed  bool  // read_committed
	From, Next int64 // covers [From, Next)
	Start      int64 // of the log
	Stable     int64
	High       int64
	End        int64 // -1: not known
	Batches    []Batch
	Aborted    []AbortedTxn
	Delivered  []Record // what the reader's own client handed out
}

// GroupOffset is an answered OffsetFetch.
type GroupOffset struct {
	Span
	Group     string
	Partition int32
	Offset    int64 // next to be read; -1 none
	Unstable  bool  // UNSTABLE_OFFSET_COMMIT
}

// Delivery is one poll of a group that gives records back; delivery moves the
// group past them.
type Delivery struct {
	Span
	Group   string
	Offsets []int64 // of the records, when Done
	Outcome Outcome
}

// Nack is a record given back: to be delivered again, or dead.
type Nack struct {
	Span
	Source
	Dead    bool // the answer said so
	Outcome Outcome
}

// DeadLetter is a record found in a dead-letter topic.
type DeadLetter struct {
	Source
	Settled int64 // offset the group stood at in the end
}

// Final is what is left when everything has ended.
type Final struct {
	Log       map[int32]Response // whole partitions, read_uncommitted
	Committed map[int32][]Record // what a read_committed consumer gets of them
	Groups    []GroupOffset
	Dead      []DeadLetter
	Settled   []GroupOffset // of the groups that give records back
	Compacted []int32       // partitions where only the newest value of a key need be left
	OpenAt    []int32       // partitions where DescribeProducers shows an open transaction
	Ongoing   []string      // ids ListTransactions shows as ongoing or preparing
}

// History is everything a run recorded.
type History struct {
	Txns       []Txn
	Inits      []Init
	Responses  []Response
	Offsets    []GroupOffset
	Deliveries []Delivery
	Nacks      []Nack
	Final      Final
}

// line is one line of a history file.
type line struct {
	Txn      *Txn         `json:",omitempty"`
	Init     *Init        `json:",omitempty"`
	Response *Response    `json:",omitempty"`
	Offset   *GroupOffset `json:",omitempty"`
	Delivery *Delivery    `json:",omitempty"`
	Nack     *Nack        `json:",omitempty"`
	Final    *Final       `json:",omitempty"`
}

// Write puts a history on lines of JSON, so that a failing run can be kept.
func (h *History) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	var lines []line
	for i := range h.Inits {
		lines = append(lines, line{Init: &h.Inits[i]})
	}
	for i := range h.Txns {
		lines = append(lines, line{Txn: &h.Txns[i]})
	}
	for i := range h.Responses {
		lines = append(lines, line{Response: &h.Responses[i]})
	}
	for i := range h.Offsets {
		lines = append(lines, line{Offset: &h.Offsets[i]})
	}
	for i := range h.Deliveries {
		lines = append(lines, line{Delivery: &h.Deliveries[i]})
	}
	for i := range h.Nacks {
		lines = append(lines, line{Nack: &h.Nacks[i]})
	}
	for _, l := range append(lines, line{Final: &h.Final}) {
		if err := e.Encode(l); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	return out.Flush()
}

// Read takes back what Write wrote.
func Read(r io.Reader) (*History, error) {
	var h History
	d := json.NewDecoder(r)
	for {
		var l line
		switch err := d.Decode(&l); {
		case err == io.EOF:
			return &h, nil
		case err != nil:
			return nil, fmt.Errorf("read history: %w", err)
		}
		switch {
		case l.Txn != nil:
			h.Txns = append(h.Txns, *l.Txn)
		case l.Init != nil:
			h.Inits = append(h.Inits, *l.Init)
		case l.Response != nil:
			h.Responses = append(h.Responses, *l.Response)
		case l.Offset != nil:
			h.Offsets = append(h.Offsets, *l.Offset)
		case l.Delivery != nil:
			h.Deliveries = append(h.Deliveries, *l.Delivery)
		case l.Nack != nil:
			h.Nacks = append(h.Nacks, *l.Nack)
		case l.Final != nil:
			h.Final = *l.Final
		}
	}
}
