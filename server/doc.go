// Package server is the broker as one value: New, Start, Close. The command
// `perigee serve` is a thin wrapper around Run; a Go program that wants a broker
// inside itself calls Start with an Embedded, and gives its clients Bootstrap
// and Dial. Without DataDir and Listen nothing leaves the process: such a broker
// runs in a synctest bubble.
//
// Start, and in reverse Close:
//
//	listen    take every port, so that a port in use is the first thing said
//	HTTP      answers /livez, and /readyz with 503, the reason and how far it is
//	engine    lock the data directory, recover
//	coordinator  replay the catalog, groups, transactions
//	front ends   Kafka and MoonMQ begin to accept; /readyz says ready
//
// Clients that connect during recovery wait in the system's queue of the bound
// socket and are served as soon as there is somebody to do it.
//
// Stopping: accept and read no more, finish the answers that were promised, close
// the coordinator, then the engine, which syncs, takes a checkpoint and leaves
// the clean-shutdown mark. A failed sync (a poisoned journal) ends the broker at
// once; Failed reports it and the process exits non-zero.
//
// Goroutines of this package itself: one in Start, until it returns, that says
// every few seconds how far it is; one in Run, as long as that, for signals.
// Everything else
// belongs to what is assembled here: see the pages of transport, admin,
// coordinator and storage.
//
// This package and those under cmd are the only ones that log: broker events
// become log lines in logging.go, metrics in snapshot.go.
package server
