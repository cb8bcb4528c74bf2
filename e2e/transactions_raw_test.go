package e2e

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/e2e/workload"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// raw is one connection that speaks single requests, of any version, so that a
// test says exactly what is on the wire and in which order.
type raw struct {
	t    *testing.T
	conn net.Conn
	corr int32
	sent []kmsg.Request // without an answer yet
	ids  map[string][16]byte
}

// rawConn connects; the connection is closed with the test.
func rawConn(t *testing.T, addr string) *raw {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &raw{t: t, conn: conn, ids: map[string][16]byte{}}
}

// again is a second connection to the same broker.
func (w *raw) again() *raw {
	w.t.Helper()
	other := rawConn(w.t, w.conn.RemoteAddr().String())
	other.ids = w.ids
	return other
}

// send writes a request and does not wait for its answer.
func (w *raw) send(req kmsg.Request) {
	w.t.Helper()
	w.corr++
	b := kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, w.corr)
	if _, err := w.conn.Write(b); err != nil {
		w.t.Fatalf("send %s: %v", kmsg.NameForKey(req.Key()), err)
	}
	w.sent = append(w.sent, req)
}

// receive reads the answer of the oldest request without one.
func (w *raw) receive() kmsg.Response {
	w.t.Helper()
	req := w.sent[0]
	w.sent = w.sent[1:]
	resp, err := w.tryReceive(req)
	if err != nil {
		w.t.Fatalf("answer to %s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

func (w *raw) tryReceive(req kmsg.Request) (kmsg.Response, error) {
	w.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	var size [4]byte
	if _, err := io.ReadFull(w.conn, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.conn, body); err != nil {
		return nil, err
	}
	body = body[4:] // correlation id
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		body = body[1:] // no tags in our headers
	}
	return resp, resp.ReadFrom(body)
}

func (w *raw) do(req kmsg.Request) kmsg.Response {
	w.t.Helper()
	w.send(req)
	return w.receive()
}

// newTopic creates a topic and remembers its id.
func (w *raw) newTopic(name string, partitions int32) {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, topic)
	got := w.do(req).(*kmsg.CreateTopicsResponse).Topics[0]
	if got.ErrorCode != 0 {
		w.t.Fatalf("create %s: code %d", name, got.ErrorCode)
	}
	w.ids[name] = got.TopicID
}

// identity is a producer id with its epoch.
type identity struct {
	id    int64
	epoch int16
}

var nobody = identity{-1, -1}

func (w *raw) tryInit(version int16, txid string, timeout time.Duration, given identity) (identity, int16) {
	w.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = version
	req.TransactionalID, req.TransactionTimeoutMillis = &txid, int32(timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = given.id, given.epoch
	resp := w.do(req).(*kmsg.InitProducerIDResponse)
	return identity{resp.ProducerID, resp.ProducerEpoch}, resp.ErrorCode
}

// init owns a transactional id, as a client does that starts.
func (w *raw) init(txid string) identity {
	w.t.Helper()
	p, code := w.tryInit(4, txid, time.Minute, nobody)
	w.want("InitProducerId", code, 0)
	return p
}

func (w *raw) addPartitions(version int16, txid string, p identity, topic string, partitions ...int32) int16 {
	w.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = version
	if version >= 4 {
		entry := kmsg.NewAddPartitionsToTxnRequestTransaction()
		entry.TransactionalID, entry.ProducerID, entry.ProducerEpoch = txid, p.id, p.epoch
		entry.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: topic, Partitions: partitions}}
		req.Transactions = append(req.Transactions, entry)
		return w.do(req).(*kmsg.AddPartitionsToTxnResponse).Transactions[0].Topics[0].Partitions[0].ErrorCode
	}
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = txid, p.id, p.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: partitions}}
	return w.do(req).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
}

func (w *raw) verify(version int16, txid string, p identity, topic string, partition int32) int16 {
	w.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = version
	entry := kmsg.NewAddPartitionsToTxnRequestTransaction()
	entry.TransactionalID, entry.ProducerID, entry.ProducerEpoch, entry.VerifyOnly = txid, p.id, p.epoch, true
	entry.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: topic, Partitions: []int32{partition}}}
	req.Transactions = append(req.Transactions, entry)
	return w.do(req).(*kmsg.AddPartitionsToTxnResponse).Transactions[0].Topics[0].Partitions[0].ErrorCode
}

