// Package txntable holds the decision tables of transactional ids as data:
// tables.txt, a row for each (state, request). The pure machine runs them row
// by row, and so does a broker over the wire, in every version of a request.
package txntable

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage/model"
)

//go:embed tables.txt
var text string

// NewID stands for a producer id nobody had before.
const NewID model.ProducerID = -2

// Request is what a row asks.
type Request struct {
	Verb       string // init, add, addv4, verify, commit0, abort0, commit2, abort2, commitS, abortS, tick
	Producer   model.ProducerIdentity
	Partitions []int32 // of topic t
	Timeout    time.Duration
	Session    bool
}

// Marker is the control batches that must stand in the answer's entry.
type Marker struct {
	Producer   model.ProducerIdentity
	Outcome    txn.Outcome
	Partitions []int32
}

// Row is one line of the tables.
type Row struct {
	Table   string
	Line    int
	Text    string
	Levels  []txn.Version
	Before  *txn.Record // nil: absent
	Overdue bool        // the transaction began longer ago than its timeout
	Request Request
	Error   error                  // nil: success
	Answer  model.ProducerIdentity // zero: the row does not say
	Marker  *Marker
	After   *txn.Record // nil: absent
	Changes bool        // After differs from Before
}

var errorNames = map[string]error{
	"invalid-request": txn.ErrInvalidRequest,
	"invalid-timeout": txn.ErrInvalidTimeout,
	"fenced":          txn.ErrFenced,
	"mapping":         txn.ErrMapping,
	"invalid-state":   txn.ErrInvalidState,
	"concurrent":      txn.ErrConcurrent,
	"not-enrolled":    txn.ErrNotEnrolled,
}

// DefaultTimeout is the transaction timeout of rows that do not name one.
const DefaultTimeout = time.Minute

