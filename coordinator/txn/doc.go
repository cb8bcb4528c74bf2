// Package txn decides what happens to transactional ids: who owns one, what
// its transaction holds, how it ends. It is a pure machine. Decide reads and
// answers, Apply changes, nothing here knows a clock, a lock or a log.
//
// One Machine holds the ids of one partition of __transaction_state. Its only
// fact is the complete Record of one id, so replay is "the last record per id
// wins" and a tombstone forgets the id.
//
//	           Init                 Enrol                 End(commit)
//	(absent) ───────► Empty ───────────────► Ongoing ──────────────────► CompleteCommit
//	                   ▲  ▲                  │  │  ▲                          │  │
//	                   │  │                  │  │  └────────── Enrol ─────────┘  │
//	                   │  └────── Init ──────┘  │ End(abort), timeout            │ Init
//	                   │     (aborts first)     ▼                                │
//	                   ├────────────────── CompleteAbort (Enrol: → Ongoing)      │
//	                   └─────────────────────────────────────────────────────────┘
//
// Kafka writes PrepareCommit or PrepareAbort first, sends markers, and writes
// Complete when every partition has its marker. Here all participants are
// partitions of one engine and one journal entry holds the markers and the new
// record, so both steps are one decision: Decision.Record is the completed
// record and Decision.Markers says which control batches must stand in the
// same entry. The Prepare states remain in the tables, because Kafka's schema
// has them and because a participant led elsewhere will need them: a record
// read in such a state answers as Kafka does until Recover completes it.
//
// # Epochs
//
// A client of transaction version 0 or 1 keeps its epoch from Init to Init. A
// version 2 client (KIP-890) gets epoch+1 with every end, so a late frame of an
// ended transaction is always of an old epoch. A coordinator that ends a
// transaction on its own (a timeout, another Init) always bumps.
//
//	0 … 32766   given to clients
//	32767       carried by markers of a transaction that ended at 32766; its id
//	            then continues as (a new producer id, epoch 0)
//
// # Who may call
//
// The façade, holding the lock of the shard. Records handed out are never
// changed afterwards; Apply replaces them.
//
// Left to others: authorization, the numbers of the wire, allocation of
// producer ids (a Decision says that it needs one), waiting for durability.
//
// Source: KIP-98, KIP-360, KIP-447, KIP-664, KIP-890.
package txn
