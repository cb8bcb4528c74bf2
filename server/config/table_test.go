package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The rows themselves are sound: defaults pass their own checks, fallbacks
// exist, every row is explained.
func TestEveryRowIsSound(t *testing.T) {
	for _, table := range []*Table{TopicTable, BrokerTable, GroupTable, ClientMetricsTable} {
		for _, k := range table.Keys() {
			if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") {
				t.Errorf("%s: documentation %q is not a sentence", k.Name, k.Doc)
			}
			if !k.Null {
				if v, err := k.Parse(k.Default); err != nil || v != k.Default {
					t.Errorf("%s: default %q parses to %q, %v", k.Name, k.Default, v, err)
				}
			}
			for _, name := range k.Fallback {
				if from, ok := BrokerTable.Key(name); !ok || from.Name != name {
					t.Errorf("%s: fallback %s is no broker setting", k.Name, name)
				}
			}
			if k.Unit != NoUnit && !k.Type.numeric() {
				t.Errorf("%s: a %s has no unit", k.Name, k.Type)
			}
		}
	}
}

// Kafka 4.4 describes 37 topic settings; tools compare the whole set. The 38th,
// internal.segment.bytes, it does not show.
func TestTopicKeysAreKafkas(t *testing.T) {
	var kafka int
	for _, k := range TopicTable.Keys() {
		if !k.Hidden {
			kafka++
		}
	}
	if kafka != 37 {
		t.Errorf("%d topic settings are described, want 37", kafka)
	}
}

