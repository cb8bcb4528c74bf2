package moonmq

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/server/config"
)

// AppSettings is what a MoonMQ broker's appsettings.json means here.
type AppSettings struct {
	Settings []config.Raw // under our names, weaker than everything else
	Access   access.Static
	Quotas   QuotaOptions
	// Unsupported names every key that has no effect here, with the reason.
	Unsupported []string
}

// ReadAppSettings reads the file and, where it exists, the one of the environment
// beside it, which wins: appsettings.json and appsettings.Production.json. Without
// an environment it is Development. What concerns security must be right to the
// letter, or the broker does not start; other keys that mean nothing here are named
// in Unsupported. Keys that begin with an underscore are comments.
func ReadAppSettings(path, environment string) (*AppSettings, error) {
	tree, err := readTree(path)
	if err != nil {
		return nil, err
	}
	environment = cmp.Or(environment, "Development")
	if filepath.Base(environment) != environment {
		return nil, fmt.Errorf("read appsettings: environment %q is not part of a file's name", environment)
	}
	beside := strings.TrimSuffix(path, ".json") + "." + environment + ".json"
	switch over, err := readTree(beside); {
	case err == nil:
		merge(tree, over)
		path += " with " + filepath.Base(beside)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	r := &appReader{out: &AppSettings{Quotas: QuotaOptions{Users: map[string]Limits{}, Topics: map[string]Limits{}}}, path: path}
	for _, section := range keys(tree) {
		switch section {
		case "Server":
			r.server(object(tree[section]))
		case "Auth":
			r.auth(object(tree[section]))
		default:
			r.unsupported(section, "")
		}
	}
	if err := errors.Join(r.problems...); err != nil {
		return nil, err
	}
	return r.out, nil
}

func readTree(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read appsettings: %w", err)
	}
	tree := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read appsettings %s: %w", path, err)
	}
	return tree, nil
}

// merge puts what over says into base, object by object. A list takes the place of
// a list: half of one user and half of another would be nobody's intention.
func merge(base, over map[string]any) {
	for key, value := range over {
		inner, both := base[key].(map[string]any)
		if add, ok := value.(map[string]any); ok && both {
			merge(inner, add)
			continue
		}
		base[key] = value
	}
}

type appReader struct {
	out      *AppSettings
	path     string
	problems []error
}

func (r *appReader) unsupported(key, why string) {
	if why != "" {
		why = ": " + why
	}
	r.out.Unsupported = append(r.out.Unsupported, fmt.Sprintf("%s: %s has no effect%s", r.path, key, why))
}

func (r *appReader) refuse(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s: %s", r.path, fmt.Sprintf(format, args...)))
}

// keys lists an object's keys in a fixed order, comments left out.
func keys(o map[string]any) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(o)), func(k string) bool { return strings.HasPrefix(k, "_") })
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

// serverKeys maps keys of the Server section. scale turns the number there into
// ours; 0 takes the text as it is.
var serverKeys = map[string]struct {
	name  string
	scale float64
}{
	"MaxConnections":         {"moonmq.max.connections", 1},
	"MaxConnectionsPerIP":    {"moonmq.max.connections.per.ip", 1},
	"MaxFrameSize":           {"moonmq.max.frame.bytes", 1},
	"MaxPendingBytes":        {"moonmq.max.pending.bytes", 1},
	"MaxTopics":              {"moonmq.max.topics", 1},
	"SendDeadline":           {"moonmq.send.deadline.ms", 1000},
	"IdleDeadline":           {"moonmq.idle.deadline.ms", 1000},
	"PreAuthReadDeadline":    {"moonmq.pre.auth.read.deadline.ms", 1000},
	"HandshakeDeadline":      {"moonmq.handshake.deadline.ms", 1000},
	"HeartbeatInterval":      {"moonmq.heartbeat.interval.ms", 1000},
	"HeartbeatMissThreshold": {"moonmq.heartbeat.miss.threshold", 1},
	"ProducerExpirySeconds":  {"moonmq.producer.expiration.ms", 1000},
	"DataDir":                {"log.dirs", 0},
}