func (w *raw) addOffsets(version int16, txid string, p identity, group string) int16 {
	w.t.Helper()
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version = version
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = txid, p.id, p.epoch, group
	return w.do(req).(*kmsg.AddOffsetsToTxnResponse).ErrorCode
}

// commitOffset is a TxnOffsetCommit without member data.
func (w *raw) commitOffset(version int16, txid string, p identity, group, topic string, partition int32, offset int64) int16 {
	w.t.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version = version
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = txid, p.id, p.epoch, group
	req.Generation = -1
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = partition, offset
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, TopicID: w.ids[topic], Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{part}}}
	return w.do(req).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

// fetchOffset returns a group's offset, with require_stable.
func (w *raw) fetchOffset(group, topic string, partition int32, stable bool) (int64, int16) {
	w.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 7
	req.Group, req.RequireStable = group, stable
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	resp := w.do(req).(*kmsg.OffsetFetchResponse)
	if resp.ErrorCode != 0 {
		return -1, resp.ErrorCode
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, p.ErrorCode
}

func endRequest(version int16, txid string, p identity, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version = version
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = txid, p.id, p.epoch, commit
	return req
}

func (w *raw) end(version int16, txid string, p identity, commit bool) (identity, int16) {
	w.t.Helper()
	resp := w.do(endRequest(version, txid, p, commit)).(*kmsg.EndTxnResponse)
	if version < 5 {
		return p, resp.ErrorCode
	}
	return identity{resp.ProducerID, resp.ProducerEpoch}, resp.ErrorCode
}

// records is a transactional batch of a producer, or a plain one of nobody.
func records(p identity, seq int32, values ...string) []byte {
	o := batch.BuilderOptions{}
	if p != nobody {
		o.Transactional = true
		o.Producer = &batch.Producer{
			ProducerIdentity: model.ProducerIdentity{ID: model.ProducerID(p.id), Epoch: model.ProducerEpoch(p.epoch)},
			BaseSequence:     model.Sequence(seq),
		}
	}
	b := batch.NewBuilder(o)
	for _, v := range values {
		b.Add(batch.NewRecord{Timestamp: model.Timestamp(time.Now().UnixMilli()), Value: []byte(v)})
	}
	view, err := b.Build()
	if err != nil {
		panic(err)
	}
	return view.Bytes()
}

func (w *raw) produceRequest(version int16, txid, topic string, partition int32, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version = version
	req.Acks, req.TimeoutMillis = -1, 30_000
	if txid != "" {
		req.TransactionID = &txid
	}
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, w.ids[topic]
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func produced(resp kmsg.Response) (offset int64, code int16) {
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return p.BaseOffset, p.ErrorCode
}

// produce sends one transactional batch of one-value records.
func (w *raw) produce(version int16, txid string, p identity, seq int32, topic string, partition int32, values ...string) (int64, int16) {
	w.t.Helper()
	return produced(w.do(w.produceRequest(version, txid, topic, partition, records(p, seq, values...))))
}

// fetched is what one Fetch of one partition returned.
type fetched struct {
	code                int16
	stable, high, start int64
	aborted             []kmsg.FetchResponseTopicPartitionAbortedTransaction
	batches             []batch.View
}

func (w *raw) fetch(version int16, topic string, partition int32, from int64, committed bool) fetched {
	w.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.ReplicaID = -1
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 1<<20, 0, 0
	req.SessionEpoch = -1
	if committed {
		req.IsolationLevel = 1
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, w.ids[topic]
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, from, 1<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := w.do(req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 {
		w.t.Fatalf("fetch %s-%d: code %d, %d topics", topic, partition, resp.ErrorCode, len(resp.Topics))
	}
	got := resp.Topics[0].Partitions[0]
	f := fetched{code: got.ErrorCode, stable: got.LastStableOffset, high: got.HighWatermark, start: got.LogStartOffset, aborted: got.AbortedTransactions}
	for rest := got.RecordBatches; len(rest) > 0; {
		view, tail, err := batch.Parse(rest)
		if err != nil {
			w.t.Fatalf("fetch %s-%d from %d: %v", topic, partition, from, err)
		}
		f.batches, rest = append(f.batches, view), tail
	}
	return f
}

// values are all values of data batches in a fetch, as a read_uncommitted
// client hands them out.
func (f fetched) values() []string {
	var vs []string
	for _, b := range f.batches {
		if !b.IsControl() {
			vs = append(vs, valuesOf(b)...)
		}
	}
	return vs
}

// committedValues filters as clients do.
func (f fetched) committedValues() []string {
	var vs []string
	workload.EachCommitted(f.batches, f.aborted, func(b batch.View) { vs = append(vs, valuesOf(b)...) })
	return vs
}

func valuesOf(b batch.View) []string {
	var vs []string
	for r, err := range b.Records(batch.MaxDecompressedBytes) {
		if err != nil {
			panic(err) // parsed and checksummed: the test's own batch
		}
		vs = append(vs, string(r.Value))
	}
	return vs
}

// latest is ListOffsets -1.
func (w *raw) latest(topic string, partition int32, committed bool) int64 {
	w.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 5
	req.ReplicaID = -1
	if committed {
		req.IsolationLevel = 1
	}
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	got := w.do(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	w.want("ListOffsets", got.ErrorCode, 0)
	return got.Offset
}

// describe returns the state of a transactional id.
func (w *raw) describe(txid string) kmsg.DescribeTransactionsResponseTransactionState {
	w.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{txid}
	return w.do(req).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
}

// openProducers lists the producers with an open transaction on a partition.
func (w *raw) openProducers(topic string, partition int32) []int64 {
	w.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	got := w.do(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
	w.want("DescribeProducers", got.ErrorCode, 0)
	var open []int64
	for _, p := range got.ActiveProducers {
		if p.CurrentTxnStartOffset >= 0 {
			open = append(open, p.ProducerID)
		}
	}
	return open
}

// want fails unless a code is the expected one.
func (w *raw) want(what string, got, want int16) {
	w.t.Helper()
	if got != want {
		w.t.Fatalf("%s answered %d, want %d", what, got, want)
	}
}

// closed asserts that no transaction is open on a partition and everything in
// it is visible to everybody.
func (w *raw) closed(topic string, partition int32) {
	w.t.Helper()
	if rc, ru := w.latest(topic, partition, true), w.latest(topic, partition, false); rc != ru {
		w.t.Errorf("%s-%d: stable offset %d, end %d", topic, partition, rc, ru)
	}
	if open := w.openProducers(topic, partition); len(open) > 0 {
		w.t.Errorf("%s-%d: producers with an open transaction: %v", topic, partition, open)
	}
}

// produceOnce is an acks=all produce of one plain record on a connection of its
// own; ok is false if the outcome is not a success.
func produceOnce(t *testing.T, addr, topic string, partition int32, value string) (offset int64, ok bool) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		time.Sleep(time.Millisecond) // the broker is down; do not spin
		return 0, false
	}
	defer conn.Close()
	w := &raw{t: t, conn: conn}
	req := w.produceRequest(9, "", topic, partition, records(nobody, 0, value))
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		return 0, false
	}
	resp, err := w.tryReceive(req)
	if err != nil {
		return 0, false
	}
	offset, code := produced(resp)
	return offset, code == 0
}

// short begins a transaction that times out in a second, with one record in partition
// 0 of t. A machine that stalls for so long tries again.
func (w *raw) short(txid string) identity {
	w.t.Helper()
	for range 10 {
		p, code := w.tryInit(4, txid, time.Second, nobody)
		w.want("InitProducerId", code, 0)
		w.addPartitions(0, txid, p, "t", 0)
		if _, code = w.produce(9, txid, p, 0, "t", 0, "late"); code == 0 {
			return p
		}
	}
	w.t.Fatal("ten transactions timed out before their first record")
	return nobody
}

// timesOut waits for the end of a short transaction.
func (w *raw) timesOut(txid string) {
	w.t.Helper()
	eventually(w.t, 10*time.Second, func() string { return "the transaction was not timed out" }, func() bool {
		return w.describe(txid).State == "CompleteAbort"
	})
}

// setTopicConfig changes one setting of a topic.
func (w *raw) setTopicConfig(topic, name, value string) {
	w.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = name, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	w.want("IncrementalAlterConfigs", w.do(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode, 0)
}
