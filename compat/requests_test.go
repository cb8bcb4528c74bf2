package compat

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/model"
)

// The constructors below say one thing in every form the versions of an API
// have for it; kmsg sends what belongs to the version that is asked.

// topic is a topic as versions before and after KIP-516 name it.
type topic struct {
	name string
	id   [16]byte
}

// producer is a producer id with its epoch and, for transactions, its name.
type producer struct {
	txid  string
	id    int64
	epoch int16
}

func createTopic(name string, partitions int32, settings ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = settings[i], kmsg.StringPtr(settings[i+1])
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func deleteTopic(name string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10000
	req.TopicNames = []string{name}
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = kmsg.StringPtr(name)
	req.Topics = append(req.Topics, t)
	return req
}

func createPartitions(name string, count int32) *kmsg.CreatePartitionsRequest {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10000
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, count
	req.Topics = append(req.Topics, t)
	return req
}

func metadataOf(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// recordTime is the first record's time in every batch: early enough to be told
// from the broker's time, late enough not to be retired.
var recordTime = model.Timestamp(time.Now().Add(-2 * time.Hour).UnixMilli())

// records is a batch of one record per value, as bytes.
func records(t testing.TB, p *batch.Producer, transactional bool, values ...string) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.BuilderOptions{Producer: p, Transactional: transactional})
	for i, v := range values {
		b.Add(batch.NewRecord{Timestamp: recordTime + model.Timestamp(i), Key: []byte("k"), Value: []byte(v)})
	}
	view, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return view.Bytes()
}

func produce(to topic, partition int32, acks int16, data []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 10000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = to.name, to.id
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, data
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// fetch is a fetch without a session that does not wait.
func fetch(from topic, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = from.name, from.id
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func listOffsets(name string, partition int32, timestamp int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = name
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.MaxNumOffsets = partition, timestamp, 1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func deleteRecords(name string, partition int32, before int64) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10000
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = name
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, before
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func epochEnd(name string, partition, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = name
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch = partition, epoch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// commit stores an offset; outside a group's generation unless member is given.
func commit(group string, m member, of topic, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, m.id, m.generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = of.name, of.id
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = partition, offset, kmsg.StringPtr("note")
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func fetchOffsets(group string, of topic, partitions ...int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: of.name, Partitions: partitions}}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = group, -1
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: of.name, TopicID: of.id, Partitions: partitions}}
	req.Groups = append(req.Groups, g)
	return req
}

func deleteOffset(group, topic string, partition int32) *kmsg.OffsetDeleteRequest {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}}}
	return req
}

func findCoordinator(version int16, kind int8, keys ...string) *kmsg.FindCoordinatorRequest {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, keys[0], keys
	req.SetVersion(version)
	return req
}

// member is a member of a classic group; nobody commits from outside.
type member struct {
	id         string
	instance   *string
	generation int32
}

var nobody = member{generation: -1}

func join(group string, m member) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = group, m.id, m.instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 30000, 30000, "consumer"
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	return req
}

func sync(group string, m member) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = group, m.id, m.instance, m.generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: m.id, MemberAssignment: []byte("everything")}}
	return req
}

func heartbeat(group string, m member) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = group, m.id, m.instance, m.generation
	return req
}

func leave(group string, m member) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, m.id
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.id, InstanceID: m.instance}}
	return req
}

func describeGroup(group string) *kmsg.DescribeGroupsRequest {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	return req
}

func deleteGroup(group string) *kmsg.DeleteGroupsRequest {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{group}
	return req
}

// initProducer asks for a producer id: with a name for transactions, without for
// idempotence alone.
func initProducer(p producer) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 60000, p.id, p.epoch
	if p.txid != "" {
		req.TransactionalID = kmsg.StringPtr(p.txid)
	}
	return req
}

// newcomer is a producer that has no id yet.
func newcomer(txid string) producer { return producer{txid, -1, -1} }

