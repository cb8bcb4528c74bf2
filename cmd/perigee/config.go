package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/perigeemq/perigee/server"
	"github.com/perigeemq/perigee/server/config"
	"github.com/perigeemq/perigee/server/moonmq"
)

// settingFlags are where the broker's settings come from, on the command line.
type settingFlags struct {
	config, properties string
	dataDir, logFile   string
	kafka, moonmq, web string
	repair, dev        bool
	set                []string

	appSettings string
	imported    server.MoonMQ // what the appsettings.json says beside settings; set by load
}

func (f *settingFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", os.Getenv("PERIGEE_CONFIG"), "YAML file with settings")
	flags.StringVar(&f.properties, "kafka-properties", "", "Kafka server.properties to take settings from")
	flags.StringVar(&f.appSettings, "moonmq-appsettings", "", "MoonMQ appsettings.json to take settings, users and quotas from")
	flags.StringVar(&f.dataDir, "data-dir", "", "directory for all data (default ./perigee-data)")
	flags.StringVar(&f.kafka, "kafka-listen", "", "HOST:PORT for Kafka clients (default 127.0.0.1:9092)")
	flags.StringVar(&f.moonmq, "moonmq-listen", "", "HOST:PORT for MoonMQ clients, or off (default 127.0.0.1:9192)")
	flags.StringVar(&f.web, "http-listen", "", "HOST:PORT for metrics and health, or off (default 127.0.0.1:9404)")
	flags.StringVar(&f.logFile, "log-file", "", "file for log lines (default stderr); SIGHUP opens it anew")
	flags.BoolVar(&f.dev, "dev", false, "defaults for a laptop: small files, little memory, and acknowledged records do not survive a power loss")
	flags.BoolVar(&f.repair, "repair", false, "check every batch at the start and keep what can be read; the log says what is lost")
	flags.StringArrayVar(&f.set, "set", nil, "set one setting, KEY=VALUE; may be repeated")
}

// load reads and checks all sources. What is wrong with them is a usage error,
// one line each.
func (f *settingFlags) load() (*config.Loaded, error) {
	sources := f.sources()
	unsupported, err := f.importAppSettings(&sources)
	if err != nil {
		return nil, &usageError{err: err, complete: true}
	}
	loaded, err := config.Load(sources)
	if err != nil {
		return nil, &usageError{err: err, complete: true}
	}
	loaded.Warnings = append(loaded.Warnings, unsupported...)
	return loaded, nil
}

// devSettings are what --dev sets, weaker than everything else that is given.
var devSettings = []config.Raw{
	{Name: "perigee.durability", Value: "os", Origin: "--dev"},
	{Name: "perigee.disk.reserve.bytes", Value: "10MiB", Origin: "--dev"},
	{Name: "perigee.journal.file.bytes", Value: "4MiB", Origin: "--dev"},
	{Name: "perigee.journal.bytes", Value: "32MiB", Origin: "--dev"},
	{Name: "log.segment.bytes", Value: "16MiB", Origin: "--dev"},
	{Name: "log.cleaner.dedupe.buffer.size", Value: "16MiB", Origin: "--dev"},
	{Name: "queued.max.request.bytes", Value: "128MiB", Origin: "--dev"},
}

// importAppSettings reads the appsettings.json: its settings become the weakest
// source, its users and quotas are kept for the MoonMQ listener. It returns a
// line for every key that has no effect.
func (f *settingFlags) importAppSettings(s *config.Sources) ([]string, error) {
	if f.appSettings == "" {
		return nil, nil
	}
	a, err := moonmq.ReadAppSettings(f.appSettings, os.Getenv("MOONMQ_ENVIRONMENT"))
	if err != nil {
		return nil, err
	}
	s.Imported, s.MoonMQAuth = append(s.Imported, a.Settings...), len(a.Access.Users) > 0
	f.imported = server.MoonMQ{Access: a.Access, Quotas: a.Quotas}
	return a.Unsupported, nil
}

