// Package group decides everything about consumer groups: who is a member, who
// reads what, how far the group has read, and which records it has given up on.
// It is a pure state machine (see package machine): one Machine holds the groups
// of one __consumer_offsets partition.
//
// # Classic groups
//
//	           first member joins                 everyone joined, or time is up
//	┌───────┐ ───────────────────► ┌────────────┐ ───────────────► ┌────────────┐
//	│ Empty │                      │ Preparing  │                  │ Completing │
//	└───────┘ ◄─────────────────── │ Rebalance  │ ◄─────────────── │ Rebalance  │
//	    ▲      nobody rejoined     └────────────┘  join, leave,    └─────┬──────┘
//	    │                                ▲         timeout               │ leader
//	    │ deleted, or expired            │ join, leave, timeout          ▼ synced
//	  (gone)                             └──────────────────────────┌────────┐
//	                                                                │ Stable │
//	                                                                └────────┘
//
// A JoinGroup is answered when the group leaves PreparingRebalance, a SyncGroup
// when the leader has brought the assignment: until then their promises are part
// of the state. A group is journaled when it becomes Stable or Empty and when a
// static member of a stable group is replaced (KIP-345), as Kafka does. Beyond
// Kafka it is journaled when a generation begins, because members are told of it,
// and when a member goes; then without a leader, which says that a rebalance was
// under way. After a crash the group is in its last journaled state; members that
// joined since are unknown and join again.
//
// MoonMQ members join at once and are not journaled: their membership ends with
// their connection, and so with the process. What each of them reads is computed
// from the members and the partition counts of the moment (AssignRange).
//
// # Offsets
//
// A committed offset is a fact keyed by group, topic name and partition, as
// Kafka's tools expect; the value carries the topic's id, so that an offset of a
// deleted topic is not taken for one of its successor. Offsets committed in a
// transaction are pending until the transaction's marker reaches this partition;
// then the record with the larger log position wins.
//
// # Facts
//
// Records of __consumer_offsets, in Kafka's published schema:
//
//	offset   key   ┌ i16 1 ┬ str group ┬ str topic ┬ i32 partition ┐
//	         value ┌ i16 4 ┬ i64 offset ┬ i32 leader epoch ┬ cstr metadata ┬ i64 commit time ┬ tags: 0 = topic id ┐
//	               ┌ i16 3 ┬ i64 offset ┬ i32 leader epoch ┬ str metadata ┬ i64 commit time ┐           no topic id
//	               ┌ i16 1 ┬ i64 offset ┬ str metadata ┬ i64 commit time ┬ i64 expire time ┐   retention asked for
//	group    key   ┌ i16 2 ┬ str group ┐
//	         value ┌ i16 3 ┬ str protocol type ┬ i32 generation ┬ nstr protocol ┬ nstr leader ┬ i64 state since ┬ members ┐
//	               member: str id ┬ nstr instance ┬ str client id ┬ str host ┬ i32 rebalance ms ┬ i32 session ms ┬
//	                       bytes subscription ┬ bytes assignment
//	marker         a control batch of the transaction coordinator
//
// and of __perigee_attempts (same partition number, in the same entry):
//
//	attempts key   ┌ i16 100 ┬ str group ┬ 16 topic id ┬ i32 partition ┬ i64 offset ┐
//	         value ┌ i16 0 ┬ i32 count ┬ i64 last NACK ms ┬ bool dead ┐
//
// Values of versions 0 to 4 are read. Everything else a machine knows (parked
// calls, deadlines, members of an unfinished rebalance) is volatile.
package group
