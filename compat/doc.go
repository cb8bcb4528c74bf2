// Package compat says what Perigee claims to be compatible with, and proves it.
//
//	ledger.go        every Kafka API, its versions, and the test that proves each
//	suites/          scripts that run other projects' own test suites against a broker
//	corpus/, lua/    recordings of MoonMQ, and its client
//
// The tests of this package run the whole broker in this process, on a disk in
// memory, and speak to it over TCP:
//
//	versions_test.go         every advertised version is answered in that version
//	batch_bytes_test.go      our batches and markers are, byte for byte, what an
//	                         independent encoder makes
//	internal_topics_test.go  what stands in our internal topics is Kafka's schema
//	differential_test.go     the same requests to us and to another broker
//	page_test.go             docs/compatibility.md says what the ledger says
//
// The other broker is kfake, an independent implementation in Go, or a real one
// when PERIGEE_ORACLE names it:
//
//	PERIGEE_ORACLE=127.0.0.1:9092 go test ./compat -run Differential
//
// Nothing imports this package.
package compat
