package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/server/transport"
)

// A handler runs on the connection's read goroutine, in arrival order, and must
// not block: it does what fixes an order, such as an append or a join, and
// returns the rest as a reply. A nil reply sends nothing (Produce with acks=0).
type handler func(s *session, r *request) reply

// A reply runs on the connection's write goroutine, in request order, and may
// block; ctx ends with the connection. The version of the response is set by
// the caller. A nil response sends nothing.
type reply func(ctx context.Context) kmsg.Response

// now is the reply of an answer that is ready.
func now(resp kmsg.Response) reply {
	return func(context.Context) kmsg.Response { return resp }
}

// request is one decoded request.
//
// Strings in body are copies; byte fields (records, member metadata,
// assignments) alias the frame, which lives until the reply is written. Who
// keeps them longer copies them or retains the frame.
type request struct {
	arrived      time.Time
	key, version int16
	correlation  int32
	clientID     string // "" when the client sent none
	body         kmsg.Request
	frame        *transport.Frame

	// hangup, set by the handler, closes the connection after what is queued: the
	// last resort where no answer can be sent.
	hangup error
}

// api is a row of THE table.
type api struct {
	key      int16
	min, max int16 // versions we advertise and serve
	name     string
	handle   handler
}

// table has one row for each API we serve, by key. ApiVersions answers, metric
// labels, the compatibility page and tests are derived from it. A row is added
// together with its handler.
var table = []api{
	{0, 0, 13, "Produce", produce},
	{1, 4, 18, "Fetch", fetch},
	{2, 0, 11, "ListOffsets", listOffsets},
	{3, 0, 13, "Metadata", metadata},
	{8, 0, 10, "OffsetCommit", offsetCommit},
	{9, 0, 10, "OffsetFetch", offsetFetch},
	{10, 0, 6, "FindCoordinator", findCoordinator},
	{11, 0, 9, "JoinGroup", joinGroup},
	{12, 0, 4, "Heartbeat", heartbeat},
	{13, 0, 5, "LeaveGroup", leaveGroup},
	{14, 0, 5, "SyncGroup", syncGroup},
	{15, 0, 6, "DescribeGroups", describeGroups},
	{16, 0, 5, "ListGroups", listGroups},
	{18, 0, 5, "ApiVersions", apiVersions},
	{19, 0, 7, "CreateTopics", createTopics},
	{20, 0, 6, "DeleteTopics", deleteTopics},
	{21, 0, 2, "DeleteRecords", deleteRecords},
	{22, 0, 5, "InitProducerId", initProducerID},
	{23, 0, 4, "OffsetForLeaderEpoch", offsetForLeaderEpoch},
	{24, 0, 5, "AddPartitionsToTxn", addPartitionsToTxn},
	{25, 0, 4, "AddOffsetsToTxn", addOffsetsToTxn},
	{26, 0, 5, "EndTxn", endTxn},
	{27, 1, 2, "WriteTxnMarkers", writeTxnMarkers},
	{28, 0, 6, "TxnOffsetCommit", txnOffsetCommit},
	{29, 1, 3, "DescribeAcls", describeACLs},
	{30, 1, 3, "CreateAcls", createACLs},
	{31, 1, 3, "DeleteAcls", deleteACLs},
	{32, 0, 4, "DescribeConfigs", describeConfigs},
	{33, 0, 2, "AlterConfigs", alterConfigs},
	{35, 0, 5, "DescribeLogDirs", describeLogDirs},
	{37, 0, 3, "CreatePartitions", createPartitions},
	{42, 0, 3, "DeleteGroups", deleteGroups},
	{43, 0, 2, "ElectLeaders", electLeaders},
	{44, 0, 1, "IncrementalAlterConfigs", incrementalAlterConfigs},
	{46, 0, 0, "ListPartitionReassignments", listPartitionReassignments},
	{47, 0, 0, "OffsetDelete", offsetDelete},
	{50, 0, 0, "DescribeUserScramCredentials", describeUserSCRAMCredentials},
	{51, 0, 0, "AlterUserScramCredentials", alterUserSCRAMCredentials},
	{57, 0, 2, "UpdateFeatures", updateFeatures},
	{60, 0, 2, "DescribeCluster", describeCluster},
	{61, 0, 0, "DescribeProducers", describeProducers},
	{65, 0, 0, "DescribeTransactions", describeTransactions},
	{66, 0, 2, "ListTransactions", listTransactions},
	{74, 0, 1, "ListConfigResources", listConfigResources},
	{75, 0, 0, "DescribeTopicPartitions", describeTopicPartitions},
}

// apiFor returns the row of a key, or nil.
func apiFor(key int16) *api {
	if key < 0 || int(key) >= len(byKey) {
		return nil
	}
	return byKey[key]
}

// byKey indexes table by API key; absent keys are nil.
var byKey []*api

func init() {
	for i := range table {
		a := &table[i]
		for int(a.key) >= len(byKey) {
			byKey = append(byKey, nil)
		}
		byKey[a.key] = a
	}
}

// APIName returns the name of an API we serve, "" for others.
func APIName(key int16) string {
	if a := apiFor(key); a != nil {
		return a.name
	}
	return ""
}

// API is one row of the table, as the compatibility ledger sees it.
type API struct {
	Key      int16
	Min, Max int16 // versions we advertise and serve
	Name     string
}

// APIs returns what we serve, by key.
func APIs() []API {
	apis := make([]API, len(table))
	for i, a := range table {
		apis[i] = API{a.key, a.min, a.max, a.name}
	}
	return apis
}