// A topic without overrides and its broker defaults say the same thing.
func TestTopicDefaultsEqualBrokerDefaults(t *testing.T) {
	for _, k := range TopicTable.Keys() {
		if r := (Values{}).Topic(k, nil); !k.Null && r.Value != k.Default {
			t.Errorf("%s: default %q, through the broker %q", k.Name, k.Default, r.Value)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		table     *Table
		key, text string
		want, err string
	}{
		{TopicTable, "retention.ms", "-1", "-1", ""},
		{TopicTable, "retention.ms", "-2", "", "Invalid value -2 for configuration retention.ms: Value must be at least -1"},
		{TopicTable, "retention.ms", "7d", "", "Invalid value 7d for configuration retention.ms: Not a number of type LONG"},
		{TopicTable, "segment.bytes", "99999999999", "", "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT"},
		{TopicTable, "segment.bytes", "1024", "", "Invalid value 1024 for configuration segment.bytes: Value must be at least 1048576"},
		{TopicTable, "preallocate", "TRUE", "true", ""},
		{TopicTable, "preallocate", "yes", "", "Invalid value yes for configuration preallocate: Expected value to be either true or false"},
		{TopicTable, "cleanup.policy", "compact, delete", "compact,delete", ""},
		{TopicTable, "cleanup.policy", "", "", ""},
		{TopicTable, "cleanup.policy", "compact,compact", "compact,compact", ""},
		{TopicTable, "cleanup.policy", "delete,compcat", "", "Invalid value compcat for configuration cleanup.policy: String must be one of: compact, delete"},
		{TopicTable, "cleanup.policy", "compact,", "", "Invalid value  for configuration cleanup.policy: String must be one of: compact, delete"},
		{TopicTable, "max.decompressed.message.bytes", "0", "", "Invalid value 0 for configuration max.decompressed.message.bytes: Value must be at least 1"},
		{TopicTable, "max.decompressed.message.bytes", "2147483647", "", "Invalid value 2147483647 for configuration max.decompressed.message.bytes: Value must be no more than 2147483639"},
		{TopicTable, "compression.type", "lz5", "", "Invalid value lz5 for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{TopicTable, "compression.gzip.level", "0", "", "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
		{TopicTable, "compression.gzip.level", "-1", "-1", ""},
		{TopicTable, "compression.lz4.level", "18", "", "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17"},
		{TopicTable, "min.cleanable.dirty.ratio", "1", "1.0", ""},
		{TopicTable, "min.cleanable.dirty.ratio", "2", "", "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
		{TopicTable, "min.cleanable.dirty.ratio", "NaN", "", "Invalid value NaN for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE"},
		{TopicTable, "remote.storage.enable", "true", "", "Invalid value true for configuration remote.storage.enable: not supported by this broker"},
		{TopicTable, "leader.replication.throttled.replicas", "0:1,1:1", "0:1,1:1", ""},
		{TopicTable, "leader.replication.throttled.replicas", "0", "", "Invalid value [0] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
		{TopicTable, "leader.replication.throttled.replicas", "none", "", "Invalid value [none] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
		{BrokerTable, "max.connections.per.ip.overrides", "[::1]:5,host:6", "[::1]:5,host:6", ""},
		{BrokerTable, "max.connections.per.ip.overrides", "host", "", `Invalid value host for configuration max.connections.per.ip.overrides: "host" is not host:count`},
	} {
		k, _ := c.table.Key(c.key)
		got, err := k.Parse(c.text)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.err {
			t.Errorf("%s=%q: %q, %q; want %q, %q", c.key, c.text, got, text, c.want, c.err)
		}
	}
}

func TestParseHuman(t *testing.T) {
	for _, c := range []struct{ key, text, want string }{
		{"log.retention.ms", "7d", week},
		{"log.retention.ms", "1h30m", "5400000"},
		{"log.retention.ms", "1.5s", "1500"},
		{"log.retention.ms", "-1", "-1"},
		{"log.retention.hours", "2w", "336"},
		{"log.retention.hours", "90m", ""},
		{"log.retention.hours", "1parsec", ""},
		{"log.segment.bytes", "1GiB", "1073741824"},
		{"log.segment.bytes", "512 MB", "512000000"},
		{"log.segment.bytes", "a lot", ""},
		{"num.partitions", "3k", ""},
	} {
		k, _ := BrokerTable.Key(c.key)
		got, err := k.ParseHuman(c.text)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s=%q: %q, %v; want %q", c.key, c.text, got, err, c.want)
		}
	}
}

func TestCheckTopic(t *testing.T) {
	for _, c := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{"cleanup.policy": "compact", "retention.ms": "5"}, ""},
		{map[string]string{"retention.msec": "5"}, "Unknown topic config name: retention.msec"},
		{map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
			"conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (9)"},
	} {
		_, err := CheckTopic(Values{}, c.values)
		if got := errText(err); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"log.retenton.ms":  "log.retention.ms",
		"num.partition":    "num.partitions",
		"Listener":         "listeners",
		"something.absurd": "",
	} {
		if got := BrokerTable.Nearest(name); got != want {
			t.Errorf("%s: nearest is %q, want %q", name, got, want)
		}
	}
}

// Resolution prefers the strongest source, then the most specific synonym, and
// converts units on the way.
func TestResolve(t *testing.T) {
	loaded, err := Load(Sources{Set: []string{"log.retention.hours=1"}, Environ: []string{"PERIGEE_LOG_RETENTION_MS=5"}})
	if err != nil {
		t.Fatal(err)
	}
	v := Values{Static: loaded.Static, ClusterDefault: map[string]string{"log.retention.ms": "77"}}
	k, _ := TopicTable.Key("retention.ms")
	name := func(r Resolved) string {
		var parts []string
		for _, s := range r.Synonyms {
			parts = append(parts, s.Name+"="+s.Value)
		}
		return r.Value + " ← " + strings.Join(parts, " ")
	}
	for _, c := range []struct {
		values    Values
		overrides map[string]string
		want      string
		source    Source
	}{
		{Values{}, nil, "604800000 ← ", SourceDefault},
		{Values{Static: loaded.Static}, nil, "3600000 ← log.retention.hours=1 log.retention.ms=5 log.retention.hours=168", SourceStatic},
		{v, nil, "77 ← log.retention.ms=77 log.retention.hours=1 log.retention.ms=5 log.retention.hours=168", SourceClusterDefault},
		{Values{}, map[string]string{"retention.ms": "9"}, "9 ← retention.ms=9", SourceTopic},
	} {
		r := c.values.Topic(k, c.overrides)
		if got := name(r); got != c.want || r.Source != c.source {
			t.Errorf("%q from %d, want %q from %d", got, r.Source, c.want, c.source)
		}
	}
	ms, _ := BrokerTable.Key("log.retention.ms")
	if r := (Values{}).Broker(ms); !r.Null || r.Source != SourceDefault {
		t.Errorf("log.retention.ms is %q, want null by default", r.Value)
	}
}

func TestLoadReportsEverythingAtOnce(t *testing.T) {
	file := write(t, "perigee.yaml", `
log.retenton.ms: 7d
log:
  segment.bytes: small
num.partitions: 3
num.partitions: 4
listeners:
  - {name: a, bind: "127.0.0.1:0", colour: red}
moonmq: {max.deliveries: 0}
`)
	_, err := Load(Sources{File: file, Set: []string{"novalue"}, Environ: []string{"PERIGEE_NODE_ID=-4"}})
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error is %v", err)
	}
	want := []string{
		file + `:6: num.partitions is already set in line 5`,
		file + `:8: listeners: unknown field "colour"; name, bind, advertise, protocol and security are known`,
		file + `:2: unknown setting "log.retenton.ms" (did you mean "log.retention.ms"?)`,
		file + `:4: Invalid value small for configuration log.segment.bytes: not a size such as 1048576, 512KiB or 1GiB`,
		file + `:9: Invalid value 0 for configuration moonmq.max.deliveries: Value must be at least 1`,
		`PERIGEE_NODE_ID: Invalid value -4 for configuration node.id: Value must be at least 0`,
		`--set novalue: not key=value`,
	}
	if got := strings.Join(problems, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestYAMLSyntaxErrorNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: c: d\n":         "f:2: mapping values are not allowed in this context",
		"- 1\n":                   "f:1: settings expected, as key: value",
		"node.id: 1\n---\nx: 1\n": "f:1: only one document is read",
		"node.id:\n":              "f:1: node.id has no value",
		"":                        "",
		"# nothing\n":             "",
	} {
		_, problems := parseYAML("f", []byte(text))
		if got := strings.Join(problems, "\n"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLoadOrder(t *testing.T) {
	properties := write(t, "server.properties", "num.partitions=2\nnode.id=7\nlog.dirs=/p\nnum.network.threads=9\ncontroler.name=x\n")
	file := write(t, "perigee.yaml", "num.partitions: 3\nlog.dirs: /f\n")
	loaded, err := Load(Sources{Properties: properties, File: file, Environ: []string{"PERIGEE_NUM_PARTITIONS=4", "PERIGEE_DATA_DIR=/e", "PERIGEE_ODD=1", "HOME=/"},
		Flags: []Raw{{"log.dirs", "/flag", "--data-dir"}}, Set: []string{"num.partitions=5", "num.partitions=6"}})
	if err != nil {
		t.Fatal(err)
	}
	b := loaded.Broker
	if b.NodeID != 7 || b.Topics.Partitions != 6 || b.DataDir != "/flag" {
		t.Errorf("node %d, partitions %d, directory %s", b.NodeID, b.Topics.Partitions, b.DataDir)
	}
	want := []string{
		properties + `:5: unknown setting "controler.name" is ignored`,
		properties + ":4: num.network.threads is accepted and has no effect",
		`PERIGEE_ODD: unknown setting "odd" is ignored`,
	}
	if got := strings.Join(loaded.Warnings, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("warnings\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if s, _ := loaded.Static.Lookup("log.dirs"); s.Origin != "--data-dir" {
		t.Errorf("origin of log.dirs is %s", s.Origin)
	}
}

func TestListeners(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want string // addresses, or the error
	}{
		{nil, "PLAINTEXT 127.0.0.1:9092 | moonmq 127.0.0.1:9192 | http 127.0.0.1:9404"},
		{[]string{"listeners=127.0.0.1:1", "moonmq.listen=off", "perigee.http.listen=off"}, "PLAINTEXT 127.0.0.1:1"},
		{[]string{"listeners=PLAINTEXT://[::1]:1,CONTROLLER://:2", "controller.listener.names=CONTROLLER", "moonmq.listen=off", "perigee.http.listen=off"}, "PLAINTEXT [::1]:1"},
		{[]string{"listeners=A://127.0.0.1:1,B://127.0.0.1:2", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "advertised.listeners=B://broker:9", "moonmq.listen=off", "perigee.http.listen=off"},
			"A 127.0.0.1:1 | B 127.0.0.1:2 as broker:9"},
		{[]string{"listeners=:9092"}, ":9092: other machines can reach it and nobody has to authenticate; set perigee.allow.open=true if that is wanted"},
		{[]string{"listeners=SASL_SSL://127.0.0.1:1"}, "--set: listeners: SASL_SSL needs SASL_SSL, which this release does not have; PLAINTEXT and SSL are supported"},
		{[]string{"listeners=SSL://127.0.0.1:1", "ssl.keystore.type=PEM"}, "--set: listeners: a TLS listener needs ssl.keystore.location"},
		{[]string{"listeners=SSL://127.0.0.1:1", "ssl.keystore.location=x.jks"}, "ssl.keystore.type: JKS is not read, set it to PEM"},
		{[]string{"listeners=SSL://127.0.0.1:1", "ssl.keystore.type=PEM", "ssl.keystore.location=x", "ssl.client.auth=required"},
			"--set: ssl.client.auth: required needs ssl.truststore.location"},
		{[]string{"listeners=X://127.0.0.1:1"}, "--set: listeners: X has no entry in listener.security.protocol.map"},
		{[]string{"listeners=127.0.0.1:1,127.0.0.1:2"}, "--set: listeners: PLAINTEXT stands twice; every listener needs its own name"},
		{[]string{"listeners=nonsense"}, `--set: listeners: "nonsense" is not HOST:PORT`},
		{[]string{"advertised.listeners=PLAINTEXT://:1"}, `--set: advertised.listeners: PLAINTEXT: clients cannot connect to ""; name a host`},
		{[]string{"advertised.listeners=PLAINTEXT://h:0"}, "--set: advertised.listeners: PLAINTEXT needs a port"},
		{[]string{"moonmq.listen=127.0.0.1:99999"}, `--set: moonmq.listen: "127.0.0.1:99999" has no port between 0 and 65535`},
	} {
		loaded, err := Load(Sources{Set: c.set})
		got := errText(err)
		if err == nil {
			var parts []string
			for _, l := range loaded.Broker.Kafka {
				part := l.Name + " " + l.Address()
				if a := l.Advertised(); a != "" {
					part += " as " + a
				}
				parts = append(parts, part)
			}
			if l := loaded.Broker.MoonMQ; l != nil {
				parts = append(parts, "moonmq "+l.Address())
			}
			if l := loaded.Broker.HTTP; l != nil {
				parts = append(parts, "http "+l.Address())
			}
			got = strings.Join(parts, " | ")
		}
		if got != c.want {
			t.Errorf("%v:\n%s, want\n%s", c.set, got, c.want)
		}
	}
}

func TestTypedTopic(t *testing.T) {
	topic := NewTopic(Values{}, map[string]string{"cleanup.policy": "compact,delete", "internal.segment.bytes": "100", "retention.ms": "-1", "max.compaction.lag.ms": maxInt64})
	if !topic.Compact || !topic.Delete || topic.SegmentBytes != 100 || topic.RetentionAge >= 0 || topic.MaxCompactionLag != Forever || topic.SegmentAge != 7*24*time.Hour {
		t.Errorf("%+v", topic)
	}
}

// The committed page is what the table says. `perigee config docs` writes it.
func TestDocumentationIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := WriteMarkdown(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/configuration.md differs from the table; run: go run ./cmd/perigee config docs > docs/configuration.md")
	}
}

func FuzzParseYAML(f *testing.F) {
	f.Add([]byte("log: {retention.ms: 7d}\nlisteners: [{bind: x}]\n"))
	f.Add([]byte("a: &a {b: *a}\n"))
	f.Fuzz(func(t *testing.T, text []byte) { parseYAML("f", text) })
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
