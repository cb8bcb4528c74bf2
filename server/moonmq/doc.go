// Package moonmq is the MoonMQ front end: it translates that protocol's requests
// into calls of the coordinator and the engine, and their results into its
// replies. It decides nothing and stores nothing.
//
//	         HELLO            AUTH or SASL
//	┌─────┐        ┌─────────┐            ┌───────────────┐
//	│ new │ ─────► │ greeted │ ─────────► │ authenticated │ ── any error with the
//	└─────┘        └─────────┘            └───────────────┘    zero id ends it
//
// A session takes one request at a time: handlers run on the connection's read
// goroutine, which owns the session's state, and may wait there for what the next
// request depends on (a login, the end of a transaction). What only the answer
// depends on, such as a produced record's sync, is waited for on the write
// goroutine, so that pipelined produces share syncs.
//
// What this protocol has and Kafka's does not is bridged here:
//
//	partitions   numbered from 1 on the wire
//	sequences    one counter per (producer, topic); the remembered acks of named
//	             producers are facts, see coordinator.Memos
//	consumers    one per connection, with positions of its own; delivery commits
//	groups       joined at once, no generations; a membership belongs to a connection
//	dead records shown as an envelope around the value
//	oversize     what the client could not read is dead-lettered instead of sent
//
// Goroutines: one for the whole front end that watches deadlines and sends
// heartbeats (owner FrontEnd, ends with Close), and one for each connection in
// push mode (owner session, ends with it). Locks: FrontEnd.mu guards the set of
// sessions; a subscription's state moves between its goroutine and the session
// under consumer.mu.
package moonmq
