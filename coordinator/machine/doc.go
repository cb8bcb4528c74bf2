// Package machine runs coordinators: it turns a pure state machine and a log
// of facts into something that answers, survives a crash and keeps time.
//
// A Machine decides, a Shard does:
//
//	            caller's goroutine                                   whoever waits
//	┌──────────────────────────────────────────────────────┐   ┌────────────────────┐
//	│ lock ─► Decide ─► sequence ─► Apply ─► answer ─► unlock├──►│ Future.Wait: durable│
//	└──────────────────────────────────────────────────────┘   └────────────────────┘
//	          pure      facts join    the only     promises get
//	                    the log       mutator      value + pending
//
// A shard is a lock, not a goroutine. A command runs on its caller's goroutine
// and never waits for a disk: facts are sequenced (their order is fixed), the
// state moves, the lock is released. The reply leaves when the entry that holds
// the facts is durable. Two consequences:
//
//   - A later command sees earlier facts at once, durable or not. A reply that
//     brings no facts of its own (a read, a refusal) therefore waits for the
//     shard's last pending entry: nobody outside sees what a crash could undo.
//   - If the log refuses the facts, nothing is applied and the command is
//     refused with the log's error. Commands parked earlier stay parked.
//
// Facts are records of a compacted partition: key, value, or tombstone. A fact
// whose codec says it is volatile (a parked join, a heartbeat's deadline) is
// applied like the others and never journaled; a start forgets it.
//
// Facts of one command form one batch. What must be true together with them in
// other partitions joins the same entry through a Sequence, supplied by the
// façade; several shards of one family are held together with HoldAll, in
// ascending order of their index.
//
// # Time
//
// A machine has no clock. Due says when it wants to be asked without a command;
// one Timer serves every shard with one goroutine (owner: the coordinator
// façade, end: Timer.Close).
//
// # Goroutines
//
// Everything here may be called from any goroutine, but a Machine's methods are
// called only under its shard's lock, and a Sequence runs under it too: it must
// not call back into the shard.
package machine
