// Package admin is the broker's HTTP side: health for supervisors, metrics for
// Prometheus, the profiler for us.
//
//	GET /livez      the process answers
//	GET /readyz     the broker serves clients; 503 with a JSON reason until then
//	GET /healthz    the same as /readyz, for those who know only that name
//	GET /metrics    Prometheus text format
//	GET /debug/pprof/…   only for clients on this machine
//
// It reads the broker through the functions it is given and decides nothing.
// One goroutine, http.Server's accept loop, plus what net/http starts for each
// connection; Close ends them. The console adds its routes with Handle.
package admin
