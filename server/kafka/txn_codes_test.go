package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/coordinator/txn"
	"github.com/perigeemq/perigee/storage"
)

// What each version of a transactional request is told. A column is an API with
// its versions; a string holds the code for version 0, 1, 2, ….
func TestTransactionCodesByVersion(t *testing.T) {
	loading := kerr.CoordinatorLoadInProgress.Code
	const (
		initID = kmsg.InitProducerID
		addP   = kmsg.AddPartitionsToTxn
		addO   = kmsg.AddOffsetsToTxn
		end    = kmsg.EndTxn
		commit = kmsg.TxnOffsetCommit
		prod   = kmsg.Produce
	)
	fenced := txnCodeOf(end, txn.ErrFenced)
	abortable := txnCodeOf(end, txn.ErrNotEnrolled)
	concurrent := txnCodeOf(end, txn.ErrConcurrent)
	mapping := txnCodeOf(end, txn.ErrMapping)
	for _, row := range []struct {
		key  kmsg.Key
		code int16
		want []int16 // by version
	}{
		{initID, fenced, []int16{47, 47, 47, 47, 90, 90}},
		{addP, fenced, []int16{47, 47, 90, 90, 90, 90}},
		{addO, fenced, []int16{47, 47, 90, 90, 90}},
		{end, fenced, []int16{47, 47, 90, 90, 90, 90}},
		{commit, fenced, []int16{47, 47, 47, 47, 47, 47, 47}},
		{prod, fenced, []int16{47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47, 47}},

		{addP, abortable, []int16{48, 48, 48, 48, 120, 120}},
		{addO, abortable, []int16{48, 48, 48, 48, 120}},
		{end, abortable, []int16{48, 48, 48, 48, 120, 120}},
		{commit, abortable, []int16{48, 48, 48, 48, 120, 120, 120}},
		{prod, abortable, []int16{48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 48, 120, 120, 120}},

		{initID, loading, []int16{14, 14, 14, 14, 14, 14}},
		{addP, loading, []int16{14, 14, 14, 14, 14, 14}},
		{addO, loading, []int16{14, 14, 14, 14, 14}},
		{end, loading, []int16{14, 14, 14, 14, 14, 14}},
		{commit, loading, []int16{15, 15, 14, 14, 14, 14, 14}},
		{prod, loading, []int16{19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 19}},

		{initID, concurrent, []int16{51, 51, 51, 51, 51, 51}},
		{addP, concurrent, []int16{51, 51, 51, 51, 51, 51}},
		{addO, concurrent, []int16{51, 51, 51, 51, 51}},
		{end, concurrent, []int16{51, 51, 51, 51, 51, 51}},
		{commit, concurrent, []int16{51, 51, 51, 51, 51, 51, 51}},
		{prod, concurrent, []int16{19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 51, 51}},

		{initID, mapping, []int16{49, 49, 49, 49, 49, 49}},
		{addP, mapping, []int16{49, 49, 49, 49, 49, 49}},
		{addO, mapping, []int16{49, 49, 49, 49, 49}},
		{end, mapping, []int16{49, 49, 49, 49, 49, 49}},
		{commit, mapping, []int16{49, 49, 49, 49, 49, 49, 49}},
		{prod, mapping, []int16{49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49}},
	} {
		for version, want := range row.want {
			if got := translateTxn(row.key, int16(version), row.code); got != want {
				t.Errorf("%s version %d: %d becomes %d, want %d", row.key.Name(), version, row.code, got, want)
			}
		}
	}
}

// Every refusal of the coordinator has a code of its own; none ends as
// UNKNOWN_SERVER_ERROR, which clients take for an unknown outcome.
func TestEveryTransactionErrorHasACode(t *testing.T) {
	for err, want := range map[error]int16{
		nil:                              0,
		txn.ErrInvalidRequest:            42,
		txn.ErrInvalidTimeout:            50,
		txn.ErrFenced:                    90,
		txn.ErrTimedOut:                  90,
		txn.ErrMapping:                   49,
		txn.ErrInvalidState:              48,
		txn.ErrConcurrent:                51,
		txn.ErrNotEnrolled:               120,
		txn.ErrNotFound:                  105,
		storage.ErrStorageFull:           15,
		storage.ErrPoisoned:              15,
		storage.ErrStaleCoordinatorEpoch: 52,
	} {
		wrapped := err
		if err != nil {
			wrapped = fmt.Errorf("end: %w", errors.Join(err))
		}
		if got := txnCode(kmsg.EndTxn, 5, wrapped); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}