// ignoredServerKeys say why a key is not needed.
var ignoredServerKeys = map[string]string{
	"StorageBackend":                     "there is one backend, whose offsets count records",
	"Acks":                               "every record is on the disk before it is acknowledged",
	"GroupCommit":                        "syncs are shared without a delay",
	"GroupReaperInterval":                "members are evicted when their session ends",
	"ProducerExpiryCheckIntervalSeconds": "see transaction.remove.expired.transaction.cleanup.interval.ms",
	"FdReserve":                          "the system's limit applies",
	"MaxListTopics":                      "clients take no more than 1024",
	"Replication":                        "there is one broker",
	"Cluster":                            "there is one broker",
	"Autobalance":                        "there is one broker",
	"MetricsAuth":                        "the HTTP listener has no login",
	"MetricsTls":                         "the HTTP listener has no TLS",
}

func (r *appReader) server(o map[string]any) {
	host, port := "0.0.0.0", "9092"
	metricsHost := "127.0.0.1"
	for _, key := range keys(o) {
		where := "Server." + key
		known, mapped := serverKeys[key]
		why, ignored := ignoredServerKeys[key]
		switch {
		case mapped:
			r.number(where, known.name, o[key], known.scale)
		case ignored:
			r.unsupported(where, why)
		case key == "Host":
			host = fmt.Sprint(o[key])
		case key == "Port":
			port = fmt.Sprint(o[key])
		case key == "MetricsHost":
			metricsHost = fmt.Sprint(o[key])
		case key == "MetricsPort": // below, when the host is known
		case key == "Dlq":
			r.deadLetters(object(o[key]))
		case key == "Tls":
			r.tls(object(o[key]))
		default:
			r.unsupported(where, "")
		}
	}
	if port == "9092" {
		r.unsupported("Server.Port", "9092 is Kafka's; MoonMQ clients are served at moonmq.listen")
	} else {
		r.set("Server.Port", "moonmq.listen", net.JoinHostPort(host, port))
	}
	switch metricsPort, given := o["MetricsPort"]; {
	case given && metricsPort == nil:
		r.set("Server.MetricsPort", "perigee.http.listen", "off")
	case given:
		r.set("Server.MetricsPort", "perigee.http.listen", net.JoinHostPort(metricsHost, fmt.Sprint(metricsPort)))
	}
}

func (r *appReader) set(where, name, value string) {
	r.out.Settings = append(r.out.Settings, config.Raw{Name: name, Value: value, Origin: r.path + ": " + where})
}

func (r *appReader) number(where, name string, v any, scale float64) {
	if scale == 0 {
		r.set(where, name, fmt.Sprint(v))
		return
	}
	n, ok := v.(json.Number)
	f, err := n.Float64()
	if !ok || err != nil {
		r.refuse("%s is not a number", where)
		return
	}
	r.set(where, name, strconv.FormatInt(int64(f*scale), 10))
}

func (r *appReader) deadLetters(o map[string]any) {
	for _, key := range keys(o) {
		switch key {
		case "Suffix":
			r.number("Server.Dlq.Suffix", "moonmq.dlq.suffix", o[key], 0)
		case "MaxDeliveries":
			r.number("Server.Dlq.MaxDeliveries", "moonmq.max.deliveries", o[key], 1)
		default:
			r.unsupported("Server.Dlq."+key, "")
		}
	}
}

// tlsKeys maps keys of the Tls section.
var tlsKeys = map[string]string{
	"Cert": "moonmq.tls.cert.file", "CertFile": "moonmq.tls.cert.file",
	"Key": "moonmq.tls.key.file", "KeyFile": "moonmq.tls.key.file",
	"Ca": "moonmq.tls.ca.file", "CaFile": "moonmq.tls.ca.file",
	"Verify": "moonmq.tls.verify", "ChannelBinding": "moonmq.channel.binding",
}

func (r *appReader) tls(o map[string]any) {
	if o["Enabled"] == false {
		return
	}
	for _, key := range keys(o) {
		name, known := tlsKeys[key]
		switch {
		case known:
			r.set("Server.Tls."+key, name, fmt.Sprint(o[key]))
		case key != "Enabled":
			r.refuse("Server.Tls.%s is not a known key", key)
		}
	}
}