func (f *settingFlags) sources() config.Sources {
	s := config.Sources{Properties: f.properties, File: f.config, Environ: os.Environ(), Set: f.set}
	if f.dev {
		s.Imported = slices.Clone(devSettings)
	}
	if f.repair {
		s.Flags = append(s.Flags, config.Raw{Name: "perigee.repair", Value: "true", Origin: "--repair"})
	}
	for _, flag := range []struct{ name, key, value string }{
		{"--data-dir", "log.dirs", f.dataDir},
		{"--kafka-listen", "perigee.kafka.listen", f.kafka},
		{"--moonmq-listen", "moonmq.listen", f.moonmq},
		{"--http-listen", "perigee.http.listen", f.web},
		{"--log-file", "perigee.log.file", f.logFile},
	} {
		if flag.value != "" {
			s.Flags = append(s.Flags, config.Raw{Name: flag.key, Value: flag.value, Origin: flag.name})
		}
	}
	return s
}

func newConfigCommand(s *session) *cobra.Command {
	return newFamily("config", "Check, print and explain the broker's settings",
		newConfigCheckCommand(s), newConfigPrintCommand(s), newConfigDocsCommand())
}

// checkedConfig is what config check finds in settings that are right.
type checkedConfig struct {
	Given    int      `json:"settings_given"`
	Warnings []string `json:"warnings"`
}

func newConfigCheckCommand(s *session) *cobra.Command {
	var f settingFlags
	c := &cobra.Command{
		Use:   "check",
		Short: "Check the settings serve would start with",
		Long: `Read the settings as "perigee serve" with the same flags would, and report everything
that is wrong with them, with file and line. Exits with 2 if anything is.`,
		Example: "  perigee config check --config perigee.yaml",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := s.output(c)
			if err != nil {
				return err
			}
			loaded, err := f.load()
			if err != nil {
				return err
			}
			found := checkedConfig{len(loaded.Static.Given()), append([]string{}, loaded.Warnings...)}
			if out.json {
				return out.print(found)
			}
			for _, warning := range found.Warnings {
				fmt.Fprintf(out.w, "warning: %s\n", warning)
			}
			_, err = fmt.Fprintf(out.w, "ok: %d settings given, all others default\n", found.Given)
			return err
		},
	}
	f.add(c.Flags())
	return c
}

// printedSetting is a setting as config print shows it.
type printedSetting struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"` // null when there is none, and for secrets
	Origin string  `json:"origin"`
}

func newConfigPrintCommand(s *session) *cobra.Command {
	var f settingFlags
	var given bool
	c := &cobra.Command{
		Use:     "print",
		Short:   "Print the settings serve would start with, and where each comes from",
		Example: "  perigee config print --config perigee.yaml --given",
		Args:    arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			out, err := s.output(c)
			if err != nil {
				return err
			}
			loaded, err := f.load()
			if err != nil {
				return err
			}
			settings := printedSettings(loaded.Static, given)
			t := table{header: []string{"SETTING", "VALUE", "ORIGIN"}}
			for _, p := range settings {
				value := "null"
				if p.Value != nil {
					value = *p.Value
				}
				t.add(p.Name, value, p.Origin)
			}
			return out.print(settings, t)
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&given, "given", false, "only what was given, not the defaults")
	return c
}

func printedSettings(static *config.Static, given bool) []printedSetting {
	settings := []printedSetting{}
	for _, k := range config.BrokerTable.Keys() {
		p := printedSetting{Name: k.Name, Origin: "default"}
		if set, ok := static.Lookup(k.Name); ok {
			p.Origin = set.Origin
		} else if given {
			continue
		}
		if r := (config.Values{Static: static}).Broker(k); !r.Null {
			p.Value = &r.Value
		}
		settings = append(settings, p)
	}
	return settings
}

func newConfigDocsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs",
		Short: "Print the page that explains every setting, as Markdown",
		Args:  arguments(cobra.NoArgs),
		RunE:  func(c *cobra.Command, _ []string) error { return config.WriteMarkdown(c.OutOrStdout()) },
	}
}
