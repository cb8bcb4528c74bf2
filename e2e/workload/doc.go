// Package workload is what clients do to a broker while its history is written
// down for package checker: list-append over partitions, in transactions of
// every kind, with everybody around who gets in their way. It runs in two
// worlds, against a process that is killed and in the simulation, and knows
// neither.
//
//	writers    Kafka transactions v1 and v2, MoonMQ sessions; some share an id,
//	           across protocols too; 70 % commit, 20 % abort, 10 % walk away
//	copiers    consume, transform, produce: one output for each input, whose
//	           offset is committed with it
//	readers    of every partition from 0, read_committed and read_uncommitted
//	poller     asks for the groups' offsets with require_stable
//	nacker     reads a topic and gives records back until they are dead
//	admin      creates and deletes a topic, deletes records, lists, describes
//
// # What is written where
//
//	list       4 partitions, every record judged
//	trimmed    1 partition whose front is deleted again and again
//	compacted  1 partition with a few keys
//	volatile   deleted and created again; its records are not judged, the
//	           transactions that wrote to it are
//	input      what copiers consume
//	work       what the nacker reads; work.dlq gets what it gives up
//
// The checker knows partitions by number: [Places] gives them.
//
// # Goroutines
//
// One per actor, started by Start and awaited by Wait. Before each request an
// actor asks its World for a turn: the simulation lets one go at a time, a world
// of processes lets all go. Everything shared is behind one mutex, so that the
// simulation can take the history as it is when the disk is cut.
package workload