func addPartition(p producer, name string, partition int32, verify bool) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.txid, p.id, p.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: name, Partitions: []int32{partition}}}
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = p.txid, p.id, p.epoch, verify
	t.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: name, Partitions: []int32{partition}}}
	req.Transactions = append(req.Transactions, t)
	return req
}

func addOffsets(p producer, group string) *kmsg.AddOffsetsToTxnRequest {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.txid, p.id, p.epoch, group
	return req
}

func commitInTxn(p producer, group string, m member, of topic, partition int32, offset int64) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.txid, p.id, p.epoch
	req.Group, req.MemberID, req.Generation = group, m.id, m.generation
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = of.name, of.id
	o := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	o.Partition, o.Offset = partition, offset
	t.Partitions = append(t.Partitions, o)
	req.Topics = append(req.Topics, t)
	return req
}

func endTxn(p producer, commit bool) *kmsg.EndTxnRequest {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.txid, p.id, p.epoch, commit
	return req
}

func writeMarker(p producer, name string, partition int32, commit bool) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = p.id, p.epoch, commit
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: name, Partitions: []int32{partition}}}
	req.Markers = append(req.Markers, m)
	return req
}

func describeProducers(name string, partition int32) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: name, Partitions: []int32{partition}}}
	return req
}

func describeTxn(txid string) *kmsg.DescribeTransactionsRequest {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{txid}
	return req
}

func describeConfigs(kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, r)
	req.IncludeSynonyms = true
	return req
}

func alterConfig(kind kmsg.ConfigResourceType, name, key, value string) *kmsg.AlterConfigsRequest {
	req := kmsg.NewPtrAlterConfigsRequest()
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	r.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: key, Value: &value}}
	req.Resources = append(req.Resources, r)
	return req
}

func changeConfig(kind kmsg.ConfigResourceType, name, key string, op kmsg.IncrementalAlterConfigOp, value *string) *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Op: op, Value: value}}
	req.Resources = append(req.Resources, r)
	return req
}

func describeLogDirs(name string, partitions ...int32) *kmsg.DescribeLogDirsRequest {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: name, Partitions: partitions}}
	return req
}

func electLeader(name string, partition int32) *kmsg.ElectLeadersRequest {
	req := kmsg.NewPtrElectLeadersRequest()
	req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: name, Partitions: []int32{partition}}}
	return req
}

func updateFeature(name string, level int16, upgradeType int8) *kmsg.UpdateFeaturesRequest {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = name, level, upgradeType, upgradeType > 1
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	return req
}

func describePartitions(name string) *kmsg.DescribeTopicPartitionsRequest {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: name}}
	return req
}

func createACL(principal, topic string) *kmsg.CreateACLsRequest {
	req := kmsg.NewPtrCreateACLsRequest()
	c := kmsg.NewCreateACLsRequestCreation()
	c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceTypeTopic, topic, kmsg.ACLResourcePatternTypeLiteral
	c.Principal, c.Host, c.Operation, c.PermissionType = principal, "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
	req.Creations = append(req.Creations, c)
	return req
}

func describeACLs(topic string) *kmsg.DescribeACLsRequest {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourceName, req.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(topic), kmsg.ACLResourcePatternTypeLiteral
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	return req
}

func deleteACLs(topic string) *kmsg.DeleteACLsRequest {
	req := kmsg.NewPtrDeleteACLsRequest()
	f := kmsg.NewDeleteACLsRequestFilter()
	f.ResourceType, f.ResourceName, f.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(topic), kmsg.ACLResourcePatternTypeLiteral
	f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	req.Filters = append(req.Filters, f)
	return req
}

func upsertSCRAM(user string) *kmsg.AlterUserSCRAMCredentialsRequest {
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = user, 1, 4096, make([]byte, 16), make([]byte, 32)
	req.Upsertions = append(req.Upsertions, u)
	return req
}

func describeSCRAM(user string) *kmsg.DescribeUserSCRAMCredentialsRequest {
	req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	req.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: user}}
	return req
}
