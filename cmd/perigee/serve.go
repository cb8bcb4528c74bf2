package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/perigeemq/perigee/server"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/metrics"
)

// serveFlags are the sources of the broker's settings on the command line.
type serveFlags struct {
	config, properties string
	dataDir            string
	kafka, moonmq, web string
	set                []string
}

func newServeCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Run a broker until SIGTERM or SIGINT, which drain it, sync its data and exit with 0;
a second one ends it at once. Without any flag it keeps its data in ./perigee-data and
listens on this machine only.

Settings come from a Kafka properties file, a YAML file, the environment (PERIGEE_*)
and flags; the later ones win. "perigee config docs" lists them.`,
		Example: `  perigee serve
  perigee serve --data-dir /var/lib/perigee --kafka-listen 127.0.0.1:0
  perigee serve --config perigee.yaml --set log.retention.ms=3600000`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := config.Load(f.sources())
			if err != nil {
				return err
			}
			log := server.NewLogger(loaded.Broker, c.ErrOrStderr())
			v := readVersion()
			return server.Run(c.Context(), server.Options{
				Config: loaded,
				Log:    log,
				Build:  metrics.Build{Version: v.Version, Commit: v.Commit, Go: v.Go},
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.config, "config", os.Getenv("PERIGEE_CONFIG"), "YAML file with settings")
	flags.StringVar(&f.properties, "kafka-properties", "", "Kafka server.properties to take settings from")
	flags.StringVar(&f.dataDir, "data-dir", "", "directory for all data (default ./perigee-data)")
	flags.StringVar(&f.kafka, "kafka-listen", "", "HOST:PORT for Kafka clients (default 127.0.0.1:9092)")
	flags.StringVar(&f.moonmq, "moonmq-listen", "", "HOST:PORT for MoonMQ clients, or off (default 127.0.0.1:9192)")
	flags.StringVar(&f.web, "http-listen", "", "HOST:PORT for metrics and health, or off (default 127.0.0.1:9404)")
	flags.StringArrayVar(&f.set, "set", nil, "set one setting, KEY=VALUE; may be repeated")
	return c
}

// sources puts the command line's sources together.
func (f *serveFlags) sources() config.Sources {
	s := config.Sources{Properties: f.properties, File: f.config, Environ: os.Environ(), Set: f.set}
	for _, flag := range []struct{ name, key, value string }{
		{"--data-dir", "log.dirs", f.dataDir},
		{"--kafka-listen", "perigee.kafka.listen", f.kafka},
		{"--moonmq-listen", "moonmq.listen", f.moonmq},
		{"--http-listen", "perigee.http.listen", f.web},
	} {
		if flag.value != "" {
			s.Flags = append(s.Flags, config.Raw{Name: flag.key, Value: flag.value, Origin: flag.name})
		}
	}
	return s
}
