package producer

import (
	"errors"
	"testing"

	"github.com/perigeemq/perigee/storage/model"
)

const pid = 7

// log applies batches to a table, counting offsets.
type log struct {
	Table
	next model.Offset
}

func (l *log) apply(b Batch) Batch {
	b.First, b.Last = l.next, l.next
	if !b.Marker && b.BaseSequence != model.NoSequence {
		b.Last += model.Offset((int64(b.LastSequence) - int64(b.BaseSequence)) & 0x7fffffff)
	}
	l.next = b.Last + 1
	l.Table.Apply(&b, l.Table.Plan(&b), 1)
	return b
}

func data(epoch model.ProducerEpoch, base, last model.Sequence) Batch {
	return Batch{ID: pid, Epoch: epoch, BaseSequence: base, LastSequence: last, Timestamp: 5}
}

func inTxn(b Batch) Batch { b.Transactional = true; return b }

func mark(epoch model.ProducerEpoch, coordinator int32) Batch {
	return Batch{ID: pid, Epoch: epoch, BaseSequence: model.NoSequence, LastSequence: model.NoSequence,
		Transactional: true, Marker: true, Coordinator: coordinator}
}

func abort(b Batch) Batch { b.Abort = true; return b }

// The table of KIP-98, KIP-360 and KIP-890, row by row; strict is transactions v2.
func TestCheckDataDecidesBySequenceEpochAndTransaction(t *testing.T) {
	const max = 2147483647
	for name, c := range map[string]struct {
		log    []Batch
		batch  Batch
		mode   TxnMode
		lax    error // transactions v1 and plain idempotence
		strict error
		found  bool
	}{
		"unknown, 0":                      {nil, data(0, 0, 0), TxnNone, nil, nil, false},
		"unknown, above 0":                {nil, data(0, 3, 3), TxnNone, nil, ErrOutOfOrderSequence, false},
		"unknown, txn 0":                  {nil, inTxn(data(0, 0, 0)), TxnOpen, nil, nil, false},
		"unknown, txn above 0":            {nil, inTxn(data(0, 3, 3)), TxnOpen, nil, ErrOutOfOrderSequence, false},
		"unknown, txn to continue":        {nil, inTxn(data(0, 0, 0)), TxnContinue, ErrTxnNotOpen, ErrTxnNotOpen, false},
		"unknown, txn outside":            {nil, inTxn(data(0, 0, 0)), TxnNone, ErrInvalidTxnState, ErrInvalidTxnState, false},
		"next":                            {[]Batch{data(0, 0, 4)}, data(0, 5, 9), TxnNone, nil, nil, false},
		"gap":                             {[]Batch{data(0, 0, 4)}, data(0, 6, 9), TxnNone, ErrOutOfOrderSequence, ErrOutOfOrderSequence, false},
		"repeat":                          {[]Batch{data(0, 0, 4)}, data(0, 0, 4), TxnNone, nil, nil, true},
		"repeat, shorter":                 {[]Batch{data(0, 0, 4)}, data(0, 0, 3), TxnNone, ErrOutOfOrderSequence, ErrOutOfOrderSequence, false},
		"repeat, overlapping":             {[]Batch{data(0, 0, 4)}, data(0, 3, 7), TxnNone, ErrOutOfOrderSequence, ErrOutOfOrderSequence, false},
		"repeat of the fifth last":        {[]Batch{data(0, 0, 0), data(0, 1, 1), data(0, 2, 2), data(0, 3, 3), data(0, 4, 4)}, data(0, 0, 0), TxnNone, nil, nil, true},
		"repeat of the sixth last":        {[]Batch{data(0, 0, 0), data(0, 1, 1), data(0, 2, 2), data(0, 3, 3), data(0, 4, 4), data(0, 5, 5)}, data(0, 0, 0), TxnNone, ErrOutOfOrderSequence, ErrOutOfOrderSequence, false},
		"wrap to 0":                       {[]Batch{data(0, max-1, max)}, data(0, 0, 1), TxnNone, nil, nil, false},
		"wrap inside the batch":           {[]Batch{data(0, max-1, max-1)}, data(0, max, 2), TxnNone, nil, nil, false},
		"behind a wrap inside the batch":  {[]Batch{data(0, max, 2)}, data(0, 3, 3), TxnNone, nil, nil, false},
		"wrap too early":                  {[]Batch{data(0, 5, 5)}, data(0, 0, 0), TxnNone, ErrOutOfOrderSequence, ErrOutOfOrderSequence, false},
		"newer epoch, 0":                  {[]Batch{data(0, 0, 4)}, data(1, 0, 0), TxnNone, nil, nil, false},
		"newer epoch, above 0":            {[]Batch{data(0, 0, 4)}, data(1, 5, 5), TxnNone, ErrOutOfOrderSequence, ErrOutOfOrderSequence, false},
		"older epoch":                     {[]Batch{data(1, 0, 4)}, data(0, 0, 4), TxnNone, ErrStaleEpoch, ErrStaleEpoch, false},
		"only a marker, 0":                {[]Batch{mark(2, 0)}, data(2, 0, 0), TxnNone, nil, nil, false},
		"only a marker, above 0":          {[]Batch{mark(2, 0)}, data(2, 1, 1), TxnNone, ErrOutOfOrderSequence, ErrOutOfOrderSequence, false},
		"older than a marker":             {[]Batch{mark(2, 0)}, data(1, 0, 0), TxnNone, ErrStaleEpoch, ErrStaleEpoch, false},
		"transaction goes on":             {[]Batch{inTxn(data(0, 0, 0))}, inTxn(data(0, 1, 1)), TxnContinue, nil, nil, false},
		"opened again":                    {[]Batch{inTxn(data(0, 0, 0))}, inTxn(data(0, 1, 1)), TxnOpen, nil, nil, false},
		"plain inside a transaction":      {[]Batch{inTxn(data(0, 0, 0))}, data(0, 1, 1), TxnNone, ErrInvalidTxnState, ErrInvalidTxnState, false},
		"plain before a transaction":      {[]Batch{data(0, 0, 0)}, inTxn(data(0, 1, 1)), TxnContinue, ErrTxnNotOpen, ErrTxnNotOpen, false},
		"newer epoch, transaction open":   {[]Batch{inTxn(data(0, 0, 0))}, inTxn(data(1, 0, 0)), TxnOpen, ErrInvalidTxnState, ErrInvalidTxnState, false},
		"late, same epoch (P01)":          {[]Batch{inTxn(data(0, 0, 0)), mark(0, 0)}, inTxn(data(0, 1, 1)), TxnContinue, ErrTxnNotOpen, ErrTxnNotOpen, false},
		"late, bumped epoch (P01)":        {[]Batch{inTxn(data(0, 0, 0)), mark(1, 0)}, inTxn(data(0, 1, 1)), TxnContinue, ErrStaleEpoch, ErrStaleEpoch, false},
		"next transaction, same epoch":    {[]Batch{inTxn(data(0, 0, 0)), mark(0, 0)}, inTxn(data(0, 1, 1)), TxnOpen, nil, nil, false},
		"next transaction, bumped epoch":  {[]Batch{inTxn(data(0, 0, 0)), mark(1, 0)}, inTxn(data(1, 0, 0)), TxnOpen, nil, nil, false},
		"repeat behind the marker":        {[]Batch{inTxn(data(0, 0, 0)), mark(0, 0)}, inTxn(data(0, 0, 0)), TxnContinue, nil, nil, true},
		"repeat behind a bumping marker":  {[]Batch{inTxn(data(0, 0, 0)), mark(1, 0)}, inTxn(data(0, 0, 0)), TxnContinue, ErrStaleEpoch, ErrStaleEpoch, false},
		"facts without sequence":          {[]Batch{inTxn(data(0, model.NoSequence, model.NoSequence))}, inTxn(data(0, model.NoSequence, model.NoSequence)), TxnOpen, nil, nil, false},
		"facts without sequence, too old": {[]Batch{inTxn(data(1, model.NoSequence, model.NoSequence))}, inTxn(data(0, model.NoSequence, model.NoSequence)), TxnOpen, ErrStaleEpoch, ErrStaleEpoch, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, strict := range []bool{false, true} {
				want := c.lax
				if strict {
					want = c.strict
				}
				var l log
				for _, b := range c.log {
					l.apply(b)
				}
				before := l.Table.AppendTo(nil)
				original, found, err := l.CheckData(&c.batch, c.mode, strict)
				if !errors.Is(err, want) || found != c.found {
					t.Errorf("strict %v: found %v, %v; want %v, %v", strict, found, err, c.found, want)
				}
				if found && (original.First != 0 || original.Timestamp != 5) {
					t.Errorf("strict %v: original %+v", strict, original)
				}
				if string(before) != string(l.Table.AppendTo(nil)) {
					t.Errorf("strict %v: the check changed the table", strict)
				}
			}
		})
	}
}

