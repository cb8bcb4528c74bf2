// Package compat says what Perigee claims to be compatible with, and proves it.
//
//	ledger.go        every Kafka API, its versions, and the test that proves each
//	suites/          scripts that run other projects' own test suites against a broker
//	corpus/, lua/    recordings of Apache Kafka and of MoonMQ, and its client
//
// The tests of this package run the whole broker in this process, on a disk in
// memory, and speak to it over TCP:
//
//	versions_test.go         every advertised version is answered in that version
//	batch_bytes_test.go      our batches and markers are, byte for byte, what an
//	                         independent encoder makes
//	internal_topics_test.go  what stands in our internal topics is Kafka's schema
//	differential_test.go     the same requests to us, to Kafka and to kfake
//	page_test.go             docs/compatibility.md says what the ledger says
//
// Kafka's side of the differential test is a recording; PERIGEE_ORACLE asks a
// running broker instead:
//
//	PERIGEE_ORACLE=127.0.0.1:9092 go test ./compat -run DifferentialAgainstKafka
//
// Nothing imports this package.
package compat
