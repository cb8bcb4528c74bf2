package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newClusterConfigCommand(s *session) *cobra.Command {
	return newFamily("config", "Show and change the settings of a running broker",
		newClusterConfigListCommand(s), newClusterConfigSetCommand(s))
}

func newClusterConfigListCommand(s *session) *cobra.Command {
	var given bool
	c := &cobra.Command{
		Use:     "list [NAME...]",
		Short:   "Show the settings in force and where each comes from",
		Example: "  perigee cluster config list --given",
		Args:    cobra.ArbitraryArgs,
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, names []string) error {
			settings, err := readBrokerSettings(ctx, admin)
			if err != nil {
				return err
			}
			settings = slices.DeleteFunc(settings, func(c describedConfig) bool {
				return given && c.Source == "DEFAULT_CONFIG" || len(names) > 0 && !slices.Contains(names, c.Key)
			})
			return out.print(settings, configTable("", settings))
		}),
	}
	c.Flags().BoolVar(&given, "given", false, "only what is not a default")
	return c
}

// readBrokerSettings asks the first broker: all of ours are one.
func readBrokerSettings(ctx context.Context, admin *kadm.Client) ([]describedConfig, error) {
	id, err := anyBroker(ctx, admin)
	if err != nil {
		return nil, err
	}
	resources, err := admin.DescribeBrokerConfigs(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("describe settings: %w", err)
	}
	all := []describedConfig{}
	for _, r := range resources {
		if r.Err != nil {
			return nil, fmt.Errorf("describe settings: %w", withMessage(r.Err, r.ErrMessage))
		}
		all = append(all, describeConfigs(r.Configs)...)
	}
	return all, nil
}

func anyBroker(ctx context.Context, admin *kadm.Client) (int32, error) {
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return 0, fmt.Errorf("list brokers: %w", err)
	}
	if len(brokers) == 0 {
		return 0, fmt.Errorf("list brokers: there are none")
	}
	return brokers[0].NodeID, nil
}

func newClusterConfigSetCommand(s *session) *cobra.Command {
	var unset []string
	c := &cobra.Command{
		Use:   "set [NAME=VALUE...]",
		Short: "Change settings of all brokers, without a restart",
		Long: `Change settings of all brokers while they run. They are kept over restarts and are stronger
than those a broker is started with. Settings that a running broker cannot change are refused;
"perigee config docs" says which those are.`,
		Example: `  perigee cluster config set perigee.log.level=debug
  perigee cluster config set --unset perigee.log.level`,
		Args: cobra.ArbitraryArgs,
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, pairs []string) error {
			changes, err := settingChanges(pairs, unset)
			if err != nil {
				return err
			}
			results, err := admin.AlterBrokerConfigs(ctx, changes)
			if err != nil {
				return fmt.Errorf("change settings: %w", err)
			}
			for _, r := range results {
				if r.Err != nil {
					out.item("change settings", withMessage(r.Err, r.ErrMessage))
				}
			}
			return out.end()
		}),
	}
	c.Flags().StringArrayVar(&unset, "unset", nil, "setting to give its former value back, may be repeated")
	return c
}

func settingChanges(pairs, unset []string) ([]kadm.AlterConfig, error) {
	var changes []kadm.AlterConfig
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usagef("%q is not NAME=VALUE", pair)
		}
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: strings.TrimSpace(name), Value: &value})
	}
	for _, name := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	if len(changes) == 0 {
		return nil, usagef("nothing to change: give NAME=VALUE or --unset NAME")
	}
	return changes, nil
}
