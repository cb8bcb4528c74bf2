package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const defaultBroker = "127.0.0.1:9092"

// dialTimeoutDefault: a broker that does not take a connection in this time is
// not there, and a person is waiting.
const dialTimeoutDefault = 5 * time.Second

// session is what every client verb shares: where the broker is and how to print.
type session struct {
	brokers   []string
	overrides []string // -X key=value
	format    string
}

func newSession() *session { return new(session) }

func (s *session) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.brokers, "brokers", nil, "where to connect, HOST:PORT,… (env PERIGEE_BROKERS, default "+defaultBroker+")")
	flags.VarP(&overrideList{&s.overrides}, "option", "X", "connection setting as key=value, may be repeated; -X list prints them")
	flags.StringVar(&s.format, "format", "text", "text or json")
}

// overrideList is the flag -X. "list" ends the command line like --help does, whatever
// else stands on it.
type overrideList struct{ pairs *[]string }

var errListSettings = errors.New("list the settings")

func (l *overrideList) Set(pair string) error {
	if pair == "list" {
		return errListSettings
	}
	*l.pairs = append(*l.pairs, pair)
	return nil
}

func (l *overrideList) String() string { return strings.Join(*l.pairs, " ") }
func (l *overrideList) Type() string   { return "key=value" }

// connection holds the settings in use.
type connection struct {
	brokers                []string
	clientID               string
	protocol               string
	mechanism              string
	user, password         string
	ca, certificate, key   string
	serverName             string
	insecure               bool
	dialTimeout            time.Duration
	requestTimeoutOverhead time.Duration
}

// setting is one key for -X. Its environment variable is PERIGEE_ and the key in
// capitals with underscores.
type setting struct {
	name, help string
	set        func(c *connection, value string) error
}

func text(field func(*connection) *string) func(*connection, string) error {
	return func(c *connection, v string) error { *field(c) = v; return nil }
}

func milliseconds(field func(*connection) *time.Duration) func(*connection, string) error {
	return func(c *connection, v string) error {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return fmt.Errorf("%q is not a number of milliseconds", v)
		}
		*field(c) = time.Duration(n) * time.Millisecond
		return nil
	}
}

// settings are librdkafka's names, which users of kcat have in their fingers.
var settings = []setting{
	{"bootstrap.servers", "same as --brokers", func(c *connection, v string) error { c.brokers = strings.Split(v, ","); return nil }},
	{"client.id", "how the broker's logs and quotas name this client", text(func(c *connection) *string { return &c.clientID })},
	{"security.protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", oneOf(func(c *connection) *string { return &c.protocol }, "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")},
	{"sasl.mechanism", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", oneOf(func(c *connection) *string { return &c.mechanism }, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")},
	{"sasl.username", "user name", text(func(c *connection) *string { return &c.user })},
	{"sasl.password", "password; the environment or a file keeps it out of the process list", text(func(c *connection) *string { return &c.password })},
	{"sasl.password.file", "file whose first line is the password", passwordFile},
	{"ssl.ca.location", "PEM file of the authorities to trust", text(func(c *connection) *string { return &c.ca })},
	{"ssl.certificate.location", "PEM file of the client's certificate", text(func(c *connection) *string { return &c.certificate })},
	{"ssl.key.location", "PEM file of its key", text(func(c *connection) *string { return &c.key })},
	{"ssl.server.name", "host name to expect in the broker's certificate", text(func(c *connection) *string { return &c.serverName })},
	{"enable.ssl.certificate.verification", "false trusts any certificate", func(c *connection, v string) error {
		verify, err := strconv.ParseBool(v)
		c.insecure = !verify
		return err
	}},
	{"socket.connection.setup.timeout.ms", "how long a connection may take", milliseconds(func(c *connection) *time.Duration { return &c.dialTimeout })},
	{"request.timeout.ms", "how long an answer may take", milliseconds(func(c *connection) *time.Duration { return &c.requestTimeoutOverhead })},
}

func oneOf(field func(*connection) *string, choices ...string) func(*connection, string) error {
	return func(c *connection, v string) error {
		v = strings.ToUpper(v)
		if !slices.Contains(choices, v) {
			return fmt.Errorf("%q is none of %s", v, strings.Join(choices, ", "))
		}
		*field(c) = v
		return nil
	}
}

func passwordFile(c *connection, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read password: %w", err)
	}
	c.password, _, _ = strings.Cut(string(content), "\n")
	c.password = strings.TrimSuffix(c.password, "\r")
	return nil
}

