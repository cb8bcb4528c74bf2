package workload

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/checker"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// Codes of Kafka's that the workload acts on.
const (
	offsetOutOfRange = 1
	unknownTopic     = 3
	invalidEpoch     = 47
	unstableOffset   = 88
	producerFenced   = 90
)

// away are the codes of a broker that cannot go on and says so: try again later.
var away = map[int16]bool{14: true, 15: true, 16: true, 56: true}

// provesNothing are the codes that prove that a batch was not written.
var provesNothing = map[int16]bool{3: true, 45: true, 47: true, 48: true, 49: true, 53: true, 87: true, 90: true, 120: true}

// refusesEnd are the codes that prove that an end did not happen.
var refusesEnd = map[int16]bool{47: true, 48: true, 49: true, 90: true, 120: true}

// answerLimit is how long an answer may take before the connection is given up.
const answerLimit = 30 * time.Second

// link is one Kafka connection. After an error it is broken for good.
type link struct {
	conn   net.Conn
	corr   int32
	broken bool
}

var errNoConnection = errors.New("no connection")

// connectKafka tries until the broker is there; nil when it is over.
func (w *Workload) connectKafka(actor int) *link {
	for !w.over() {
		if conn, err := w.o.World.DialKafka(); err == nil {
			return &link{conn: conn}
		}
		w.o.World.Pause(actor)
	}
	return nil
}

func (l *link) close() {
	if l != nil {
		l.conn.Close()
	}
}

// ask sends a request when it is the actor's turn and returns the answer.
func (w *Workload) ask(actor int, l *link, req kmsg.Request) (kmsg.Response, error) {
	w.o.World.Turn(actor)
	defer w.o.World.Answered(actor)
	return l.ask(req)
}

func (l *link) ask(req kmsg.Request) (kmsg.Response, error) {
	if l == nil || l.broken {
		return nil, errNoConnection
	}
	l.corr++
	resp, err := l.exchange(req)
	if err != nil {
		l.broken = true
		l.conn.Close()
	}
	return resp, err
}

func (l *link) exchange(req kmsg.Request) (kmsg.Response, error) {
	l.conn.SetDeadline(time.Now().Add(answerLimit))
	if _, err := l.conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("workload")).AppendRequest(nil, req, l.corr)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(l.conn, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(l.conn, body); err != nil {
		return nil, err
	}
	body = body[4:] // correlation id
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() {
		body = body[1:] // a header without tags
	}
	return resp, resp.ReadFrom(body)
}

// identity is a producer id with its epoch.
type identity struct {
	id    int64
	epoch int16
}

var nobody = identity{-1, -1}

func initRequest(id *string, timeout int32, given identity) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = 4
	req.TransactionalID, req.TransactionTimeoutMillis = id, timeout
	req.ProducerID, req.ProducerEpoch = given.id, given.epoch
	return req
}

func enrolRequest(id string, me identity, at Place) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = 3
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id, me.id, me.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: at.Topic, Partitions: []int32{at.Partition}}}
	return req
}

func enrolGroupRequest(id string, me identity, group string) *kmsg.AddOffsetsToTxnRequest {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version = 3
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id, me.id, me.epoch, group
	return req
}

func offsetRequest(version int16, id string, me identity, s checker.Source) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version = version
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id, me.id, me.epoch, s.Group
	req.Generation = -1
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = s.Partition, s.Offset+1
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: inputTopic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p}}}
	return req
}

func endRequest(version int16, id string, me identity, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version = version
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = id, me.id, me.epoch, commit
	return req
}

func produceRequest(version int16, id string, at Place, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	req.Acks, req.TimeoutMillis = -1, 30_000
	if id != "" {
		req.TransactionID = &id
	}
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = at.Partition, records
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = at.Topic, []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = append(req.Topics, t)
	return req
}

func produced(resp kmsg.Response) (offset int64, code int16) {
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return p.BaseOffset, p.ErrorCode
}

func fetchOffsetRequest(group string, partition int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group, req.RequireStable = 7, group, true
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: inputTopic, Partitions: []int32{partition}}}
	return req
}

// fetchedOffset is the answer; -1 without a commit.
func fetchedOffset(resp kmsg.Response) (offset int64, code int16) {
	got := resp.(*kmsg.OffsetFetchResponse)
	if got.ErrorCode != 0 {
		return -1, got.ErrorCode
	}
	p := got.Topics[0].Partitions[0]
	return p.Offset, p.ErrorCode
}

// record is one record to be written.
type record struct{ key, value string }

// encode is a transactional batch of a producer, or a plain one of nobody.
func encode(me identity, seq int32, records []record) []byte {
	o := batch.BuilderOptions{}
	if me != nobody {
		o.Transactional = true
		o.Producer = &batch.Producer{
			ProducerIdentity: model.ProducerIdentity{ID: model.ProducerID(me.id), Epoch: model.ProducerEpoch(me.epoch)},
			BaseSequence:     model.Sequence(seq),
		}
	}
	b := batch.NewBuilder(o)
	for _, r := range records {
		b.Add(batch.NewRecord{Timestamp: model.Timestamp(time.Now().UnixMilli()), Key: []byte(r.key), Value: []byte(r.value)})
	}
	view, err := b.Build()
	if err != nil {
		panic(err)
	}
	return view.Bytes()
}

// encodeValues is encode of the history's values; the compacted partition's have
// one of a few keys.
func encodeValues(me identity, seq int32, place int, values []checker.Value) []byte {
	records := make([]record, len(values))
	for i, v := range values {
		records[i] = record{keyOf(place, v), strconv.FormatInt(int64(v), 10)}
	}
	return encode(me, seq, records)
}

// keyOf is the key a value is written with.
func keyOf(place int, v checker.Value) string {
	if place != compactedPlace {
		return ""
	}
	return "key-" + strconv.FormatInt(int64(v)%compactedKeys, 10)
}
