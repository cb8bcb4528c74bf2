// Package coordinator is the native broker: everything the front ends can ask
// for, in domain types. It decides with pure machines and stores with the
// engine; it never sees a wire message.
//
//	             front ends
//	                 │  one façade, one file per family
//	 topics.go   groups.go   transactions.go   produce.go   access.go
//	     │           │             │               │
//	┌────▼────┐ ┌────▼─────┐ ┌─────▼──────┐        │        who leads what: placement.go
//	│ catalog │ │ group×50 │ │   txn×50   │        │
//	└────┬────┘ └────┬─────┘ └─────┬──────┘        │
//	     └───────────┴──── facts ──┴───── batches ─┴──►  storage.Engine.Append: one entry
//
// # Where state lives
//
//	__perigee_catalog     topics, settings, features, producer ids, users, ACLs, quotas   (1 partition)
//	__consumer_offsets    groups and committed offsets, in Kafka's schema                 (50)
//	__perigee_attempts    how often records failed, beside the group's partition          (50)
//	__transaction_state   transactional ids, in Kafka's schema                            (50)
//	__producer_state      what MoonMQ's named producers sent last                         (50)
//
// All of it is replayed by [Open]; nothing is served before that ends.
//
// # Rules
//
// Methods return when an order is fixed and never wait for the disk; a
// [machine.Future] does, and so must whoever tells a client. Lock order: one
// txn shard, group shards in ascending partition, the catalog, partitions.
//
// Goroutines: one serves the machines' deadlines (machine.Timer), one the
// transactions' scans; both end with Close.
package coordinator