func settingNamed(name string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// connection merges defaults, environment, -X and --brokers, the later the stronger.
func (s *session) connection() (*connection, error) {
	c := &connection{brokers: []string{defaultBroker}, clientID: "perigee-cli", protocol: "PLAINTEXT", mechanism: "PLAIN", dialTimeout: dialTimeoutDefault}
	if v := os.Getenv("PERIGEE_BROKERS"); v != "" {
		c.brokers = strings.Split(v, ",")
	}
	for _, known := range settings {
		name := "PERIGEE_" + strings.ToUpper(strings.ReplaceAll(known.name, ".", "_"))
		if v := os.Getenv(name); v != "" {
			if err := known.set(c, v); err != nil {
				return nil, usagef("%s: %w", name, err)
			}
		}
	}
	for _, o := range s.overrides {
		name, value, ok := strings.Cut(o, "=")
		if !ok {
			return nil, usagef("-X %s: want key=value; the keys are\n%s", o, describeSettings())
		}
		known, ok := settingNamed(strings.TrimSpace(name))
		if !ok {
			return nil, usagef("-X %s: unknown key; the keys are\n%s", name, describeSettings())
		}
		if err := known.set(c, value); err != nil {
			return nil, usagef("-X %s: %w", name, err)
		}
	}
	if len(s.brokers) > 0 {
		c.brokers = s.brokers
	}
	return c, nil
}

func describeSettings() string {
	var b strings.Builder
	for _, known := range settings {
		fmt.Fprintf(&b, "  %-36s %s\n", known.name, known.help)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// options turns the settings into the client library's.
func (c *connection) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.brokers...),
		kgo.ClientID(c.clientID),
		kgo.SoftwareNameAndVersion("perigee", softwareVersion()),
		kgo.DialTimeout(c.dialTimeout),
		kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
	if c.requestTimeoutOverhead > 0 {
		opts = append(opts, kgo.RequestTimeoutOverhead(c.requestTimeoutOverhead))
	}
	if strings.HasSuffix(c.protocol, "SSL") {
		config, err := c.tls()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	if strings.HasPrefix(c.protocol, "SASL") {
		switch c.mechanism {
		case "PLAIN":
			opts = append(opts, kgo.SASL(plain.Auth{User: c.user, Pass: c.password}.AsMechanism()))
		case "SCRAM-SHA-256":
			opts = append(opts, kgo.SASL(scram.Auth{User: c.user, Pass: c.password}.AsSha256Mechanism()))
		case "SCRAM-SHA-512":
			opts = append(opts, kgo.SASL(scram.Auth{User: c.user, Pass: c.password}.AsSha512Mechanism()))
		}
	}
	return opts, nil
}

func (c *connection) tls() (*tls.Config, error) {
	config := &tls.Config{ServerName: c.serverName, InsecureSkipVerify: c.insecure}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, fmt.Errorf("read authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read authorities: %s holds no certificate", c.ca)
		}
	}
	if c.certificate != "" || c.key != "" {
		pair, err := tls.LoadX509KeyPair(c.certificate, c.key)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// open connects. It asks the broker for something at once, so that an address
// where nobody listens is reported now and as such.
func (s *session) open(ctx context.Context, extra ...kgo.Opt) (*kgo.Client, error) {
	c, err := s.connection()
	if err != nil {
		return nil, err
	}
	opts, err := c.options()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, &usageError{err: err}
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("connect to %s: %w", strings.Join(c.brokers, ","), err)
	}
	return client, nil
}

// clientVerb is a verb that needs a client, adminVerb one that needs an admin
// client.
type (
	clientVerb func(ctx context.Context, client *kgo.Client, out *output, args []string) error
	adminVerb  func(ctx context.Context, admin *kadm.Client, out *output, args []string) error
)

// withClient connects, runs the verb and closes.
func (s *session) withClient(verb clientVerb) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		out, err := s.output(c)
		if err != nil {
			return err
		}
		client, err := s.open(c.Context())
		if err != nil {
			return err
		}
		defer client.Close()
		if err := verb(c.Context(), client, out, args); err != nil {
			return err
		}
		return out.end()
	}
}

// withAdmin is withClient for an admin client.
func (s *session) withAdmin(verb adminVerb) func(*cobra.Command, []string) error {
	return s.withClient(func(ctx context.Context, client *kgo.Client, out *output, args []string) error {
		return verb(ctx, kadm.NewClient(client), out, args)
	})
}
