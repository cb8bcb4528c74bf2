package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit codes, as the package page explains them.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// repeatPause is how long a signal that comes again is the same one: timeout(1) and
// others send it to the process and then to its group.
const repeatPause = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends a verb in good order; a second one, later, is the system's.
	context.AfterFunc(ctx, func() { time.AfterFunc(repeatPause, stop) })
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	called, err := root.ExecuteContextC(ctx)
	if errors.Is(err, errListSettings) {
		_, err = fmt.Fprintln(stdout, describeSettings())
	}
	if err == nil {
		return exitDone
	}
	wrong, isUsage := errors.AsType[*usageError](err)
	if !errors.Is(err, errReported) {
		fmt.Fprintf(stderr, "perigee: %v\n", err)
	}
	if !isUsage {
		return exitFailed
	}
	if !wrong.complete {
		fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", called.CommandPath())
	}
	return exitUsage
}

func newRootCommand() *cobra.Command {
	s := newSession()
	root := newFamily("perigee", "A durable Kafka and MoonMQ broker, and its command line",
		newServeCommand(), newConfigCommand(s), newTopicCommand(s), newProduceCommand(s), newConsumeCommand(s), newGroupCommand(s),
		newTxnCommand(s), newDLQCommand(s), newUserCommand(s), newACLCommand(s), newClusterCommand(s), newBenchCommand(s), newInspectCommand(s), newCheckCommand(s), newVersionCommand(s),
		newDoctorCommand(s), newGenerateCommand())
	s.addFlags(root.PersistentFlags())
	s.completeAll(root)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err: err} })
	return root
}

// newFamily is a command that only has subcommands: alone it prints its help, with
// a word it does not know it says which it might have been.
func newFamily(use, short string, verbs ...*cobra.Command) *cobra.Command {
	family := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			message := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				message += ", did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("%s", message)
		},
	}
	family.SuggestionsMinimumDistance = 2
	family.AddCommand(verbs...)
	return family
}

// usageError is a command line that cannot be meant: exit code 2.
type usageError struct {
	err error
	// complete says that the message needs no pointer to --help.
	complete bool
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// errReported ends a verb whose failures have been printed already, one a line.
var errReported = errors.New("some items failed")

// arguments checks how many there are, and makes too few or many a usage error.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return &usageError{err: err}
		}
		return nil
	}
}
