package kafka

// shapes gives the layout of each API's request, enough to step over it:
//
//	1 2 4 8 u   that many bytes; u is a UUID of 16
//	s b         string, bytes; null or not
//	[x]         array of x
//	( … )       structure; flexible versions end it with a tag section
//	?( … )      structure that may be null
//	{0=x 1=y}   the tags its structure's section may hold
//	3-5: 3: 3+: the versions that have the field; all when absent
//
// A test encodes random requests of every version with kmsg and walks them, so
// a new version of kmsg that adds a field fails it. Keys only other brokers and
// controllers send are left out.
var shapes = map[int16]string{
	0:  "3+:s 2 4 [(0-12:s 13+:u [(4 b)])]",                                                                                               // Produce
	1:  "0-14:4 4 4 3+:4 4+:1 7+:4 7+:4 [(0-12:s 13+:u [(4 9+:4 8 12+:4 5+:8 4 {0=u 1=8})])] 7+:[(7-12:s 13+:u [4])] 11+:s {0=s 1=(4 8)}", // Fetch
	2:  "4 2+:1 [(s [(4 4+:4 8 0:4)])] 10+:4",                                                                                             // ListOffsets
	3:  "[(10+:u s)] 4+:1 8-10:1 8+:1",                                                                                                    // Metadata
	8:  "s 1+:4 1+:s 7+:s 2-4:8 [(0-9:s 10+:u [(4 8 1:8 6+:4 s)])]",                                                                       // OffsetCommit
	9:  "0-7:s 0-7:[(s [4])] 8+:[(s 9+:s 9+:4 [(8-9:s 10+:u [4])])] 7+:1",                                                                 // OffsetFetch
	10: "0-3:s 1+:1 4+:[s]",                                                                                                               // FindCoordinator
	11: "s 4 1+:4 s 5+:s s [(s b)] 8+:s",                                                                                                  // JoinGroup
	12: "s 4 s 3+:s",                                                                                                                      // Heartbeat
	13: "s 0-2:s 3+:[(s s 5+:s)]",                                                                                                         // LeaveGroup
	14: "s 4 s 3+:s 5+:s 5+:s [(s b)]",                                                                                                    // SyncGroup
	15: "[s] 3+:1",                                                                                                                        // DescribeGroups
	16: "4+:[s] 5+:[s]",                                                                                                                   // ListGroups
	17: "s",                                                                                                                               // SASLHandshake
	18: "3+:s 3+:s 5+:s 5+:4",                                                                                                             // ApiVersions
	19: "[(s 4 2 [(4 [4])] [(s s)])] 4 1+:1",                                                                                              // CreateTopics
	20: "0-5:[s] 6+:[(s u)] 4",                                                                                                            // DeleteTopics
	21: "[(s [(4 8)])] 4",                                                                                                                 // DeleteRecords
	22: "s 4 3+:8 3+:2",                                                                                                                   // InitProducerID
	23: "3+:4 [(s [(4 2+:4 4)])]",                                                                                                         // OffsetForLeaderEpoch
	24: "0-3:s 0-3:8 0-3:2 0-3:[(s [4])] 4+:[(s 8 2 1 [(s [4])])]",                                                                        // AddPartitionsToTxn
	25: "s 8 2 s",                                                                                                                         // AddOffsetsToTxn
	26: "s 8 2 1",                                                                                                                         // EndTxn
	27: "[(8 2 1 [(s [4])] 4 2+:1)]",                                                                                                      // WriteTxnMarkers
	28: "s s 8 2 3+:4 3+:s 3+:s [(0-5:s 6+:u [(4 8 2+:4 s)])]",                                                                            // TxnOffsetCommit
	29: "1 s 1+:1 s s 1 1",                                                                                                                // DescribeACLs
	30: "[(1 s 1+:1 s s 1 1)]",                                                                                                            // CreateACLs
	31: "[(1 s 1+:1 s s 1 1)]",                                                                                                            // DeleteACLs
	32: "[(1 s [s])] 1+:1 3+:1",                                                                                                           // DescribeConfigs
	33: "[(1 s [(s s)])] 1",                                                                                                               // AlterConfigs
	34: "[(s [(s [4])])]",                                                                                                                 // AlterReplicaLogDirs
	35: "[(s [4])]",                                                                                                                       // DescribeLogDirs
	36: "b",                                                                                                                               // SASLAuthenticate
	37: "[(s 4 [([4])])] 4 1",                                                                                                             // CreatePartitions
	38: "3+:s 3+:s [(s s)] 8",                                                                                                             // CreateDelegationToken
	39: "b 8",                                                                                                                             // RenewDelegationToken
	40: "b 8",                                                                                                                             // ExpireDelegationToken
	41: "[(s s)]",                                                                                                                         // DescribeDelegationToken
	42: "[s]",                                                                                                                             // DeleteGroups
	43: "1+:1 [(s [4])] 4",                                                                                                                // ElectLeaders
	44: "[(1 s [(s 1 s)])] 1",                                                                                                             // IncrementalAlterConfigs
	45: "4 1+:1 [(s [(4 [4])])]",                                                                                                          // AlterPartitionAssignments
	46: "4 [(s [4])]",                                                                                                                     // ListPartitionReassignments
	47: "s [(s [(4)])]",                                                                                                                   // OffsetDelete
	48: "[(s 1 s)] 1",                                                                                                                     // DescribeClientQuotas
	49: "[([(s s)] [(s 8 1)])] 1",                                                                                                         // AlterClientQuotas
	50: "[(s)]",                                                                                                                           // DescribeUserSCRAMCredentials
	51: "[(s 1)] [(s 1 4 b b)]",                                                                                                           // AlterUserSCRAMCredentials
	55: "[(s [(4)])]",                                                                                                                     // DescribeQuorum
	57: "4 [(s 2 0:1 1+:1)] 1+:1",                                                                                                         // UpdateFeatures
	60: "1 1+:1 2+:1",                                                                                                                     // DescribeCluster
	61: "[(s [4])]",                                                                                                                       // DescribeProducers
	64: "4",                                                                                                                               // UnregisterBroker
	65: "[s]",                                                                                                                             // DescribeTransactions
	66: "[s] [8] 1+:8 2+:s",                                                                                                               // ListTransactions
	68: "s s 4 s s 4 [s] 1+:s s [(u [4])]",                                                                                                // ConsumerGroupHeartbeat
	69: "[s] 1",                                                                                                                           // ConsumerGroupDescribe
	71: "u",                                                                                                                               // GetTelemetrySubscriptions
	72: "u 4 1 1 b",                                                                                                                       // PushTelemetry
	74: "1+:[1]",                                                                                                                          // ListConfigResources
	75: "[(s)] 4 ?(s 4)",                                                                                                                  // DescribeTopicPartitions
	76: "s s 4 s [s]",                                                                                                                     // ShareGroupHeartbeat
	77: "[s] 1",                                                                                                                           // ShareGroupDescribe
	78: "s s 4 4 4 4 1+:4 1+:4 2+:1 2+:1 [(u [(4 0:4 [(8 8 [1])])])] [(u [4])]",                                                           // ShareFetch
	79: "s s 4 2+:1 [(u [(4 [(8 8 [1])])])]",                                                                                              // ShareAcknowledge
	90: "[(s [(s [4])])]",                                                                                                                 // DescribeShareGroupOffsets
	91: "s [(s [(4 8)])]",                                                                                                                 // AlterShareGroupOffsets
	92: "s [(s)]",                                                                                                                         // DeleteShareGroupOffsets
}
