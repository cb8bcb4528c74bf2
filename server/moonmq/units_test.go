package moonmq

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perigeemq/perigee/coordinator/group"
	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
	"github.com/perigeemq/perigee/storage/model"
)

// The original's tables of keys and of range assignments.
type vectors struct {
	Partitioner struct {
		Keys []struct {
			Key       string           `json:"key_hex"`
			Partition map[string]int32 `json:"partition"`
		} `json:"keys"`
	} `json:"partitioner"`
	Range struct {
		Cases []struct {
			Name       string                        `json:"name"`
			Members    map[string][]string           `json:"members"`
			Partitions map[string]int32              `json:"partitions"`
			Assignment map[string]map[string][]int32 `json:"assignment"`
		} `json:"cases"`
	} `json:"range_assignor"`
}

func loadVectors(t *testing.T) vectors {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "protocol", "moonmq", "testdata", "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPartitionVectors(t *testing.T) {
	keys := loadVectors(t).Partitioner.Keys
	if len(keys) == 0 {
		t.Fatal("no keys")
	}
	for _, k := range keys {
		key, err := hex.DecodeString(k.Key)
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range k.Partition {
			count, _ := strconv.Atoi(n)
			if got := partitionOf(key, int32(count)) + 1; got != want {
				t.Errorf("key %q of %s partitions: %d, want %d", key, n, got, want)
			}
		}
	}
}

