package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options are what the HTTP side stands on.
type Options struct {
	Address string // host:port to bind
	// Ready returns nil when clients are served, else why not.
	Ready func() error
	// Collectors are asked at every scrape, beside Go's and the process's own.
	Collectors []prometheus.Collector
}

// Server is the HTTP listener.
type Server struct {
	options Options
	mux     *http.ServeMux
	http    *http.Server
	socket  net.Listener
	served  chan struct{}
}

// Limits of a request: headers are small, and nothing here takes a body of note.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	headerBytes   = 64 << 10
)

// Listen binds the address; requests wait until Serve.
func Listen(o Options) (*Server, error) {
	socket, err := net.Listen("tcp", o.Address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("listener HTTP: %s is in use by another process", o.Address)
		}
		return nil, fmt.Errorf("listener HTTP: bind %s: %w", o.Address, err)
	}
	s := &Server{options: o, mux: http.NewServeMux(), socket: socket, served: make(chan struct{})}
	s.http = &http.Server{Handler: s.mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes}
	s.routes()
	return s, nil
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.socket.Addr() }

// Handle adds a route, in net/http's pattern language. Call it before Serve.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Serve starts to answer.
func (s *Server) Serve() {
	go func() {
		defer close(s.served)
		s.http.Serve(s.socket) // ends with ErrServerClosed when Close is called
	}()
}

// Close stops accepting, lets requests finish until ctx ends, and waits. Call it
// once, whether or not Serve was called.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	s.socket.Close() // in case Serve was not called
	return err
}

func (s *Server) routes() {
	s.mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.HandleFunc("GET /healthz", s.ready)
	s.mux.Handle("GET /metrics", s.metrics())
	for pattern, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		s.mux.Handle(pattern, onLoopback(handler))
	}
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := struct {
		Status string `json:"status"`
		Reason string `json:"reason,omitempty"`
	}{Status: "ready"}
	if err := s.options.Ready(); err != nil {
		answer.Status, answer.Reason = "unavailable", err.Error()
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
