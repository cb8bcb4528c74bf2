package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// codes maps domain errors to Kafka codes; nowhere else does one become the
// other. A transactional API's code may then be translated for its version by
// txn_codes.go.
//
// The first match wins, so a special error stands above the one it wraps.
var codes = []struct {
	is   error
	code *kerr.Error
}{
	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut}, // the connection ends; nobody reads the answer
}

// codeOf returns the code of a domain error, 0 for nil. An error the table does
// not know is a bug of ours and becomes UNKNOWN_SERVER_ERROR.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	for _, row := range codes {
		if errors.Is(err, row.is) {
			return row.code.Code
		}
	}
	return kerr.UnknownServerError.Code
}