func TestRangeVectors(t *testing.T) {
	for _, c := range loadVectors(t).Range.Cases {
		var members []group.Member
		for id, topics := range c.Members {
			members = append(members, group.Member{ID: id, Topics: topics})
		}
		got := group.AssignRange(members, func(topic string) int32 { return c.Partitions[topic] })
		want := map[string]map[string][]int32{}
		for member, topics := range c.Assignment {
			want[member] = map[string][]int32{}
			for topic, partitions := range topics {
				own := []int32{}
				for _, p := range partitions {
					own = append(own, p-1)
				}
				want[member][topic] = own
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", c.Name, diff)
		}
	}
}

// A choice lasts 16 records or 10 ms, then another partition is taken.
func TestStickyPartition(t *testing.T) {
	var s sticky
	topic, at := model.NewTopicID(), time.Unix(0, 0)
	last := s.choose(topic, 8, at)
	for i := 1; i < 64; i++ {
		next := s.choose(topic, 8, at)
		if (next != last) != (i%stickyRecords == 0) {
			t.Errorf("record %d went from %d to %d", i, last, next)
		}
		last = next
	}
	if next := s.choose(topic, 8, at.Add(stickyTime)); next == last {
		t.Error("the choice outlived its time")
	}
	if got := s.choose(topic, 1, at.Add(stickyTime)); got != 0 {
		t.Errorf("partition %d of a topic that has one", got)
	}
}

func TestNumbersAsLuaReadsThem(t *testing.T) {
	for text, want := range map[string]float64{
		"3600": 3600, " 42 ": 42, "1e3": 1000, "0x10": 16, "0x.8": 0.5, "0xA.8p1": 21, "-5": -5, "+5": 5, ".5": 0.5, "5.": 5, "1E+2": 100,
	} {
		if got, ok := parseNumber(text); !ok || got != want {
			t.Errorf("%q: %v %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", " ", "soon", "1_000", "inf", "nan", "0x", "1e", "--1", "1 2", "٣"} {
		if got, ok := parseNumber(text); ok {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestTopicNames(t *testing.T) {
	for name, want := range map[string]string{
		"orders": "", "a.b_C-9": "", strings.Repeat("x", 249): "", "__internal": "",
		"":                       "topic name must not be empty",
		strings.Repeat("x", 250): "topic name must be at most 249 characters",
		"-x":                     "topic name must not start with '-'",
		".":                      "topic name must not be '.' or '..'",
		"..":                     "topic name must not be '.' or '..'",
		"a b":                    "topic name may only contain letters, digits, '.', '_' and '-'",
		"ü":                      "topic name may only contain letters, digits, '.', '_' and '-'",
	} {
		got := ""
		if err := checkTopicName(name); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestQuotas(t *testing.T) {
	now := time.Unix(0, 0)
	q := newQuotas(QuotaOptions{
		Users:   map[string]Limits{"slow": {Requests: 1, FetchBytes: 10}, "free": {}},
		Topics:  map[string]Limits{"busy": {ProduceRecords: 5}},
		Default: Limits{Requests: 100},
	})
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for i, want := range []string{"", "", "user quota exceeded on requests_per_sec; retry in 1.00s"} {
		if got := text(q.take("slow", "t", now, cost{Requests, 1})); got != want {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
	now = now.Add(10 * time.Millisecond)
	if got, want := text(q.take("slow", "t", now, cost{Requests, 1})), "user quota exceeded on requests_per_sec; retry in 0.99s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// The topic's refusal takes nothing from the user.
	if got, want := text(q.take("other", "busy", now, cost{ProduceRecords, 10}, cost{Requests, 1})), ""; got != want {
		t.Errorf("as much as the bucket holds: %q", got)
	}
	before := q.users.buckets[bucketKey{"other", Requests}].tokens
	if got := text(q.take("other", "busy", now, cost{Requests, 1}, cost{ProduceRecords, 1})); !strings.HasPrefix(got, "topic quota exceeded on produce_records_per_sec") {
		t.Errorf("%q", got)
	}
	if after := q.users.buckets[bucketKey{"other", Requests}].tokens; after != before {
		t.Errorf("the user paid %v for a refused request", before-after)
	}
	// More than a bucket is charged as a full one; delivery may go into debt.
	q.spend("slow", "t", now, cost{FetchBytes, 1e9})
	q.spend("slow", "t", now, cost{FetchBytes, 1e9})
	if debt := q.debt("slow", "t", now, FetchRecords, FetchBytes); debt == nil || debt.Retry != 2*time.Second {
		t.Errorf("debt %v, want one bucket", debt)
	}
	if debt := q.debt("slow", "t", now.Add(3*time.Second), FetchBytes); debt != nil {
		t.Errorf("debt %v after it was paid", debt)
	}
	for range 500 {
		if err := q.take("free", "t", now, cost{Requests, 1}); err != nil {
			t.Fatalf("a user with a block of no limits has none: %v", err)
		}
	}
}

func writeAppSettings(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "appsettings.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAppSettings(t *testing.T) {
	path := writeAppSettings(t, `{
		"_note": "comment",
		"Server": {"Host": "10.0.0.1", "Port": 9300, "MaxFrameSize": 4096, "IdleDeadline": 1.5, "DataDir": "./d",
			"StorageBackend": "commitlog", "Colour": "red", "MetricsPort": 9091, "Dlq": {"Suffix": ".dead", "MaxDeliveries": 5},
			"Tls": {"CertFile": "c.pem", "KeyFile": "k.pem", "Verify": "peer", "CaFile": "ca.pem"}},
		"Auth": {"MaxFailures": 3, "BanDuration": 2, "Users": [
			{"Username": "root", "PasswordHash": "pbkdf2-sha256$1$00$0000000000000000000000000000000000000000000000000000000000000000", "Superuser": true},
			{"Username": "svc", "CertificateNames": ["svc.internal"], "Quota": {"RequestsPerSec": 7, "FetchBytesPerSec": 0},
			 "Acls": [{"Resource": "topic", "Name": "orders.*", "Operations": ["read", "write"]},
			          {"Resource": "topic", "Name": "orders.secret", "Operations": ["read"], "Effect": "deny"},
			          {"Resource": "cluster", "Operations": ["create"]}]}],
			"Quotas": {"Default": {"RequestsPerSec": 100}, "Topics": {"busy": {"ProduceRecordsPerSec": 5}}, "BurstSeconds": 3}},
		"Logging": {}
	}`)
	a, err := ReadAppSettings(path, "")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range a.Settings {
		got[s.Name] = s.Value
	}
	want := map[string]string{
		"moonmq.listen": "10.0.0.1:9300", "perigee.http.listen": "127.0.0.1:9091", "moonmq.max.frame.bytes": "4096",
		"moonmq.idle.deadline.ms": "1500", "log.dirs": "./d", "moonmq.dlq.suffix": ".dead", "moonmq.max.deliveries": "5",
		"moonmq.tls.cert.file": "c.pem", "moonmq.tls.key.file": "k.pem", "moonmq.tls.ca.file": "ca.pem", "moonmq.tls.verify": "peer",
		"moonmq.auth.max.failures": "3", "moonmq.auth.ban.duration.ms": "120000",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings: %s", diff)
	}
	if n := len(a.Unsupported); n != 3 { // StorageBackend, Colour, Logging
		t.Errorf("unsupported: %q", a.Unsupported)
	}
	if len(a.Access.Users) != 2 || !a.Access.Users[0].Super || a.Access.Users[1].Certificates[0] != "svc.internal" {
		t.Errorf("users %+v", a.Access.Users)
	}
	judge := access.NewAuthorizer(a.Access.ACLs, nil, false)
	for _, q := range []struct {
		op   access.Operation
		kind access.ResourceType
		name string
		want bool
	}{
		{access.Read, access.Topic, "orders.eu", true}, {access.Read, access.Topic, "orders.secret", false},
		{access.Write, access.Topic, "orders.secret", true}, {access.Delete, access.Topic, "orders.eu", false},
		{access.Create, access.Cluster, access.ClusterName, true}, {access.Read, access.Group, "g", false},
	} {
		if got := judge.Allowed(access.Question{Principal: "User:svc", Operation: q.op, Resource: q.kind, Name: q.name, Exact: true}); got != q.want {
			t.Errorf("%d on %s: %v", q.op, q.name, got)
		}
	}
	quotas := QuotaOptions{Users: map[string]Limits{"svc": {Requests: 7}}, Topics: map[string]Limits{"busy": {ProduceRecords: 5}},
		Default: Limits{Requests: 100}, BurstSeconds: 3}
	if diff := cmp.Diff(quotas, a.Quotas); diff != "" {
		t.Errorf("quotas: %s", diff)
	}
}

// MetricsPort counts beside Kafka's port too, and null switches HTTP off.
func TestAppSettingsMetricsPort(t *testing.T) {
	for value, want := range map[string]string{`9091`: "127.0.0.1:9091", `null`: "off"} {
		a, err := ReadAppSettings(writeAppSettings(t, `{"Server": {"Port": 9092, "MetricsPort": `+value+`}}`), "")
		if err != nil || len(a.Settings) != 1 || a.Settings[0].Name != "perigee.http.listen" || a.Settings[0].Value != want {
			t.Errorf("%s: %+v, %v", value, a, err)
		}
	}
}

// The file of the environment wins, object by object; its lists replace lists. A
// broken one is refused, a missing one is none.
func TestAppSettingsOfAnEnvironment(t *testing.T) {
	user := func(name string) string {
		return fmt.Sprintf(`{"Username": %q, "CertificateNames": [%q]}`, name, name)
	}
	path := writeAppSettings(t, fmt.Sprintf(`{"Server": {"MaxTopics": 1, "Dlq": {"Suffix": ".dead", "MaxDeliveries": 5}},
		"Auth": {"Users": [%s, %s]}}`, user("a"), user("b")))
	write := func(environment, text string) {
		if err := os.WriteFile(strings.TrimSuffix(path, "json")+environment+".json", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Development", `{"Server": {"MaxTopics": 2}}`)
	write("Production", fmt.Sprintf(`{"Server": {"MaxTopics": 3, "Dlq": {"MaxDeliveries": 1}}, "Auth": {"MaxFailures": 9, "Users": [%s]}}`, user("c")))
	write("Broken", `{`)
	for _, tt := range []struct{ environment, topics, deliveries, users string }{
		{"", "2", "5", "a b"}, {"Production", "3", "1", "c"}, {"Staging", "1", "5", "a b"},
	} {
		a, err := ReadAppSettings(path, tt.environment)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range a.Settings {
			got[s.Name] = s.Value
		}
		var users []string
		for _, u := range a.Access.Users {
			users = append(users, u.Name)
		}
		if got["moonmq.max.topics"] != tt.topics || got["moonmq.max.deliveries"] != tt.deliveries || got["moonmq.dlq.suffix"] != ".dead" ||
			strings.Join(users, " ") != tt.users {
			t.Errorf("%q: %v, users %v", tt.environment, got, users)
		}
	}
	for _, bad := range []string{"Broken", "../etc"} {
		if _, err := ReadAppSettings(path, bad); err == nil || !strings.Contains(err.Error(), "appsettings") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// What concerns security is right to the letter or refused, with the entry named.
func TestAppSettingsRefused(t *testing.T) {
	user := `{"Username": "u", "PasswordHash": "pbkdf2-sha256$1$00$0000000000000000000000000000000000000000000000000000000000000000"%s}`
	for _, tt := range []struct{ name, auth, want string }{
		{"not json", `{`, "read appsettings"},
		{"unknown key", `{"Auth": {"Userz": []}}`, "Auth.Userz"},
		{"no credential", `{"Auth": {"Users": [{"Username": "u"}]}}`, "CertificateNames"},
		{"bad hash", `{"Auth": {"Users": [{"Username": "u", "PasswordHash": "x"}]}}`, "Auth.Users[0]"},
		{"twice", fmt.Sprintf(`{"Auth": {"Users": [%s, %s]}}`, fmt.Sprintf(user, ""), fmt.Sprintf(user, "")), "stands twice"},
		{"bad resource", fmt.Sprintf(`{"Auth": {"Users": [%s]}}`, fmt.Sprintf(user, `, "Acls": [{"Resource": "queue", "Operations": ["read"]}]`)), "Resource"},
		{"bad operation", fmt.Sprintf(`{"Auth": {"Users": [%s]}}`, fmt.Sprintf(user, `, "Acls": [{"Resource": "group", "Name": "*", "Operations": ["write"]}]`)), "write"},
		{"bad effect", fmt.Sprintf(`{"Auth": {"Users": [%s]}}`, fmt.Sprintf(user, `, "Acls": [{"Resource": "group", "Name": "*", "Operations": ["read"], "Effect": "maybe"}]`)), "Effect"},
		{"bad quota", fmt.Sprintf(`{"Auth": {"Users": [%s]}}`, fmt.Sprintf(user, `, "Quota": {"RequestsPerSecond": 1}`)), "RequestsPerSecond"},
		{"shared certificate", `{"Auth": {"Users": [{"Username": "a", "CertificateNames": ["x"]}, {"Username": "b", "CertificateNames": ["x"]}]}}`, "belongs"},
		{"not a number", `{"Server": {"MaxTopics": "many"}}`, "Server.MaxTopics"},
	} {
		_, err := ReadAppSettings(writeAppSettings(t, tt.auth), "")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want something with %q", tt.name, err, tt.want)
		}
	}
}

// Every op of the protocol that clients send has a row, and no other.
func TestDispatchTableIsTheProtocol(t *testing.T) {
	for n := range 256 {
		op := wire.Op(n)
		_, err := wire.DecodeRequest(op, nil)
		_, served := table[op]
		if decodable := err != wire.ErrUnknownOp; served != decodable {
			t.Errorf("%s: served %v, decodable %v", op, served, decodable)
		}
	}
}
