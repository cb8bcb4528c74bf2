package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
)

// post sends JSON to the admin listener.
func post(t *testing.T, b *Broker, path string, body, into any) int {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post("http://"+b.HTTP+path, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatalf("%d %s: %v", r.StatusCode, raw, err)
		}
	}
	return r.StatusCode
}

type nackAnswer struct {
	Dead     bool   `json:"dead_lettered"`
	Attempts int    `json:"attempts"`
	DLQ      string `json:"dlq_topic"`
	Next     string `json:"next_offset"`
	Error    string `json:"error"`
}

// A Kafka consumer of any language gives records back over HTTP: a live group from
// a current member only, an idle one from anyone.
func TestNackOverHTTP(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	producer := kafkaClient(t, b, kgo.DefaultProduceTopic("orders"), kgo.AllowAutoTopicCreation())
	if err := producer.ProduceSync(t.Context(), kgo.StringRecord("fine"), kgo.StringRecord("poison")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	k := kafkaClient(t, b, kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if got := consume(t, k, 2); string(got[1].Value) != "poison" {
		t.Fatalf("record 1 is %q", got[1].Value)
	}
	member, generation := k.GroupMetadata()
	nack := func(member string, generation int32) (int, nackAnswer) {
		var a nackAnswer
		code := post(t, b, "/v1/groups/billing/nack", map[string]any{"topic": "orders", "partition": 0, "offset": "1", "reason": "bad json",
			"member": member, "generation": generation}, &a)
		return code, a
	}
	if code, a := nack("somebody", generation); code != http.StatusConflict {
		t.Errorf("a stranger: %d %+v", code, a)
	}
	if code, a := nack(member, generation-1); code != http.StatusConflict {
		t.Errorf("an old generation: %d %+v", code, a)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		if code, a := nack(member, generation); code != 200 || a.Dead || a.Attempts != attempt || a.Next != "1" {
			t.Errorf("attempt %d: %d %+v", attempt, code, a)
		}
		// A consumer seeks to next_offset and reads the record again.
		k.SetOffsets(map[string]map[int32]kgo.EpochOffset{"orders": {0: {Epoch: -1, Offset: 1}}})
		if got := consume(t, k, 1); string(got[0].Value) != "poison" {
			t.Errorf("attempt %d: %q after the seek", attempt, got[0].Value)
		}
	}
	k.LeaveGroup()
	var a nackAnswer
	code := post(t, b, "/v1/groups/billing/nack", map[string]any{"topic": "orders", "partition": 0, "offset": 1, "reason": "bad json"}, &a)
	if code != 200 || !a.Dead || a.DLQ != "orders.dlq" || a.Next != "2" {
		t.Errorf("the idle group: %d %+v", code, a)
	}
	for _, tt := range []struct {
		body map[string]any
		want int
	}{
		{map[string]any{"topic": "orders", "partition": 0}, 400},
		{map[string]any{"topic": "orders", "offset": 1, "colour": "red"}, 400},
		{map[string]any{"topic": "nope", "offset": 1}, 404},
		{map[string]any{"topic": "orders", "partition": 9, "offset": 1}, 404},
		{map[string]any{"topic": "orders", "offset": 99}, 422},
	} {
		if code := post(t, b, "/v1/groups/billing/nack", tt.body, &a); code != tt.want || a.Error == "" {
			t.Errorf("%v: %d %+v, want %d", tt.body, code, a, tt.want)
		}
	}
	r, err := http.Get("http://" + b.HTTP + "/v1/dlq/orders.dlq?limit=5")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	for _, want := range []string{`"offset":"0"`, `"source_topic":"orders"`, `"source_offset":"1"`, `"reason":"bad json"`, `"text":"poison"`, `"group":"billing"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the listing has no %s: %s", want, text)
		}
	}
}

// deadLetters makes a dead-letter topic with one record of each reason.
func deadLetters(t *testing.T, b *Broker, reasons ...string) {
	t.Helper()
	c := moon(t, b)
	createMoon(c, "orders", 2)
	for i, reason := range reasons {
		key := []string{"k1", "k2"}[i%2] // partitions 2 and 1
		ack := c.produce("orders", key, fmt.Sprintf("value-%d", i))
		c.fetch("orders", "billing", 0)
		for range 3 {
			c.must(&wire.Nack{Topic: "orders", Partition: ack.Partition, Offset: ack.Offset, Reason: reason}, wire.OpNackAck)
		}
	}
}

func TestDLQCommands(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	deadLetters(t, b, "bad json", "timeout", "timeout", "bad json", "timeout")
	has := func(got string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(got, w) {
				t.Errorf("no %q in\n%s", w, got)
			}
		}
	}
	has(b.CLI("", "dlq", "list"), "orders.dlq", "5")
	has(b.CLI("", "dlq", "peek", "orders.dlq", "-n", "1"), "orders", "billing", "timeout", "k2", "value-1")
	has(b.CLI("", "dlq", "peek", "orders.dlq", "-F", "value~-3$", "--format", "json"), `"value": "value-3"`, `"source": "orders"`)
	has(b.CLI("", "dlq", "stats", "orders.dlq"), "3        timeout", "2        bad_json")

	if out := b.CLI("", "dlq", "redrive", "orders.dlq"); !strings.Contains(out, "would be redriven") || !strings.Contains(out, "nothing was sent") {
		t.Errorf("dry run:\n%s", out)
	}
	// What is too young today is not passed by.
	has(b.CLI("", "dlq", "redrive", "orders.dlq", "--until", "-1h", "--group", "later", "--execute"), "0        redriven")
	has(b.CLI("", "dlq", "redrive", "orders.dlq", "--group", "later"), "5        would be redriven")
	end := func() int64 {
		t.Helper()
		ends, err := kadm.NewClient(kafkaClient(t, b)).ListEndOffsets(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
		return sum
	}
	if got := end(); got != 5 {
		t.Fatalf("%d records after a dry run", got)
	}
	has(b.CLI("", "dlq", "redrive", "orders.dlq", "--reason", "json", "--execute"), "2        redriven", "3        filtered")
	has(b.CLI("", "dlq", "redrive", "orders.dlq", "--reason", "json", "--execute"), "0        redriven")
	has(b.CLI("", "dlq", "redrive", "orders.dlq", "--max", "1", "--execute"), "1        redriven")
	has(b.CLI("", "dlq", "redrive", "orders.dlq", "--execute", "--rate", "1000"), "4        redriven")
	has(b.CLI("", "dlq", "redrive", "orders.dlq", "--execute"), "0        redriven")
	if got := end(); got != 5+2+5 {
		t.Errorf("%d records after the redrives", got)
	}
	// What came back has its own headers and the count of its replays, in the partition it came from.
	k := kafkaClient(t, b, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	back := 0
	for _, r := range consume(t, k, 12) {
		if len(r.Headers) == 0 {
			continue
		}
		back++
		if len(r.Headers) != 1 || r.Headers[0].Key != "__perigee.dlq.replays" || string(r.Headers[0].Value) != "1" {
			t.Errorf("headers %v", r.Headers)
		}
		if want := map[string]int32{"k1": 1, "k2": 0}[string(r.Key)]; r.Partition != want {
			t.Errorf("%s came back to partition %d, want %d", r.Key, r.Partition, want)
		}
	}
	if back != 7 {
		t.Errorf("%d records came back", back)
	}
	if out, err := b.TryCLI("", "dlq", "redrive", "orders.dlq", "--to", "orders.dlq", "--group", "other", "--execute"); err != nil || !strings.Contains(out, "would loop") {
		t.Errorf("a loop: %v\n%s", err, out)
	}
	if out, err := b.TryCLI("", "dlq", "purge", "orders.dlq"); err == nil {
		t.Errorf("purged without being sure:\n%s", out)
	}
	b.CLI("", "dlq", "purge", "orders.dlq", "--yes")
	has(b.CLI("", "dlq", "list", "--format", "json"), `"records": 0`)
}

// Records that Spring gave up go back as well; ones that say nothing are left.
func TestRedriveOfForeignDeadLetters(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	c := moon(t, b)
	createMoon(c, "orders", 3)
	createMoon(c, "orders.DLT", 3)
	k := kafkaClient(t, b, kgo.DefaultProduceTopic("orders.DLT"))
	err := k.ProduceSync(t.Context(), &kgo.Record{Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{
		{Key: "trace", Value: []byte("7")},
		{Key: "kafka_dlt-original-topic", Value: []byte("orders")},
		{Key: "kafka_dlt-original-partition", Value: []byte{0, 0, 0, 2}},
		{Key: "kafka_dlt-exception-message", Value: []byte("boom")},
	}}, kgo.StringRecord("stray")).FirstErr()
	if err != nil {
		t.Fatal(err)
	}
	out := b.CLI("", "dlq", "redrive", "orders.DLT", "--execute")
	if !strings.Contains(out, "1        redriven") || !strings.Contains(out, "1        no origin") || !strings.Contains(out, "boom") {
		t.Errorf("the report:\n%s", out)
	}
	r := consume(t, kafkaClient(t, b, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 1)[0]
	if r.Partition != 2 || len(r.Headers) != 2 || r.Headers[0].Key != "trace" {
		t.Errorf("came back as %+v", r)
	}
}

func TestRedriveOverHTTP(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	deadLetters(t, b, "bad json", "timeout", "timeout")
	var report struct {
		Fates    map[string]int `json:"fates"`
		Reasons  map[string]int `json:"reasons"`
		Executed bool           `json:"executed"`
		Error    string         `json:"error"`
	}
	if code := post(t, b, "/v1/dlq/orders.dlq/redrive", map[string]any{}, &report); code != 200 || report.Executed || report.Reasons["timeout"] != 2 {
		t.Errorf("dry run: %d %+v", code, report)
	}
	report.Fates = nil
	if code := post(t, b, "/v1/dlq/orders.dlq/redrive", map[string]any{"execute": true, "max": 2}, &report); code != 200 || report.Fates["redriven"] != 2 {
		t.Errorf("first: %d %+v", code, report)
	}
	report.Fates = nil
	if code := post(t, b, "/v1/dlq/orders.dlq/redrive", map[string]any{"execute": true}, &report); code != 200 || report.Fates["redriven"] != 1 {
		t.Errorf("second: %d %+v", code, report)
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	k := kafkaClient(t, b, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for n := 0; n < 6; {
		f := k.PollFetches(ctx)
		if f.Err() != nil {
			t.Fatalf("%d records: %v", n, f.Err())
		}
		n += f.NumRecords()
	}
	if code := post(t, b, "/v1/dlq/nope/redrive", map[string]any{}, &report); code != 404 {
		t.Errorf("no topic: %d", code)
	}
	if code := post(t, b, "/v1/dlq/orders.dlq/redrive", map[string]any{"reason": "("}, &report); code != 400 {
		t.Errorf("bad pattern: %d", code)
	}
	// The counters of all that are at /metrics, under MoonMQ's names.
	r, err := http.Get("http://" + b.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	for _, want := range []string{`moonmq_nack_total{topic="orders"} 9`, `moonmq_dlq_records_total{topic="orders"} 3`,
		`moonmq_dlq_redriven_total{topic="orders.dlq"} 3`, `moonmq_frames_received_total{op="0x16"} 9`, `moonmq_connections_open `} {
		if !strings.Contains(string(text), want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

// Users and rules made from the command line hold on the MoonMQ listener at once:
// there is one store.
func TestUsersAndRulesOfTheCommandLine(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	createMoon(moon(t, b), "orders", 1)
	b.CLI("alice's\n", "user", "create", "alice")
	b.CLI("bob's\n", "user", "create", "bob", "--mechanism", "SCRAM-SHA-512")
	if out := b.CLI("", "user", "list"); !strings.Contains(out, "alice  SCRAM-SHA-256  16384") || !strings.Contains(out, "bob    SCRAM-SHA-512  16384") {
		t.Errorf("users:\n%s", out)
	}
	for _, tt := range []struct {
		user, password string
		want           wire.Op
	}{{"alice", "alice's", wire.OpAuthOK}, {"bob", "bob's", wire.OpAuthOK}, {"alice", "bob's", wire.OpError}, {"carol", "", wire.OpError}} {
		c := dialMoon(t, b)
		c.must(&wire.Hello{Version: 1}, wire.OpWelcome)
		c.must(&wire.Auth{Username: tt.user, Password: tt.password}, tt.want)
	}
	// Nobody may do anything without a rule, and a broker with users is not open.
	c := loginMoon(t, b, "alice", "alice's")
	put := &wire.Produce{Topic: "orders", KeyValue: wire.KeyValue{Value: []byte("v")}}
	c.refused(put, wire.NotAuthorized)
	b.CLI("", "acl", "create", "--allow", "alice", "-o", "write", "-o", "read", "-t", "ord", "--pattern", "prefixed")
	c.must(put, wire.OpProduceAck)
	c.refused(&wire.Fetch{Topic: "orders", Group: "g", Trailers: 2}, wire.NotAuthorized)
	b.CLI("", "acl", "create", "--allow", "alice", "-o", "read", "-g", "*")
	b.CLI("", "acl", "create", "--deny", "alice", "-o", "write", "-t", "orders")
	c.must(&wire.Fetch{Topic: "orders", Group: "g", Trailers: 2}, wire.OpOK)
	c.refused(put, wire.NotAuthorized)
	if out := b.CLI("", "acl", "list", "-t", "orders"); !strings.Contains(out, "DENY") || strings.Contains(out, "ALLOW") {
		t.Errorf("rules of the topic:\n%s", out)
	}
	b.CLI("", "acl", "delete", "--deny", "alice", "-t", "orders", "--yes")
	c.must(put, wire.OpProduceAck)
	b.Kill()
	b.Restart()
	c = loginMoon(t, b, "alice", "alice's")
	c.must(put, wire.OpProduceAck)
	b.CLI("", "user", "delete", "alice")
	gone := dialMoon(t, b)
	gone.must(&wire.Hello{Version: 1}, wire.OpWelcome)
	gone.refused(&wire.Auth{Username: "alice", Password: "alice's"}, wire.AuthFailed)
}

// MoonMQ's names of health, statistics and the state of the broker.
func TestMoonMQObservability(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "t", 1)
	p := moon(t, b).producer("writer")
	p.must(&wire.BeginTxn{}, wire.OpOK)
	p.put("t", "k", "v")
	for path, wants := range map[string][]string{
		"/health": {`"ready"`},
		"/stats":  {`"moonmq_connections_open":2`, `"moonmq_txn_begun_total":1`},
		"/metrics": {"moonmq_build_info{", "moonmq_txn_open 1", "moonmq_partition_lso_lag{partition=\"0\",topic=\"t\"} 1", "moonmq_recovery_progress_ratio 1",
			"moonmq_topic_count ", "moonmq_disk_free_bytes ", "moonmq_log_dir_offline 0", "moonmq_partition_log_bytes{", "moonmq_producers_expired_total 0",
			"moonmq_txn_oldest_seconds ", "moonmq_dispatch_duration_seconds_count{op=\"0x13\"} 1", "moonmq_frames_sent_total ", "moonmq_bytes_sent_total ",
			"moonmq_send_duration_seconds_count ", "moonmq_connections_refused_fd_total 0", "moonmq_tls_handshakes_total 0"},
	} {
		text := httpText(t, b, path)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %s", path, want)
			}
		}
	}
}

// httpText is what the broker's HTTP side answers.
func httpText(t *testing.T, b *Broker, path string) string {
	t.Helper()
	r, err := http.Get("http://" + b.HTTP + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%s: %d %s %v", path, r.StatusCode, text, err)
	}
	return string(text)
}
