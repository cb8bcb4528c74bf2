// Package admin is the broker's HTTP side: health for supervisors, metrics for
// Prometheus, the profiler for us.
//
//	GET /           what there is
//	GET /livez      the process answers
//	GET /readyz     the broker serves clients; until then 503 with a reason and, during
//	                recovery, how far it is, as JSON
//	GET /healthz    the same as /readyz, for those who know only that name
//	GET /metrics    Prometheus text format
//	GET /debug/pprof/…   only for clients on this machine
//
// It reads the broker through the functions it is given and decides nothing.
// Goroutines: http.Server's accept loop for each socket, plus what net/http starts
// for each connection; Close ends them. The console adds its routes with Handle.
package admin
