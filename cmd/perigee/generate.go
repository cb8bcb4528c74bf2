package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newGenerateCommand() *cobra.Command {
	return newFamily("generate", "Print files for what stands around a broker",
		newGenerateVerb("grafana-dashboard", "Print a Grafana dashboard of /metrics, as JSON", func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			return encoder.Encode(dashboard())
		}),
		newGenerateVerb("prometheus-config", "Print a scrape job for Prometheus", func(w io.Writer) error {
			_, err := io.WriteString(w, prometheusConfig)
			return err
		}),
		newGenerateVerb("systemd", "Print a unit for systemd that runs this binary", func(w io.Writer) error {
			binary, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this binary: %w", err)
			}
			_, err = fmt.Fprintf(w, systemdUnit, binary)
			return err
		}))
}

func newGenerateVerb(name, short string, write func(io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return write(c.OutOrStdout()) },
	}
}

const prometheusConfig = `scrape_configs:
  - job_name: perigee
    scrape_interval: 15s
    static_configs:
      - targets: ["127.0.0.1:9404"]
`

// systemdUnit has the place of the binary. TimeoutStopSec is above
// perigee.shutdown.timeout.ms; a start that takes long asks for more time itself.
const systemdUnit = `[Unit]
Description=Perigee, a Kafka and MoonMQ broker
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart=%s serve --data-dir /var/lib/perigee
ExecReload=/bin/kill -HUP $MAINPID
User=perigee
StateDirectory=perigee
UMask=0077
LimitNOFILE=800000
TimeoutStopSec=45
WatchdogSec=30
Restart=on-failure
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome=true
PrivateTmp=true
PrivateDevices=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectControlGroups=true
RestrictSUIDSGID=true
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=true
MemoryDenyWriteExecute=true
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
`

// panel is a graph of the dashboard.
type panel struct {
	title, unit string // a unit as Grafana names it
	exprs       []string
}

var panels = []panel{
	{"Requests", "reqps", []string{`sum by (api) (rate(perigee_kafka_requests_total[$__rate_interval]))`}},
	{"Request time, 99th percentile", "s", []string{`histogram_quantile(0.99, sum by (api, le) (rate(perigee_kafka_request_duration_seconds_bucket[$__rate_interval])))`}},
	{"Bytes in and out", "Bps", []string{`rate(perigee_kafka_produce_bytes_total[$__rate_interval])`, `rate(perigee_kafka_fetch_bytes_total[$__rate_interval])`}},
	{"Records produced", "short", []string{`rate(perigee_kafka_produce_records_total[$__rate_interval])`}},
	{"Lag by group and topic", "short", []string{`perigee_group_lag_sum`}},
	{"Lag in time", "s", []string{`max by (group, topic) (perigee_group_lag_seconds)`}},
	{"Journal flush, 99th percentile", "s", []string{`histogram_quantile(0.99, sum by (le) (rate(perigee_journal_flush_duration_seconds_bucket[$__rate_interval])))`}},
	{"Entries that share a sync", "short", []string{`rate(perigee_journal_entries_total[$__rate_interval]) / rate(perigee_journal_groups_total[$__rate_interval])`}},
	{"Disk free", "bytes", []string{`perigee_disk_free_bytes`}},
	{"Bytes by topic", "bytes", []string{`sum by (topic) (perigee_partition_bytes)`}},
	{"Held back by open transactions", "short", []string{`perigee_partition_high_watermark - perigee_partition_last_stable_offset > 0`}},
	{"Connections", "short", []string{`perigee_connections_open`}},
	{"Refused connections", "cps", []string{`rate(perigee_connections_refused_total[$__rate_interval])`}},
	{"Memory", "bytes", []string{`process_resident_memory_bytes`, `perigee_request_memory_bytes`}},
	{"Offline partitions, full disk", "short", []string{`perigee_partitions_offline`, `perigee_storage_full`}},
	{"Age of the checkpoint", "s", []string{`perigee_checkpoint_age_seconds`}},
}

// dashboard is the panels in Grafana's model, two in a row.
func dashboard() map[string]any {
	const width, height = 12, 8
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	var list []map[string]any
	for i, p := range panels {
		var targets []map[string]any
		for n, expr := range p.exprs {
			targets = append(targets, map[string]any{"refId": string(rune('A' + n)), "expr": expr, "datasource": source})
		}
		list = append(list, map[string]any{
			"id": i + 1, "type": "timeseries", "title": p.title, "datasource": source, "targets": targets,
			"gridPos":     map[string]any{"x": i % 2 * width, "y": i / 2 * height, "w": width, "h": height},
			"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}},
		})
	}
	return map[string]any{
		"uid": "perigee", "title": "Perigee", "tags": []string{"perigee", "kafka"}, "schemaVersion": 39, "refresh": "15s",
		"time": map[string]any{"from": "now-1h", "to": "now"},
		"templating": map[string]any{"list": []map[string]any{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
		}},
		"panels": list,
	}
}
