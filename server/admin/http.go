package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/perigeemq/perigee/server/transport"
)

// Options are what the HTTP side stands on.
type Options struct {
	Address string // host:port to bind
	// Health says whether clients are served.
	Health func() Health
	// Collectors are asked at every scrape, beside Go's and the process's own.
	Collectors []prometheus.Collector
}

// Health is what /readyz answers.
type Health struct {
	Ready    bool      `json:"-"`
	Status   string    `json:"status"`           // one word
	Reason   string    `json:"reason,omitempty"` // why clients are not served
	Progress *Progress `json:"progress,omitempty"`
}

// Progress is how far the recovery of the journal is. Numbers of 64 bits are
// strings, which no JSON reader rounds.
type Progress struct {
	JournalBytes int64 `json:"journal_bytes,string"`
	JournalTotal int64 `json:"journal_total,string"`
	Entries      int64 `json:"entries,string"`
}

// Server is the HTTP listener.
type Server struct {
	options Options
	mux     *http.ServeMux
	http    *http.Server
	sockets []net.Listener
	served  sync.WaitGroup
}

// Limits of a request: headers are small, and nothing here takes a body of note.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	headerBytes   = 64 << 10
)

// Listen binds the address; requests wait until Serve.
func Listen(o Options) (*Server, error) {
	sockets, err := transport.Bind("HTTP", o.Address)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, mux: http.NewServeMux(), sockets: sockets}
	s.http = &http.Server{Handler: s.mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes}
	s.routes()
	return s, nil
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.sockets[0].Addr() }

// Handle adds a route, in net/http's pattern language. Call it before Serve.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Serve starts to answer.
func (s *Server) Serve() {
	for _, socket := range s.sockets {
		s.served.Go(func() { s.http.Serve(socket) }) // ends with ErrServerClosed when Close is called
	}
}

// Close stops accepting, lets requests finish until ctx ends, and waits. Call it
// once, whether or not Serve was called.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	for _, socket := range s.sockets {
		socket.Close() // in case Serve was not called
	}
	s.served.Wait()
	return err
}

func (s *Server) routes() {
	s.mux.HandleFunc("GET /{$}", index)
	s.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.HandleFunc("GET /healthz", s.ready)
	s.mux.Handle("GET /metrics", s.metrics())
	for pattern, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		s.mux.Handle(pattern, onLoopback(byItsName(handler)))
	}
}

// index tells somebody with a browser what there is.
func index(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `perigee

/readyz         whether clients are served, and why not
/livez          whether the process answers
/metrics        for Prometheus
/stats          MoonMQ's figures
/v1/dlq/TOPIC   the records of a dead-letter topic
/debug/pprof/   the profiler, for this machine only
`)
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := s.options.Health()
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(answer)
}

// metrics builds the registry at the first scrape: most brokers on a laptop are
// never scraped.
func (s *Server) metrics() http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		registry := prometheus.NewRegistry()
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		registry.MustRegister(s.options.Collectors...)
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler().ServeHTTP(w, r) })
}

// onLoopback serves only clients on this machine. The profiler shows memory and
// can be made to burn CPU.
func onLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !at.Addr().Unmap().IsLoopback() {
			http.Error(w, "only from this machine", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// byItsName refuses a request that came to this machine's own address under a foreign
// name. A web page does that: its name is made to resolve to 127.0.0.1, and the browser
// takes us for the page's own server (DNS rebinding), whatever it checks of origins.
func byItsName(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && to.IP.IsLoopback() && !ownName(r.Host) {
			refuse(w, http.StatusMisdirectedRequest, fmt.Errorf("%q is no name of this machine's own address", r.Host))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ownName says whether a Host header is an address or localhost: no name that somebody
// else resolves.
func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}
