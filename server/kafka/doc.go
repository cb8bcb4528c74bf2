// Package kafka is the Kafka front end: it translates kmsg requests into calls
// of the coordinator and the engine, and their results into kmsg responses. It
// decides nothing and stores nothing.
//
//	frame ─► header ─► gate (version, rights) ─► handler ─► reply ─► response ─► frame
//	         protocol/kafka    dispatch.go      one file for each    protocol/kafka
//	                                            family of APIs
//
// Handlers run on the connection's read goroutine, in arrival order, and must
// not block; the reply they return runs on its write goroutine and may. The
// package starts no goroutine of its own.
//
// What lives here because it is a matter of the wire alone: fetch sessions
// (KIP-227), the mapping of domain errors to codes, advertised addresses.
package kafka
