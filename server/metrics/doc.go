// Package metrics holds the broker's counters and the names under which
// Prometheus sees them.
//
// Counting and exporting are apart. What happens often is counted in plain
// atomics (Requests, Histogram): no label lookup, no lock, no registry on the
// hot path, and nothing of the metrics library in memory until somebody asks.
// What can be read from state (partitions, disk, connections) is not counted at
// all: a collector takes a snapshot when /metrics is read.
//
//	hot path ─► atomics ──┐
//	engine, sockets ──────┴─► Collector (at a scrape) ─► /metrics
//
// names.go is the only place with names of our own series, compat.go with those
// of other programs. The package imports nothing of
// ours: the server hands it functions that return snapshots. It starts no
// goroutine.
package metrics