// auth reads users, bans and quotas.
func (r *appReader) auth(o map[string]any) {
	if name, _ := o["Username"].(string); name != "" && (text(o["PasswordHash"]) != "" || text(o["Password"]) != "") {
		single := map[string]any{"Username": name, "PasswordHash": o["PasswordHash"], "Password": o["Password"],
			"Superuser": o["Superuser"] != false, "Acls": o["Acls"], "Quota": o["Quota"]}
		r.user("Auth.Username", single)
	}
	for _, key := range keys(o) {
		where := "Auth." + key
		switch key {
		case "Username", "PasswordHash", "Password", "Superuser", "Acls", "Quota":
		case "MaxFailures":
			r.number(where, "moonmq.auth.max.failures", o[key], 1)
		case "FailureWindow":
			r.number(where, "moonmq.auth.failure.window.ms", o[key], 1000)
		case "BanDuration":
			r.number(where, "moonmq.auth.ban.duration.ms", o[key], 60_000)
		case "Users":
			r.users(o[key])
		case "Quotas":
			r.quotas(object(o[key]))
		default:
			r.refuse("%s is not a known key", where)
		}
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func (r *appReader) users(v any) {
	list, ok := v.([]any)
	if !ok {
		r.refuse("Auth.Users is not a list")
		return
	}
	for i, entry := range list {
		where := fmt.Sprintf("Auth.Users[%d]", i)
		o, ok := entry.(map[string]any)
		if !ok {
			r.refuse("%s is not an object", where)
			continue
		}
		r.user(where, o)
	}
}

func (r *appReader) user(where string, o map[string]any) {
	u := access.User{Name: text(o["Username"])}
	if u.Name == "" || strings.ContainsFunc(u.Name, func(c rune) bool { return c < ' ' }) {
		r.refuse("%s: Username is required, without control characters", where)
		return
	}
	if slices.ContainsFunc(r.out.Access.Users, func(other access.User) bool { return other.Name == u.Name }) {
		r.refuse("%s: user %q stands twice", where, u.Name)
	}
	for _, key := range keys(o) {
		switch key {
		case "Username", "PasswordHash", "Password":
		case "Superuser":
			u.Super = o[key] == true
		case "Acls":
			r.acls(where, u.Name, o[key])
		case "Quota":
			if o[key] != nil {
				r.out.Quotas.Users[u.Name] = r.limits(where+".Quota", o[key])
			}
		case "CertificateNames":
			u.Certificates = r.certificateNames(where, o[key])
		default:
			r.refuse("%s.%s is not a known key", where, key)
		}
	}
	u.Credential = r.credential(where, o)
	if u.Credential == nil && u.Certificates == nil {
		r.refuse("%s: user %q needs PasswordHash, Password or CertificateNames", where, u.Name)
	}
	r.out.Access.Users = append(r.out.Access.Users, u)
}

// plainIterations is what a plaintext password costs at start and at each login.
const plainIterations = 600_000

func (r *appReader) credential(where string, o map[string]any) *access.Credential {
	var c access.Credential
	var err error
	switch stored, plain := text(o["PasswordHash"]), text(o["Password"]); {
	case stored != "":
		c, err = access.ParseCredential(stored)
	case plain != "":
		r.out.Unsupported = append(r.out.Unsupported,
			fmt.Sprintf("%s: %s.Password is in the clear and is hashed at every start; store a PasswordHash", r.path, where))
		c, err = access.NewCredential(access.ScramSHA256, plain, plainIterations)
	default:
		return nil
	}
	if err != nil {
		r.refuse("%s: %v", where, err)
		return nil
	}
	return &c
}

func (r *appReader) certificateNames(where string, v any) []string {
	list, _ := v.([]any)
	var names []string
	for _, entry := range list {
		name := text(entry)
		if name == "" {
			break
		}
		for _, other := range r.out.Access.Users {
			if slices.Contains(other.Certificates, name) {
				r.refuse("%s: certificate name %q belongs to user %q already", where, name, other.Name)
			}
		}
		names = append(names, name)
	}
	if len(names) == 0 || len(names) != len(list) {
		r.refuse("%s.CertificateNames is not a list of names", where)
	}
	return names
}

// aclOperations are what a rule may say, by resource.
var aclOperations = map[string]struct {
	resource   access.ResourceType
	operations map[string]access.Operation
}{
	"topic": {access.Topic, map[string]access.Operation{"read": access.Read, "write": access.Write, "create": access.Create,
		"delete": access.Delete, "alter": access.Alter, "describe": access.Describe, "*": access.All, "all": access.All}},
	"group": {access.Group, map[string]access.Operation{"read": access.Read, "delete": access.Delete,
		"describe": access.Describe, "*": access.All, "all": access.All}},
	"cluster": {access.Cluster, map[string]access.Operation{"describe": access.Describe, "alter": access.Alter,
		"create": access.Create, "*": access.All, "all": access.All}},
}

// acls turns a user's rules into bindings.
func (r *appReader) acls(where, user string, v any) {
	if v == nil {
		return
	}
	list, ok := v.([]any)
	if !ok {
		r.refuse("%s.Acls is not a list", where)
		return
	}
	for i, entry := range list {
		r.acl(fmt.Sprintf("%s.Acls[%d]", where, i), user, object(entry))
	}
}

func (r *appReader) acl(where, user string, o map[string]any) {
	kind, known := aclOperations[text(o["Resource"])]
	operations, listed := o["Operations"].([]any)
	effect := text(o["Effect"])
	switch {
	case !known:
		r.refuse("%s: Resource is topic, group or cluster", where)
		return
	case !listed || len(operations) == 0:
		r.refuse("%s: Operations is a list", where)
		return
	case effect != "" && effect != "allow" && effect != "deny":
		r.refuse("%s: Effect is allow or deny", where)
		return
	}
	b := catalog.ACL{ResourceType: int8(kind.resource), ResourceName: text(o["Name"]), PatternType: access.PatternLiteral,
		Principal: "User:" + user, Host: "*", Permission: access.PermissionAllow}
	if effect == "deny" {
		b.Permission = access.PermissionDeny
	}
	switch prefix, found := strings.CutSuffix(b.ResourceName, "*"); {
	case kind.resource == access.Cluster:
		b.ResourceName = access.ClusterName
	case b.ResourceName == "":
		r.refuse("%s: Name is required", where)
		return
	case found && prefix != "":
		b.ResourceName, b.PatternType = prefix, access.PatternPrefixed
	}
	for _, name := range operations {
		op, ok := kind.operations[text(name)]
		if !ok {
			r.refuse("%s: %v is no operation of a %s", where, name, text(o["Resource"]))
			return
		}
		b.Operation = int8(op)
		r.out.Access.ACLs = append(r.out.Access.ACLs, b)
	}
}

// quotaKeys are the dimensions' names in the file.
var quotaKeys = map[string]Dimension{
	"RequestsPerSec": Requests, "ProduceRecordsPerSec": ProduceRecords, "ProduceBytesPerSec": ProduceBytes,
	"FetchRecordsPerSec": FetchRecords, "FetchBytesPerSec": FetchBytes,
}

// limits reads a quota block; 0 is no limit.
func (r *appReader) limits(where string, v any) Limits {
	out := Limits{}
	for _, key := range keys(object(v)) {
		n, isNumber := object(v)[key].(json.Number)
		rate, err := n.Float64()
		dim, known := quotaKeys[key]
		switch {
		case !known:
			r.refuse("%s.%s is not a known quota", where, key)
		case !isNumber || err != nil || rate < 0:
			r.refuse("%s.%s is not a number of 0 or more", where, key)
		case rate > 0:
			out[dim] = rate
		}
	}
	return out
}

func (r *appReader) quotas(o map[string]any) {
	for _, key := range keys(o) {
		switch key {
		case "Default":
			r.out.Quotas.Default = r.limits("Auth.Quotas.Default", o[key])
		case "Topics":
			topics := object(o[key])
			for _, name := range keys(topics) {
				r.out.Quotas.Topics[name] = r.limits("Auth.Quotas.Topics."+name, topics[name])
			}
		case "BurstSeconds":
			n, _ := o[key].(json.Number)
			if f, err := n.Float64(); err == nil && f > 0 {
				r.out.Quotas.BurstSeconds = f
				continue
			}
			r.refuse("Auth.Quotas.BurstSeconds is not a positive number")
		default:
			r.refuse("Auth.Quotas.%s is not a known key", key)
		}
	}
}
