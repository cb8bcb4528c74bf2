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
	// appends: the request does not wait for the session's earlier appends, so that
	// pipelined ones share a sync. Every other request sees what was appended.
	appends bool
}

// table has a row for every op a client may send. Metric labels and the tests of
// the state rules are derived from it.
var table map[wire.Op]row

func init() {
	type handler = func(s *session, r request) (answer, error)
	login := func(in state, h handler) row { return row{from: in, to: in, handle: h, fatal: true} }
	from := func(first state, h handler) row { return row{from: first, to: stateAuthenticated, handle: h} }
	served := func(h handler) row { return from(stateAuthenticated, h) }
	after := func(early func(s *session) error, h handler) row {
		r := served(h)
		r.early = early
		return r
	}
	appends := func(r row) row { r.appends = true; return r }
	table = map[wire.Op]row{
		wire.OpHello:          login(stateNew, (*session).hello),
		wire.OpAuth:           login(stateGreeted, (*session).auth),
		wire.OpAuthScram:      login(stateGreeted, (*session).authScram),
		wire.OpAuthScramFinal: login(stateGreeted, (*session).authScramFinal),

		wire.OpIdentifyClient: from(stateGreeted, (*session).identify),
		wire.OpHeartbeatReq:   from(stateNew, (*session).heartbeat),
		wire.OpHeartbeatResp:  from(stateNew, (*session).heartbeatEcho),
		wire.OpGoodbye:        from(stateNew, (*session).goodbye),

		wire.OpProduce:           appends(served((*session).produce)),
		wire.OpProduceBatch:      appends(served((*session).produceBatch)),
		wire.OpProduceIdempotent: appends(after((*session).needProducer, (*session).produceIdempotent)),
		wire.OpInitProducerID:    served((*session).initProducer),
		wire.OpBeginTxn:          served((*session).beginTxn),
		wire.OpEndTxn:            after((*session).needTransaction, (*session).endTxn),
		wire.OpTxnOffsetCommit:   after((*session).needTransaction, (*session).txnOffsetCommit),

		wire.OpFetch:       served((*session).fetch),
		wire.OpSubscribe:   served((*session).subscribe),
		wire.OpCommit:      served((*session).commit),
		wire.OpNack:        served((*session).nack),
		wire.OpListOffsets: served((*session).listOffsets),

		wire.OpJoinGroup:      served((*session).joinGroup),
		wire.OpLeaveGroup:     served((*session).leaveGroupOp),
		wire.OpGroupHeartbeat: served((*session).groupHeartbeat),
		wire.OpListGroups:     served((*session).listGroups),
		wire.OpDescribeGroup:  served((*session).describeGroup),
		wire.OpDeleteGroup:    served((*session).deleteGroup),

		wire.OpCreateTopic:      served((*session).createTopic),
		wire.OpListTopics:       served((*session).listTopics),
		wire.OpDeleteTopic:      served((*session).deleteTopic),
		wire.OpDescribeTopic:    served((*session).describeTopic),
		wire.OpAlterTopicConfig: served((*session).alterTopic),
		wire.OpCreatePartitions: served((*session).createPartitions),
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
	if !r.appends {
		s.settle()
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

// settle waits until what the session appended can be read. How an append ended is
// told by its own answer.
func (s *session) settle() {
	if s.appended == nil {
		return
	}
	select {
	case <-s.appended.Done():
	case <-s.conn.Context().Done():
	}
	s.appended = nil
}
