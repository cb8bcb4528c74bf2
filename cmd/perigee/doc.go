// Command perigee is the broker and its command line in one binary.
//
//	perigee serve                     run a broker
//	perigee config check|print|docs   its settings
//	perigee doctor                    what it needs, and the one that runs
//	perigee topic|group|txn|cluster   operate one, over the wire as any client would
//	perigee produce|consume           stdin → topic, topic → stdout
//	perigee bench                     measure one
//	perigee inspect|check             the files of a stopped one
//	perigee generate                  files for Grafana, Prometheus, systemd
//	perigee version|completion
//
// main.go parses arguments, calls a verb and turns its error into an exit code:
// 0 done, 1 failed (one item of many counts), 2 the command line was wrong.
// A file holds a family of verbs. What they share: client.go connects, output.go
// prints. Results go to stdout, as aligned columns or, with --format json, as JSON
// whose keys do not change; everything meant for a person who looks on goes to
// stderr.
//
// The client verbs know no more about the broker than its wire protocol says, so
// they work against any Kafka. inspect and check read the data directory, through
// the readers the broker itself uses.
package main
