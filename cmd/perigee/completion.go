package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
)

// completionPatience is how long somebody who pressed TAB waits for the broker.
const completionPatience = 2 * time.Second

// completion is what a shell completes a word to; nothing if the broker does not answer.
type completion = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completeAll tells the shell about every command: topics and groups by name, flags with
// few values, files where files are meant and nowhere else.
func (s *session) completeAll(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	topics, groups := s.completeNames(topicNamesOf), s.completeNames(groupNamesOf)
	flags := map[string]completion{
		"format":      oneOfThese("text", "json"),
		"compression": oneOfThese("none", "gzip", "snappy", "lz4", "zstd"),
		"acks":        oneOfThese("all", "1", "0"),
		"mechanism":   oneOfThese("SCRAM-SHA-256", "SCRAM-SHA-512"),
		"pattern":     oneOfThese("literal", "prefixed"),
		"topic":       topics,
		"group":       groups,
		"data-dir":    directive(cobra.ShellCompDirectiveFilterDirs),
	}
	for _, name := range []string{"config", "kafka-properties", "moonmq-appsettings", "log-file", "password-file", "from-file"} {
		flags[name] = directive(cobra.ShellCompDirectiveDefault)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		switch {
		case c.Name() == "create": // what it names is not there yet
		case strings.Contains(c.Use, "TOPIC") && !strings.Contains(c.Use, "-t TOPIC") && c.Name() != "abort":
			c.ValidArgsFunction = topics
		case strings.Contains(c.Use, "GROUP"):
			c.ValidArgsFunction = groups
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if complete, ok := flags[f.Name]; ok {
				// It fails when the flag has one already: then that is right.
				_ = c.RegisterFlagCompletionFunc(f.Name, complete)
			}
		})
		for _, verb := range c.Commands() {
			walk(verb)
		}
	}
	walk(root)
}

func oneOfThese(words ...string) completion {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

func directive(d cobra.ShellCompDirective) completion {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) { return nil, d }
}

// completeNames asks the broker, and leaves out what stands on the line already.
func (s *session) completeNames(list func(context.Context, *kadm.Client) []string) completion {
	return func(c *cobra.Command, given []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionPatience)
		defer cancel()
		client, err := s.open(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		names := slices.DeleteFunc(list(ctx, kadm.NewClient(client)), func(name string) bool {
			return !strings.HasPrefix(name, begun) || slices.Contains(given, name)
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func topicNamesOf(ctx context.Context, admin *kadm.Client) []string {
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return nil
	}
	return topics.Names()
}

func groupNamesOf(ctx context.Context, admin *kadm.Client) []string {
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return nil
	}
	return groups.Groups()
}
