// Package config is every setting of the broker, once.
//
// One table row ([Key]) says a setting's name, type, default, valid values,
// unit, where it may be changed and what Perigee does with it. Everything else
// is derived from the rows:
//
//	            ┌────────── keys: topic · broker · group · client metrics ─────────┐
//	            │                                                                  │
//	files ──┐   ▼                                                                  ▼
//	env   ──┼─ Load ──► Static ─┐                                    Markdown (docs/configuration.md)
//	flags ──┘                   ├─► Values ─► Resolve ─► value, source, synonyms   (DescribeConfigs)
//	catalog: dynamic values ────┘      └────► Broker, Topic                        (typed, parsed once)
//
// Layers, weakest first: default < --kafka-properties < YAML file < environment
// < flags. They are all "static" to Kafka's protocol. Above them stand the
// values that clients change at run time and the catalog keeps: cluster-wide
// broker values, this broker's values, a topic's own values.
//
// A value is kept as Kafka's canonical text ("604800000", "true", "a,b"), since
// that is what the protocol shows. Human forms ("7d", "1GiB") are accepted only
// from files, the environment and flags, and are rewritten at once.
//
// The package reads files and nothing else: no clock, no lock, no goroutine.
// All values are immutable after construction and may be shared.
package config
