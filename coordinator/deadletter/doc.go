// Package deadletter says when a record that no consumer can process is given
// up, where it goes and what is written there. It is policy and form only: the
// counting of attempts is state of the group's machine, the move itself is one
// journal entry made by the façade.
//
//	NACK n of (group, topic, partition, offset)
//	   n < MaxDeliveries   the group goes back to the record, at the latest
//	   n ≥ MaxDeliveries   ┌ topic + suffix, same partition ┐
//	                       │ key, value, headers unchanged  │  one entry with the group's
//	                       │ + __dlq.errors.* headers       │  offset and the cleared count
//	                       └────────────────────────────────┘
//
// The six headers are those of Kafka's share groups (KIP-1191); a seventh of our
// own keeps the record's timestamp, because the dead record carries the time of
// the move: retention counts from there. A record that dies twice has the
// headers twice, the newest last.
//
// Provenance can also be read from the headers that Spring for Apache Kafka,
// Spring Cloud Stream and Kafka Connect write, so that their dead-letter topics
// can be redriven too.
//
// No state, no locks, no goroutines; every function may be called from
// anywhere.
package deadletter