// Rows parses tables.txt; topic is the id of topic t.
func Rows(topic model.TopicID) ([]Row, error) {
	var rows []Row
	var table string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			table = strings.Trim(line, "[]")
		default:
			row, err := parseRow(line, topic)
			if err != nil {
				return nil, fmt.Errorf("line %d: %q: %w", i+1, line, err)
			}
			row.Table, row.Line, row.Text = table, i+1, line
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func parseRow(line string, topic model.TopicID) (Row, error) {
	cells := strings.Split(line, "|")
	if len(cells) != 5 {
		return Row{}, fmt.Errorf("%d columns, not 5", len(cells))
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	var row Row
	var errs [5]error
	row.Levels, errs[0] = parseLevels(cells[0])
	row.Before, row.Overdue, errs[1] = parseRecord(cells[1], topic)
	row.Request, errs[2] = parseRequest(cells[2])
	errs[3] = parseAnswer(cells[3], &row)
	row.After = row.Before
	if cells[4] != "=" {
		row.Changes = true
		row.After, _, errs[4] = parseRecord(cells[4], topic)
	}
	return row, errors.Join(errs[:]...)
}

func parseLevels(s string) ([]txn.Version, error) {
	switch s {
	case "*":
		return []txn.Version{txn.V0, txn.V2}, nil
	case "0":
		return []txn.Version{txn.V0}, nil
	case "2":
		return []txn.Version{txn.V2}, nil
	}
	return nil, fmt.Errorf("level %q", s)
}

func parseRecord(s string, topic model.TopicID) (*txn.Record, bool, error) {
	if s == "absent" {
		return nil, false, nil
	}
	fields := strings.Fields(s)
	if len(fields) < 2 {
		return nil, false, fmt.Errorf("record %q", s)
	}
	r := &txn.Record{PrevID: model.NoProducerID, NextID: model.NoProducerID, LastEpoch: model.NoProducerEpoch, Timeout: DefaultTimeout}
	var ok bool
	if r.State, ok = txn.ParseState(fields[0]); !ok {
		return nil, false, fmt.Errorf("state %q", fields[0])
	}
	var err error
	if r.Producer, err = parseProducer(fields[1]); err != nil {
		return nil, false, err
	}
	overdue := false
	for _, f := range fields[2:] {
		name, value, _ := strings.Cut(f, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "last":
			r.LastEpoch = model.ProducerEpoch(n)
		case "prev":
			r.PrevID = model.ProducerID(n)
		case "next":
			r.NextID = model.ProducerID(n)
		case "tv":
			r.Version = txn.Version(n)
		case "session":
			r.Owner = txn.Session
		case "overdue":
			overdue = true
		case "parts":
			parts, err := parsePartitions(value)
			if err != nil {
				return nil, false, err
			}
			r.Partitions = Participants(topic, parts)
		default:
			return nil, false, fmt.Errorf("field %q", f)
		}
	}
	return r, overdue, nil
}

// Participants are partitions of topic t.
func Participants(topic model.TopicID, partitions []int32) []txn.Participant {
	var ps []txn.Participant
	for _, n := range partitions {
		ps = append(ps, txn.Participant{TopicPartition: model.TopicPartition{Topic: topic, Partition: n}, Name: "t"})
	}
	return ps
}

func parseRequest(s string) (Request, error) {
	fields := strings.Fields(s)
	r := Request{Verb: fields[0], Timeout: DefaultTimeout, Producer: model.ProducerIdentity{ID: model.NoProducerID, Epoch: model.NoProducerEpoch}}
	verbs := []string{"init", "add", "addv4", "verify", "commit0", "abort0", "commit2", "abort2", "commitS", "abortS", "tick"}
	if !slices.Contains(verbs, r.Verb) {
		return r, fmt.Errorf("request %q", r.Verb)
	}
	var err error
	for _, f := range fields[1:] {
		switch {
		case f == "session":
			r.Session = true
		case strings.HasPrefix(f, "timeout="):
			var ms int
			ms, err = strconv.Atoi(f[len("timeout="):])
			r.Timeout = time.Duration(ms) * time.Millisecond
		case strings.Contains(f, "/"):
			r.Producer, err = parseProducer(f)
		default:
			r.Partitions, err = parsePartitions(f)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func parseAnswer(s string, row *Row) error {
	answer, marker, marked := strings.Cut(s, "+")
	if marked {
		m, err := parseMarker(marker)
		if err != nil {
			return err
		}
		row.Marker = m
	}
	answer = strings.TrimSpace(answer)
	if answer == "ok" {
		return nil
	}
	if err, ok := errorNames[answer]; ok {
		row.Error = err
		return nil
	}
	var err error
	row.Answer, err = parseProducer(answer)
	return err
}

func parseMarker(s string) (*Marker, error) {
	outcome, rest, ok := strings.Cut(strings.TrimSuffix(s, ")"), "(")
	if !ok {
		return nil, fmt.Errorf("marker %q", s)
	}
	m := &Marker{}
	if outcome == "COMMIT" {
		m.Outcome = txn.Commit
	}
	producer, parts, _ := strings.Cut(rest, " ")
	var err error
	if m.Producer, err = parseProducer(producer); err != nil {
		return nil, err
	}
	m.Partitions, err = parsePartitions(parts)
	return m, err
}

func parseProducer(s string) (model.ProducerIdentity, error) {
	id, epoch, ok := strings.Cut(s, "/")
	e, err := strconv.ParseInt(epoch, 10, 16)
	if !ok || err != nil {
		return model.ProducerIdentity{}, fmt.Errorf("producer %q", s)
	}
	p := model.ProducerIdentity{ID: NewID, Epoch: model.ProducerEpoch(e)}
	if id != "new" {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			return p, fmt.Errorf("producer %q", s)
		}
		p.ID = model.ProducerID(n)
	}
	return p, nil
}

func parsePartitions(s string) ([]int32, error) {
	var partitions []int32
	for _, name := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "t"))
		if err != nil {
			return nil, fmt.Errorf("partition %q", name)
		}
		partitions = append(partitions, int32(n))
	}
	return partitions, nil
}
