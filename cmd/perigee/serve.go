package main

import (
	"github.com/spf13/cobra"

	"github.com/perigeemq/perigee/server"
	"github.com/perigeemq/perigee/server/metrics"
)

func newServeCommand() *cobra.Command {
	var f settingFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker",
		Long: `Run a broker until SIGTERM or SIGINT, which drain it, sync its data and exit with 0;
a second one, a second later, ends it at once. SIGHUP opens the log file anew and reads the settings again.
Without any flag it keeps its data in ./perigee-data and listens on this machine only.

Settings come from a MoonMQ appsettings.json, a Kafka properties file, a YAML file, the
environment (PERIGEE_*) and flags; the later ones win. "perigee config docs" lists them.`,
		Example: `  perigee serve
  perigee serve --data-dir /var/lib/perigee --kafka-listen 127.0.0.1:0
  perigee serve --config perigee.yaml --set log.retention.ms=3600000`,
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := f.load()
			if err != nil {
				return err
			}
			logs, err := server.OpenLogs(loaded.Broker.Log, c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer logs.Close()
			v := readVersion()
			return server.Run(c.Context(), server.Options{
				Config: loaded,
				Logs:   logs,
				Reload: f.load,
				MoonMQ: f.imported,
				Build:  metrics.Build{Version: v.Version, Commit: v.Commit, Go: v.Go},
			})
		},
	}
	f.add(c.Flags())
	return c
}
