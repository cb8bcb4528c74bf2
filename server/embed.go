package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/rs/zerolog"

	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/transport"
	"github.com/perigeemq/perigee/storage/vfs"
)

// Embedded describes a broker inside another program or a test. The zero value
// is one that keeps everything in memory and that only this program can reach.
type Embedded struct {
	// DataDir is where data lives. "" keeps it in memory, in FS if that is set.
	DataDir string
	// FS, when DataDir is "", holds the data. A test that wants a second start on
	// the same data gives the same one; nil is a new one in memory.
	FS vfs.FS
	// Listen is a HOST:PORT for Kafka clients of other processes; port 0 is any.
	// "": there is no socket, and Dial is the only way in.
	Listen string
	// Settings by name, as `perigee config docs` lists them and --set takes them.
	// MoonMQ and HTTP are off unless moonmq.listen and perigee.http.listen are
	// given.
	Settings map[string]string
	// Log gets the broker's log lines, from several goroutines: its writer must bear
	// that. The zero Logger drops them.
	Log zerolog.Logger
}

// inProcess is the address of a broker without sockets. Nobody resolves it.
const inProcess = "perigee.memory:9092"

// Start starts an embedded broker; when it returns nil, clients are served.
// Close stops it. The error names every setting that is wrong.
func Start(ctx context.Context, e Embedded) (*Broker, error) {
	loaded, err := e.load()
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	o := Options{Config: loaded, Log: e.Log}
	if e.DataDir == "" {
		if o.FS = e.FS; o.FS == nil {
			o.FS = vfs.NewMemory()
		}
	}
	if e.Listen == "" {
		o.Kafka = transport.ListenMemory(inProcess)
	}
	b := New(o)
	if err := b.Start(ctx); err != nil {
		return nil, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	return b, nil
}

func (e *Embedded) load() (*config.Loaded, error) {
	given := map[string]string{"moonmq.listen": "off", "perigee.http.listen": "off"}
	if e.DataDir != "" {
		given["log.dirs"] = e.DataDir
	}
	if e.Listen != "" {
		given["listeners"] = e.Listen
	}
	maps.Copy(given, e.Settings)
	var sources config.Sources
	for _, name := range slices.Sorted(maps.Keys(given)) {
		sources.Flags = append(sources.Flags, config.Raw{Name: name, Value: given[name], Origin: name})
	}
	return config.Load(sources)
}

// Bootstrap is the address of the first Kafka listener, to give to a client.
func (b *Broker) Bootstrap() string { return b.listeners[0].Addr().String() }

// Dial connects to the broker, without a socket if it has none. It has the form
// that clients take a dialer in, such as kgo.Dialer.
func (b *Broker) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if b.options.Kafka != nil {
		return b.options.Kafka.Dial(ctx)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
