package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"golang.org/x/term"
)

func newUserCommand(s *session) *cobra.Command {
	return newFamily("user", "Create, list and delete the users clients log in as",
		newUserPutCommand(s, "create", "Store a password for a user"), newUserPutCommand(s, "update", "Store another password for a user"),
		newUserListCommand(s), newUserDeleteCommand(s))
}

// scramIterations is Kafka's largest number: what a stolen store costs to guess.
const scramIterations = 16384

var mechanisms = map[string]kadm.ScramMechanism{"SCRAM-SHA-256": kadm.ScramSha256, "SCRAM-SHA-512": kadm.ScramSha512}

func mechanismFlag(c *cobra.Command, into *string) {
	c.Flags().StringVar(into, "mechanism", "SCRAM-SHA-256", "SCRAM-SHA-256 or SCRAM-SHA-512; MoonMQ clients need the first for SCRAM")
}

func parseMechanism(name string) (kadm.ScramMechanism, error) {
	m, ok := mechanisms[strings.ToUpper(name)]
	if !ok {
		return 0, usagef("--mechanism %s: want SCRAM-SHA-256 or SCRAM-SHA-512", name)
	}
	return m, nil
}

func newUserPutCommand(s *session, use, short string) *cobra.Command {
	var mechanism, file string
	var iterations int32
	c := &cobra.Command{
		Use:   use + " USER",
		Short: short,
		Long: short + `. The password is read from the terminal, from --password-file, or from
the environment variable PERIGEE_NEW_PASSWORD; it never stands on a command line. What
the broker stores cannot be turned back into it.`,
		Example: "  perigee user " + use + " alice\n  perigee user " + use + " service --password-file secret.txt",
		Args:    arguments(cobra.ExactArgs(1)),
	}
	mechanismFlag(c, &mechanism)
	c.Flags().StringVar(&file, "password-file", "", "file whose first line is the password")
	c.Flags().Int32Var(&iterations, "iterations", scramIterations, "rounds of the key derivation, 4096 to 16384")
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
		m, err := parseMechanism(mechanism)
		if err != nil {
			return err
		}
		password, err := readPassword(out, file)
		if err != nil {
			return err
		}
		altered, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: args[0], Mechanism: m, Iterations: iterations, Password: password}})
		return printAltered(out, altered, err, "stored")
	})
	return c
}

// readPassword takes the password from wherever it is not shown.
func readPassword(out *output, file string) (string, error) {
	if file != "" {
		var c connection
		err := passwordFile(&c, file)
		return c.password, err
	}
	if p := os.Getenv("PERIGEE_NEW_PASSWORD"); p != "" {
		return p, nil
	}
	if f, ok := out.input.(*os.File); ok && isTerminal(f) {
		fmt.Fprint(out.errors, "Password: ")
		p, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(out.errors)
		return string(p), wrap("read password", err)
	}
	line, err := bufio.NewReader(out.input).ReadString('\n')
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usagef("no password: give --password-file, PERIGEE_NEW_PASSWORD or a line on stdin (%v)", err)
	}
	return line, nil
}

type alteredUser struct {
	User   string `json:"user"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
}

func printAltered(out *output, altered kadm.AlteredUserSCRAMs, err error, status string) error {
	if err != nil {
		return fmt.Errorf("alter users: %w", err)
	}
	results := []alteredUser{}
	t := table{header: []string{"USER", "STATUS"}}
	for _, a := range altered.Sorted() {
		r := alteredUser{User: a.User, Status: status}
		if err := withMessage(a.Err, a.ErrMessage); err != nil {
			r.Status, r.Error = "failed", message(err)
			out.item(a.User, err)
		}
		results = append(results, r)
		t.add(r.User, r.Status)
	}
	return out.print(results, t)
}

type listedUser struct {
	User        string           `json:"user"`
	Credentials map[string]int32 `json:"credentials"` // iterations by mechanism
}

func newUserListCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "list [USER...]",
		Short: "List users and the mechanisms they have a password for",
		Long:  "List users and the mechanisms they have a password for. Users of an appsettings.json are not\nlisted: they belong to the file.",
		RunE: s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
			users, err := admin.DescribeUserSCRAMs(ctx, args...)
			if err != nil {
				return fmt.Errorf("describe users: %w", err)
			}
			results := []listedUser{}
			t := table{header: []string{"USER", "MECHANISM", "ITERATIONS"}}
			for _, u := range users.Sorted() {
				if err := withMessage(u.Err, u.ErrMessage); err != nil {
					out.item(u.User, err)
					continue
				}
				l := listedUser{u.User, map[string]int32{}}
				for _, c := range u.CredInfos {
					l.Credentials[c.Mechanism.String()] = c.Iterations
					t.add(u.User, c.Mechanism, c.Iterations)
				}
				results = append(results, l)
			}
			return out.print(results, t)
		}),
	}
}

func newUserDeleteCommand(s *session) *cobra.Command {
	var mechanism string
	c := &cobra.Command{
		Use:     "delete USER",
		Short:   "Forget a user's password",
		Example: "  perigee user delete alice",
		Args:    arguments(cobra.ExactArgs(1)),
	}
	mechanismFlag(c, &mechanism)
	c.RunE = s.withAdmin(func(ctx context.Context, admin *kadm.Client, out *output, args []string) error {
		m, err := parseMechanism(mechanism)
		if err != nil {
			return err
		}
		altered, err := admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: args[0], Mechanism: m}}, nil)
		return printAltered(out, altered, err, "deleted")
	})
	return c
}
