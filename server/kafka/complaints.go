package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/perigeemq/perigee/storage/model"
)

// complaints remembers which producers have been complained about: one that is
// fenced or has lost its place repeats itself with every batch until its client
// notices, and one line tells it all.
type complaints struct {
	mu   sync.Mutex
	said map[complaint]struct{}
}

// complaint is what is said once.
type complaint struct {
	producer model.ProducerIdentity
	code     int16
}

// complaintsKept bounds the memory; beyond it everything may be said once more.
const complaintsKept = 1000

// first reports whether this has not been said before.
func (r *complaints) first(what complaint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.said[what]; ok {
		return false
	}
	if r.said == nil || len(r.said) == complaintsKept {
		r.said = make(map[complaint]struct{})
	}
	r.said[what] = struct{}{}
	return true
}

// concernsProducer reports whether a code says that a producer, not a batch, is
// wrong.
func concernsProducer(code int16) bool {
	switch code {
	case kerr.OutOfOrderSequenceNumber.Code, kerr.InvalidProducerEpoch.Code, kerr.ProducerFenced.Code,
		kerr.InvalidTxnState.Code, kerr.UnknownProducerID.Code, kerr.InvalidProducerIDMapping.Code:
		return true
	}
	return false
}

// complain writes a line about a producer that was refused, the first time.
func (p *production) complain(it *produced, code int16, err error) {
	if !concernsProducer(code) {
		return
	}
	view := it.batch.Batch
	who := model.ProducerIdentity{ID: view.ProducerID(), Epoch: view.ProducerEpoch()}
	if !p.session.complaints.first(complaint{who, code}) {
		return
	}
	e := p.session.log.Warn().Int64("producer_id", int64(who.ID)).Int16("epoch", int16(who.Epoch)).Str("client_id", p.request.clientID).
		Stringer("remote", p.session.conn.RemoteAddr()).Str("topic", it.topic.Name).Str("code", kerr.TypedErrorForCode(code).Message).Err(err)
	if p.req.TransactionID != nil {
		e = e.Str("transactional_id", *p.req.TransactionID)
	}
	e.Msg("producer refused; said once")
}