func TestCheckMarkerDecidesByEpochAndCoordinator(t *testing.T) {
	for name, c := range map[string]struct {
		log         []Batch
		marker      Batch
		lax, strict error
	}{
		"unknown producer":                 {nil, mark(0, 0), nil, nil},
		"same epoch, open":                 {[]Batch{inTxn(data(1, 0, 0))}, mark(1, 0), nil, ErrStaleEpoch},
		"newer epoch, open":                {[]Batch{inTxn(data(1, 0, 0))}, mark(2, 0), nil, nil},
		"older epoch":                      {[]Batch{inTxn(data(1, 0, 0))}, mark(0, 0), ErrStaleEpoch, ErrStaleEpoch},
		"same epoch again, nothing open":   {[]Batch{inTxn(data(1, 0, 0)), mark(2, 0)}, mark(2, 0), nil, nil},
		"coordinator that was replaced":    {[]Batch{inTxn(data(1, 0, 0)), mark(2, 5)}, mark(2, 4), ErrStaleCoordinator, ErrStaleCoordinator},
		"coordinator of the same epoch":    {[]Batch{inTxn(data(1, 0, 0)), mark(2, 5)}, mark(2, 5), nil, nil},
		"coordinator of a newer epoch":     {[]Batch{inTxn(data(1, 0, 0)), mark(2, 5)}, mark(2, 6), nil, nil},
		"same epoch without a transaction": {[]Batch{data(1, 0, 0)}, mark(1, 0), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var l log
			for _, b := range c.log {
				l.apply(b)
			}
			if err := l.CheckMarker(&c.marker, false); !errors.Is(err, c.lax) {
				t.Errorf("%v, want %v", err, c.lax)
			}
			if err := l.CheckMarker(&c.marker, true); !errors.Is(err, c.strict) {
				t.Errorf("strict: %v, want %v", err, c.strict)
			}
		})
	}
}

func TestExpiryCountsMarkersAndSparesOpenTransactions(t *testing.T) {
	var l log
	now := func(b Batch, at int64) {
		b.First, b.Last = l.next, l.next
		l.next++
		l.Table.Apply(&b, l.Table.Plan(&b), at)
	}
	now(inTxn(data(0, 0, 0)), 10)
	if n := l.Expire(1000); n != 0 {
		t.Fatalf("forgot %d producers with an open transaction", n)
	}
	now(mark(1, 0), 900)
	if n := l.Expire(900); n != 0 {
		t.Fatalf("forgot %d producers whose marker is young enough", n)
	}
	if n := l.Expire(901); n != 1 || l.Len() != 0 {
		t.Fatalf("forgot %d producers, %d left", n, l.Len())
	}
}
