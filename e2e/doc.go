// Package e2e drives the built perigee binary from outside, with the clients
// people really use: franz-go, librdkafka, Sarama, segmentio/kafka-go, kcat,
// kafkajs and, when a JVM is there, Kafka's own.
//
// A test starts a broker process of its own on free loopback ports:
//
//	b := e2e.Start(t)            // builds the binary once per test run
//	... use b.Kafka ...
//	b.Kill(); b.Restart()        // SIGKILL, then the same directory and ports
//
// PERIGEE_E2E_EXTERNAL=host:port runs the client tests against a broker that
// already runs, Apache Kafka for example: the tests themselves are then on
// trial. Tests that need to kill the broker are skipped in that mode.
//
// Foreign clients that are not Go are looked for on PATH; a missing one is a
// counted skip that names the tool.
package e2e
