package compat

// A Claim is one API we serve: which versions, and by which tests one may believe
// it. That each version of each API is answered at all, without an error and to
// the byte, is TestEveryVersionIsServed; the tests here say that the answer is
// right.
type Claim struct {
	Key      int16
	Name     string
	Min, Max int16
	Proof    []string // package below the module, dot, test
}

// Ledger has a claim for each row of the dispatch table in server/kafka, by key.
var Ledger = []Claim{
	{0, "Produce", 0, 13, []string{"server/kafka.TestProduceAnswersWithOffsetsInEveryVersion", "server/kafka.TestProduceRefusals", "server/kafka.TestIdempotentProduce"}},
	{1, "Fetch", 4, 18, []string{"server/kafka.TestFetchReturnsWhatWasProducedInEveryVersion", "server/kafka.TestFetchErrors", "server/kafka.TestFetchSession"}},
	{2, "ListOffsets", 0, 11, []string{"server/kafka.TestListOffsets", "server/kafka.TestListOffsetsRefusals"}},
	{3, "Metadata", 0, 13, []string{"server/kafka.TestMetadataEveryVersion", "server/kafka.TestMetadataOfAllTopics", "server/kafka.TestMetadataByID"}},
	{8, "OffsetCommit", 0, 10, []string{"server/kafka.TestOffsetsAreCommittedAndFetchedInEveryVersion"}},
	{9, "OffsetFetch", 0, 10, []string{"server/kafka.TestOffsetsAreCommittedAndFetchedInEveryVersion", "server/kafka.TestGroupsThatDoNotExist"}},
	{10, "FindCoordinator", 0, 6, []string{"server/kafka.TestFindCoordinator"}},
	{11, "JoinGroup", 0, 9, []string{"server/kafka.TestTwoMembersRebalanceOverTheWire", "server/kafka.TestStaticMembersOverTheWire"}},
	{12, "Heartbeat", 0, 4, []string{"server/kafka.TestTwoMembersRebalanceOverTheWire", "server/kafka.TestGroupsThatDoNotExist"}},
	{13, "LeaveGroup", 0, 5, []string{"server/kafka.TestStaticMembersOverTheWire", "server/kafka.TestGroupsThatDoNotExist"}},
	{14, "SyncGroup", 0, 5, []string{"server/kafka.TestTwoMembersRebalanceOverTheWire", "server/kafka.TestGroupsThatDoNotExist"}},
	{15, "DescribeGroups", 0, 6, []string{"server/kafka.TestGroupsAreDescribedListedAndDeleted"}},
	{16, "ListGroups", 0, 5, []string{"server/kafka.TestGroupsAreDescribedListedAndDeleted"}},
	{18, "ApiVersions", 0, 5, []string{"server/kafka.TestApiVersionsListsTheTable", "server/kafka.TestUnknownApiVersionsVersionGetsAV0Answer"}},
	{19, "CreateTopics", 0, 7, []string{"server/kafka.TestCreateTopicsEveryVersion", "server/kafka.TestCreateTopicsAnswersEachTopic"}},
	{20, "DeleteTopics", 0, 6, []string{"server/kafka.TestDeleteTopicsEveryVersion", "server/kafka.TestDeleteTopicsByID"}},
	{21, "DeleteRecords", 0, 2, []string{"server/kafka.TestDeleteRecords"}},
	{22, "InitProducerId", 0, 5, []string{"e2e.TestTransactionTablesOverTheWire"}},
	{23, "OffsetForLeaderEpoch", 0, 4, []string{"server/kafka.TestOffsetForLeaderEpoch"}},
	{24, "AddPartitionsToTxn", 0, 5, []string{"e2e.TestTransactionTablesOverTheWire", "e2e.TestAddPartitionsAllOrNothing"}},
	{25, "AddOffsetsToTxn", 0, 4, []string{"e2e.TestAddOffsetsInEveryVersion"}},
	{26, "EndTxn", 0, 5, []string{"e2e.TestTransactionTablesOverTheWire"}},
	{27, "WriteTxnMarkers", 1, 2, []string{"e2e.TestWriteTxnMarkers"}},
	{28, "TxnOffsetCommit", 0, 6, []string{"e2e.TestTxnOffsetCommitInEveryVersion", "e2e.TestTxnOffsetCommitGroupChecks"}},
	{29, "DescribeAcls", 1, 3, nil},
	{30, "CreateAcls", 1, 3, nil},
	{31, "DeleteAcls", 1, 3, nil},
	{32, "DescribeConfigs", 0, 4, []string{"server/kafka.TestDescribeConfigsEveryVersion", "server/kafka.TestDescribeTopicConfigs", "server/kafka.TestDescribeBrokerConfigs"}},
	{33, "AlterConfigs", 0, 2, []string{"server/kafka.TestAlterConfigsEveryVersion"}},
	{35, "DescribeLogDirs", 0, 5, []string{"server/kafka.TestDescribeLogDirsEveryVersion"}},
	{37, "CreatePartitions", 0, 3, []string{"server/kafka.TestCreatePartitionsEveryVersion"}},
	{42, "DeleteGroups", 0, 3, []string{"server/kafka.TestGroupsAreDescribedListedAndDeleted"}},
	{43, "ElectLeaders", 0, 2, []string{"server/kafka.TestElectLeadersEveryVersion"}},
	{44, "IncrementalAlterConfigs", 0, 1, []string{"server/kafka.TestIncrementalAlterConfigs"}},
	{46, "ListPartitionReassignments", 0, 0, []string{"compat.TestDifferentialAgainstKafka"}},
	{47, "OffsetDelete", 0, 0, []string{"server/kafka.TestGroupsThatDoNotExist", "compat.TestDifferentialAgainstKafka"}},
	{50, "DescribeUserScramCredentials", 0, 0, nil},
	{51, "AlterUserScramCredentials", 0, 0, nil},
	{57, "UpdateFeatures", 0, 2, []string{"server/kafka.TestUpdateFeatures"}},
	{60, "DescribeCluster", 0, 2, []string{"server/kafka.TestDescribeClusterEveryVersion"}},
	{61, "DescribeProducers", 0, 0, []string{"e2e.TestDescribeAndList"}},
	{65, "DescribeTransactions", 0, 0, []string{"e2e.TestDescribeAndList"}},
	{66, "ListTransactions", 0, 2, []string{"e2e.TestDescribeAndList"}},
	{74, "ListConfigResources", 0, 1, []string{"server/kafka.TestListConfigResources"}},
	{75, "DescribeTopicPartitions", 0, 0, []string{"server/kafka.TestDescribeTopicPartitions"}},
}

