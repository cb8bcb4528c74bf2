package workload

import (
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/checker"
)

// Resume does what clients do that outlive a broker: they ask again for ends
// whose answer they did not get, and end what they had open. An end that was
// acknowledged has the same answer again, and its opposite is refused. Call it
// before Start, on a broker that came back from what Past left.
func (w *Workload) Resume(rng *rand.Rand) error {
	l, err := w.direct()
	if err != nil {
		return err
	}
	defer l.close()
	for _, i := range w.o.Past.Last {
		t := &w.mu.h.Txns[i]
		*t = t.Clone()
		if t.Protocol == moonMQ {
			continue // the session went with the connection
		}
		if err := w.resume(l, t, rng); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workload) resume(l *link, t *checker.Txn, rng *rand.Rand) error {
	if len(t.Endings) == 0 {
		if t.Fenced || rng.IntN(2) == 0 {
			return nil // walks away
		}
		_, err := w.endAgain(l, t, rng.IntN(4) > 0 && !halfCopied(t))
		return err
	}
	last := t.Endings[len(t.Endings)-1]
	o, err := w.endAgain(l, t, last.Commit)
	if err != nil || last.Outcome != checker.Done {
		return err
	}
	if o != checker.Done {
		w.o.Report("the end of %s %s was acknowledged, its repetition is not", t.Protocol, t.ID)
	}
	_, err = w.endAgain(l, t, !last.Commit)
	return err
}

// halfCopied reports whether the offset of an input whose output was sent is not
// known to be part of the transaction: no client commits that.
func halfCopied(t *checker.Txn) bool {
	return slices.ContainsFunc(t.Appends, func(a checker.Append) bool {
		return a.Source != nil && !slices.Contains(t.Sources, *a.Source)
	})
}

func (w *Workload) endAgain(l *link, t *checker.Txn, commit bool) (checker.Outcome, error) {
	e := checker.Ending{Span: checker.Span{Invoked: w.now()}, Commit: commit}
	resp, err := l.ask(endRequest(endVersions[t.Protocol], t.ID, identity{t.PID, t.Epoch}, commit))
	if err != nil {
		return e.Outcome, err
	}
	e.Completed, e.Outcome = w.now(), outcomeOf(resp, nil)
	if e.Outcome == checker.Unknown {
		w.o.Report("ending %s %s again: code %d", t.Protocol, t.ID, resp.(*kmsg.EndTxnResponse).ErrorCode)
	}
	t.Endings = append(t.Endings, e)
	return e.Outcome, nil
}
