package moonmq

import (
	"errors"
	"fmt"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/transport"
)

// row says who may send an op and who serves it.
type row struct {
	from, to state // the states that accept it
	handle   func(s *session, r request) (answer, error)
	// early runs before decoding, for the checks the protocol makes there.
	early func(s *session) error
	// fatal: a payload that does not decode ends the connection.
	fatal bool
}

// table has a row for every op a client may send. Metric labels and the tests of
// the state rules are derived from it.
var table map[wire.Op]row

func init() {
	const n, g, a = stateNew, stateGreeted, stateAuthenticated
	table = map[wire.Op]row{
		wire.OpHello:             {n, n, (*session).hello, nil, true},
		wire.OpAuth:              {g, g, (*session).auth, nil, true},
		wire.OpAuthScram:         {g, g, (*session).authScram, nil, true},
		wire.OpAuthScramFinal:    {g, g, (*session).authScramFinal, nil, true},
		wire.OpIdentifyClient:    {g, a, (*session).identify, nil, false},
		wire.OpHeartbeatReq:      {n, a, (*session).heartbeat, nil, false},
		wire.OpHeartbeatResp:     {n, a, (*session).heartbeatEcho, nil, false},
		wire.OpGoodbye:           {n, a, (*session).goodbye, nil, false},
		wire.OpProduce:           {a, a, (*session).produce, nil, false},
		wire.OpProduceBatch:      {a, a, (*session).produceBatch, nil, false},
		wire.OpProduceIdempotent: {a, a, (*session).produceIdempotent, (*session).needProducer, false},
		wire.OpInitProducerID:    {a, a, (*session).initProducer, nil, false},
		wire.OpBeginTxn:          {a, a, (*session).beginTxn, nil, false},
		wire.OpEndTxn:            {a, a, (*session).endTxn, (*session).needTransaction, false},
		wire.OpTxnOffsetCommit:   {a, a, (*session).txnOffsetCommit, (*session).needTransaction, false},
		wire.OpFetch:             {a, a, (*session).fetch, nil, false},
		wire.OpSubscribe:         {a, a, (*session).subscribe, nil, false},
		wire.OpCommit:            {a, a, (*session).commit, nil, false},
		wire.OpNack:              {a, a, (*session).nack, nil, false},
		wire.OpListOffsets:       {a, a, (*session).listOffsets, nil, false},
		wire.OpJoinGroup:         {a, a, (*session).joinGroup, nil, false},
		wire.OpLeaveGroup:        {a, a, (*session).leaveGroupOp, nil, false},
		wire.OpGroupHeartbeat:    {a, a, (*session).groupHeartbeat, nil, false},
		wire.OpListGroups:        {a, a, (*session).listGroups, nil, false},
		wire.OpDescribeGroup:     {a, a, (*session).describeGroup, nil, false},
		wire.OpDeleteGroup:       {a, a, (*session).deleteGroup, nil, false},
		wire.OpCreateTopic:       {a, a, (*session).createTopic, nil, false},
		wire.OpListTopics:        {a, a, (*session).listTopics, nil, false},
		wire.OpDeleteTopic:       {a, a, (*session).deleteTopic, nil, false},
		wire.OpDescribeTopic:     {a, a, (*session).describeTopic, nil, false},
		wire.OpAlterTopicConfig:  {a, a, (*session).alterTopic, nil, false},
		wire.OpCreatePartitions:  {a, a, (*session).createPartitions, nil, false},
	}
}

// dispatch finds the row, checks the state, decodes and serves.
func (s *session) dispatch(f wire.Frame, frame *transport.Frame) (answer, error) {
	r, known := table[f.Op]
	switch {
	case !known && s.state == stateAuthenticated:
		return answer{}, fail(wire.UnknownOp, "op "+f.Op.Hex())
	case !known || !s.accepts(r):
		return answer{}, fail(wire.BadFrame, fmt.Sprintf("op %s not allowed in state %s", f.Op.Hex(), s.state))
	}
	if r.early != nil {
		if err := r.early(s); err != nil {
			return answer{}, err
		}
	}
	body, err := wire.DecodeRequest(f.Op, f.Payload)
	if err != nil {
		var d *wire.DecodeError
		if errors.As(err, &d) && r.fatal {
			return answer{}, failFatally(wire.BadFrame, d.Text)
		}
		return answer{}, fail(wire.BadFrame, err.Error())
	}
	return r.handle(s, request{id: f.ID, body: body, frame: frame})
}

// accepts applies the state table. Where nobody can log in because nobody is
// known, a greeted client may do everything: it need not log in, and then the
// handshake is over.
func (s *session) accepts(r row) bool {
	if s.state >= r.from && s.state <= r.to {
		return true
	}
	if s.state == stateGreeted && r.from == stateAuthenticated && s.front.access.Open() {
		s.admit()
		return true
	}
	return false
}