// A Client is one that is run against us, with what it does shown by tests.
type Client struct {
	Name, Version string
	Proof         []string
	// Sends has the version of each API the client was seen to use, by API name.
	// Seen in the log that the setting perigee.log.requests=* writes, while the
	// tests above and the suites on the compatibility page ran.
	Sends map[string]int16
}

// Clients are the clients we claim to serve.
var Clients = []Client{
	{"Java", "4.4.0", []string{"e2e.TestJavaTools", "e2e.TestVerifiableClients", "e2e.TestTransactionalMessageCopier", "e2e.TestStreamsCountsExactlyOnceUnderKills"}, map[string]int16{
		"Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 9, "OffsetFetch": 9, "FindCoordinator": 6, "JoinGroup": 9, "LeaveGroup": 5, "SyncGroup": 5,
		"DescribeGroups": 6, "ApiVersions": 5, "CreateTopics": 7, "DeleteTopics": 6, "InitProducerId": 5, "EndTxn": 5, "TxnOffsetCommit": 6, "DescribeConfigs": 4, "DescribeLogDirs": 5,
		"IncrementalAlterConfigs": 1, "ListPartitionReassignments": 0, "DescribeCluster": 2, "ListTransactions": 2, "DescribeTopicPartitions": 0,
	}},
	{"franz-go", "1.22.3", []string{"e2e.TestEveryClientReadsWhatEveryClientWrote", "e2e.TestThreeMembersShareAndHandOver", "e2e.TestStaticMemberRestartsWithoutARebalance", "e2e.TestCooperativeMembersKeepWhatTheyHold"}, map[string]int16{
		"Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 10, "OffsetFetch": 10, "FindCoordinator": 6, "JoinGroup": 9, "Heartbeat": 4, "LeaveGroup": 5, "SyncGroup": 5,
		"DescribeGroups": 6, "ApiVersions": 5, "CreateTopics": 7, "DeleteTopics": 6, "InitProducerId": 5, "OffsetForLeaderEpoch": 4, "EndTxn": 5, "TxnOffsetCommit": 6, "DeleteGroups": 3,
	}},
	{"librdkafka, by confluent-kafka-go", "2.11.1", []string{"e2e.TestEveryClientReadsWhatEveryClientWrote", "e2e.TestThreeMembersShareAndHandOver", "e2e.TestStaticMemberRestartsWithoutARebalance", "e2e.TestCooperativeMembersKeepWhatTheyHold"}, map[string]int16{
		"Produce": 10, "Fetch": 16, "ListOffsets": 7, "Metadata": 13, "OffsetCommit": 9, "OffsetFetch": 9, "FindCoordinator": 2, "JoinGroup": 5, "Heartbeat": 3, "LeaveGroup": 1, "SyncGroup": 3,
		"DescribeGroups": 4, "ListGroups": 5, "ApiVersions": 3, "CreateTopics": 4, "DeleteTopics": 1, "DeleteRecords": 1, "InitProducerId": 4, "AddPartitionsToTxn": 0, "AddOffsetsToTxn": 0, "EndTxn": 1,
		"TxnOffsetCommit": 3, "DescribeAcls": 1, "CreateAcls": 1, "DeleteAcls": 1, "DescribeConfigs": 1, "AlterConfigs": 2, "CreatePartitions": 0, "DeleteGroups": 1, "IncrementalAlterConfigs": 1,
		"DescribeUserScramCredentials": 0, "AlterUserScramCredentials": 0,
	}},
	{"Sarama", "1.61.1", []string{"e2e.TestEveryClientReadsWhatEveryClientWrote", "e2e.TestThreeMembersShareAndHandOver", "e2e.TestStaticMemberRestartsWithoutARebalance"}, map[string]int16{
		"Produce": 9, "Fetch": 12, "ListOffsets": 6, "Metadata": 11, "OffsetCommit": 8, "OffsetFetch": 7, "FindCoordinator": 3, "JoinGroup": 7, "Heartbeat": 4, "LeaveGroup": 4, "SyncGroup": 5,
		"ApiVersions": 3, "CreateTopics": 7, "InitProducerId": 4,
	}},
	{"segmentio/kafka-go", "0.4.51", []string{"e2e.TestEveryClientReadsWhatEveryClientWrote", "e2e.TestThreeMembersShareAndHandOver"}, map[string]int16{
		"Produce": 8, "Fetch": 10, "ListOffsets": 1, "Metadata": 8, "OffsetCommit": 2, "OffsetFetch": 1, "FindCoordinator": 0, "JoinGroup": 2, "Heartbeat": 0, "LeaveGroup": 0, "SyncGroup": 0,
		"ApiVersions": 0, "CreateTopics": 5,
	}},
	{"kafkajs", "2.2.4", []string{"e2e.TestKafkajs", "e2e.TestKafkajsTransactions"}, map[string]int16{
		"Produce": 7, "Fetch": 11, "ListOffsets": 3, "Metadata": 6, "OffsetCommit": 5, "OffsetFetch": 4, "FindCoordinator": 2, "JoinGroup": 5, "LeaveGroup": 3, "SyncGroup": 3,
		"ApiVersions": 2, "CreateTopics": 3, "InitProducerId": 1, "AddPartitionsToTxn": 1, "EndTxn": 1,
	}},
	{"kcat", "1.7", []string{"e2e.TestKcat"}, map[string]int16{
		"Produce": 7, "Fetch": 11, "ListOffsets": 2, "Metadata": 4, "OffsetCommit": 7, "OffsetFetch": 7, "FindCoordinator": 2, "JoinGroup": 5, "Heartbeat": 3, "LeaveGroup": 1, "SyncGroup": 3, "ApiVersions": 3,
	}},
}
