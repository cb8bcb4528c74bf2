package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/perigeemq/perigee/coordinator"
	"github.com/perigeemq/perigee/coordinator/catalog"
	"github.com/perigeemq/perigee/storage"
	"github.com/perigeemq/perigee/storage/batch"
	"github.com/perigeemq/perigee/storage/vfs"
)

// world is the dead-letter routes over a coordinator in memory with the topic
// "orders", which holds three records.
type world struct {
	*testing.T
	*coordinator.Coordinator
	mux http.Handler
	log []string // what was counted
}

func newWorld(t *testing.T) *world {
	t.Helper()
	e, err := storage.Open(t.Context(), storage.Options{FS: vfs.NewMemory(), ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	c, err := coordinator.Open(t.Context(), e, coordinator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); e.Close(context.Background()) })
	w := &world{T: t, Coordinator: c}
	w.create("orders")
	w.append("orders", "alpha", "beta", "gamma")
	s := &Server{mux: http.NewServeMux()}
	routes := &DeadLetters{
		Coordinator: func() *coordinator.Coordinator { return w.Coordinator },
		Nacked:      func(topic string, dead bool) { w.log = append(w.log, fmt.Sprint("nacked ", topic, " ", dead)) },
		Redriven:    func(topic string, n int) { w.log = append(w.log, fmt.Sprint("redriven ", topic, " ", n)) },
	}
	routes.Register(s)
	w.mux = s.mux
	return w
}

func (w *world) create(topic string) {
	w.Helper()
	made, err := w.CreateTopics([]catalog.NewTopic{{Name: topic, Partitions: 1, ReplicationFactor: -1}}, false).Wait(w.T.Context())
	if err != nil || made[0].Err != nil {
		w.Fatal(err, made)
	}
}

// append stores records one batch each, the value being the key's upper case.
func (w *world) append(topic string, keys ...string) {
	w.Helper()
	t, _ := w.Catalog().Topic(topic)
	p, err := w.Partition(t, 0)
	if err != nil {
		w.Fatal(err)
	}
	for _, key := range keys {
		b := batch.NewBuilder(batch.BuilderOptions{})
		b.Add(batch.NewRecord{Timestamp: 1000, Key: []byte(key), Value: []byte(strings.ToUpper(key)),
			Headers: []batch.RecordHeader{{Key: "trace", Value: []byte("t-" + key)}, {Key: "raw", Value: []byte{0xff}}}})
		view, err := b.Build()
		if err != nil {
			w.Fatal(err)
		}
		pending, err := w.Produce(coordinator.Produce{Batches: []coordinator.ProduceBatch{{Partition: p, Batch: view}}})
		if err != nil {
			w.Fatal(err)
		}
		if err := pending.Wait(w.T.Context()); err != nil {
			w.Fatal(err)
		}
	}
}

// ask returns the status and the answer.
func (w *world) ask(method, path, body string, header ...string) (int, map[string]any) {
	w.Helper()
	r := httptest.NewRequestWithContext(w.T.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	w.mux.ServeHTTP(recorder, r)
	var answer map[string]any
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil && recorder.Code != http.StatusForbidden {
		w.Fatalf("%s %s: %d %s", method, path, recorder.Code, recorder.Body)
	}
	return recorder.Code, answer
}

func TestNackOverHTTP(t *testing.T) {
	w := newWorld(t)
	const path = "/v1/groups/g/nack"
	for _, tt := range []struct {
		name, body string
		status     int
		problem    string
	}{
		{"not JSON", `{`, 400, "read request: unexpected EOF"},
		{"nothing", ``, 400, "topic, partition and offset are needed"},
		{"no offset", `{"topic": "orders", "partition": 0}`, 400, "topic, partition and offset are needed"},
		{"misspelt", `{"topic": "orders", "ofset": 1}`, 400, `read request: json: unknown field "ofset"`},
		{"not a number", `{"topic": "orders", "offset": "x"}`, 400, "read request: x is not a number of 64 bits"},
		{"huge", `{"topic": "` + strings.Repeat("t", 64<<10) + `"}`, 400, "read request: http: request body too large"},
		{"no topic", `{"topic": "nowhere", "offset": 1}`, 404, "no partition nowhere-0"},
		{"no partition", `{"topic": "orders", "partition": 7, "offset": 1}`, 404, "no partition orders-7"},
		{"internal", `{"topic": "__consumer_offsets", "offset": 1}`, 404, "no partition __consumer_offsets-0"},
	} {
		if status, answer := w.ask("POST", path, tt.body); status != tt.status || answer["error"] != tt.problem {
			t.Errorf("%s: %d %v, want %d %s", tt.name, status, answer, tt.status, tt.problem)
		}
	}
	if status, _ := w.ask("POST", path, `{"topic": "orders", "offset": 3}`); status != 422 {
		t.Errorf("no such record: %d", status)
	}
	if status, _ := w.ask("POST", path, `{"topic": "orders", "offset": 1, "member": "m", "generation": 1}`); status != 409 {
		t.Errorf("a member of an empty group: %d", status)
	}
	if status, _ := w.ask("POST", path, `{"topic": "orders", "offset": 1}`, "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("a page from elsewhere: %d", status)
	}
	if len(w.log) != 0 {
		t.Errorf("refusals were counted: %q", w.log)
	}
	for attempt, want := range []map[string]any{
		{"dead_lettered": false, "attempts": 1.0, "next_offset": "1"},
		{"dead_lettered": false, "attempts": 2.0, "next_offset": "1"},
		{"dead_lettered": true, "attempts": 3.0, "next_offset": "2", "dlq_topic": "orders.dlq"},
	} {
		body := `{"topic": "orders", "partition": 0, "offset": "1", "reason": "bad"}`
		if status, answer := w.ask("POST", path, body); status != 200 || !reflect.DeepEqual(answer, want) {
			t.Errorf("attempt %d: %d %v, want %v", attempt+1, status, answer, want)
		}
	}
	if want := []string{"nacked orders false", "nacked orders false", "nacked orders true"}; !reflect.DeepEqual(w.log, want) {
		t.Errorf("counted %q, want %q", w.log, want)
	}
}

// kill gives a record up.
func (w *world) kill(offset int, reason string) {
	w.Helper()
	for range 3 {
		status, answer := w.ask("POST", "/v1/groups/g/nack", fmt.Sprintf(`{"topic": "orders", "offset": %d, "reason": %q}`, offset, reason))
		if status != 200 {
			w.Fatal(status, answer)
		}
	}
}

func TestDeadLettersOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.kill(0, "timeout")
	w.kill(1, "bad json")
	w.kill(2, "timeout")
	const path = "/v1/dlq/orders.dlq"

	for query, problem := range map[string]string{
		"?limit=1001": "limit is a number of 0 to 1000", "?offset=-1": "offset is a number of 0 to 4611686018427387904", "?partition=1": "partition is a number of 0 to 0",
	} {
		if status, answer := w.ask("GET", path+query, ""); status != 400 || answer["error"] != problem {
			t.Errorf("%s: %d %v, want %s", query, status, answer, problem)
		}
	}
	status, answer := w.ask("GET", path+"?partition=0&offset=1&limit=1", "")
	records, _ := answer["records"].([]any)
	if status != 200 || len(records) != 1 {
		t.Fatalf("listing: %d %v", status, answer)
	}
	one := records[0].(map[string]any)
	delete(one, "timestamp")
	if want := (map[string]any{
		"partition": 0.0, "offset": "1", "source_topic": "orders", "source_partition": 0.0, "source_offset": "1", "group": "g", "deliveries": 3.0,
		"reason": "bad json", "replays": 0.0, "key": map[string]any{"text": "beta"}, "value": map[string]any{"text": "BETA"},
		"headers": []any{map[string]any{"key": "trace", "value": map[string]any{"text": "t-beta"}}, map[string]any{"key": "raw", "value": map[string]any{"base64": "/w=="}}},
	}); !reflect.DeepEqual(one, want) {
		t.Errorf("record %v,\nwant %v", one, want)
	}

	for _, tt := range []struct{ body, problem string }{
		{`{"reason": "("}`, "error parsing regexp: missing closing ): `(`"},
		{`{"headers": {"a": "("}}`, "error parsing regexp: missing closing ): `(`"},
		{`{"max": -1}`, "max, rate and max_replays are not negative"},
	} {
		if status, answer := w.ask("POST", path+"/redrive", tt.body); status != 400 || answer["error"] != tt.problem {
			t.Errorf("%s: %d %v, want %s", tt.body, status, answer, tt.problem)
		}
	}
	if status, _ := w.ask("POST", "/v1/dlq/nowhere/redrive", `{}`); status != 404 {
		t.Errorf("no topic: %d", status)
	}

	// A plan, then what it says; then what is left, under another group.
	for _, step := range []struct {
		body  string
		fates map[string]any
	}{
		{`{"reason": "timeout"}`, map[string]any{"redriven": 2.0, "filtered": 1.0}},
		{`{"reason": "timeout", "execute": true}`, map[string]any{"redriven": 2.0, "filtered": 1.0}},
		{`{"reason": "timeout", "execute": true}`, map[string]any{}},
		{`{"headers": {"trace": "beta$"}, "execute": true}`, map[string]any{"redriven": 1.0, "filtered": 2.0}},
		{`{"headers": {"trace": "^beta"}, "execute": true}`, map[string]any{"filtered": 3.0}},
		{`{"since": "9999999999999"}`, map[string]any{"filtered": 3.0}},
		{`{"until": 1}`, map[string]any{"filtered": 3.0}},
		{`{}`, map[string]any{"redriven": 3.0}},
	} {
		status, answer := w.ask("POST", path+"/redrive", step.body)
		if status != 200 || !reflect.DeepEqual(answer["fates"], step.fates) {
			t.Errorf("%s: %d %v, want %v", step.body, status, answer, step.fates)
		}
	}
	topic, _ := w.Catalog().Topic("orders")
	p, err := w.Partition(topic, 0)
	if err != nil || p.Bounds().High != 6 {
		t.Errorf("orders ends at %d, %v, want 6", p.Bounds().High, err)
	}
}

func TestBeforeTheBrokerIsReady(t *testing.T) {
	s := &Server{mux: http.NewServeMux()}
	(&DeadLetters{Coordinator: func() *coordinator.Coordinator { return nil }}).Register(s)
	w := &world{T: t, mux: s.mux}
	for _, r := range [][2]string{{"POST", "/v1/groups/g/nack"}, {"GET", "/v1/dlq/t"}, {"POST", "/v1/dlq/t/redrive"}} {
		if status, answer := w.ask(r[0], r[1], "{}"); status != 503 || answer["error"] != "the broker is starting" {
			t.Errorf("%s %s: %d %v", r[0], r[1], status, answer)
		}
	}
}

// A reason that is too long is cut between two characters; the record is given back.
func TestALongReasonIsCut(t *testing.T) {
	equal := func(reason, want string) {
		t.Helper()
		if got := cutReason(reason); got != want {
			t.Errorf("%d bytes became %d, want %d", len(reason), len(got), len(want))
		}
	}
	full := strings.Repeat("r", 1024)
	equal("", "")
	equal(full, full)
	equal(full+"r", full)
	equal(full[:1023]+"ä", full[:1023])
	equal(full[:1022]+"ää", full[:1022]+"ä")
	w := newWorld(t)
	if status, answer := w.ask("POST", "/v1/groups/g/nack", `{"topic": "orders", "offset": 1, "reason": "`+full+full+`"}`); status != 200 {
		t.Errorf("%d %v", status, answer)
	}
}

// Over this machine's own address records are shown and moved for those who call it by
// its own name: a page of another name is not served, whatever it resolves to.
func TestForeignNamesAreNotServedOnLoopback(t *testing.T) {
	w := newWorld(t)
	ask := func(method, path, host, from string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"topic": "orders", "offset": 1}`))
		r.Host = host
		r.Header.Set("Origin", "http://"+host)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(from), Port: 9404}))
		recorder := httptest.NewRecorder()
		w.mux.ServeHTTP(recorder, r)
		return recorder.Code
	}
	for _, route := range [][2]string{{"POST", "/v1/groups/g/nack"}, {"GET", "/v1/dlq/orders"}, {"POST", "/v1/dlq/orders/redrive"}} {
		for _, tt := range []struct {
			host, at string
			foreign  bool
		}{
			{"127.0.0.1:9404", "127.0.0.1", false}, {"[::1]:9404", "::1", false}, {"[::1]", "::1", false}, {"localhost:9404", "::1", false},
			{"LocalHost", "127.0.0.1", false}, {"app.localhost:1", "127.0.0.1", false}, {"", "127.0.0.1", false},
			{"evil.example:9404", "127.0.0.1", true}, {"localhost.evil.example", "::1", true}, {"127.0.0.1.evil.example:9404", "127.0.0.1", true},
			{"perigee.internal:9404", "192.0.2.1", false}, // a listener for others has a name they resolve
		} {
			if got := ask(route[0], route[1], tt.host, tt.at); (got == http.StatusMisdirectedRequest) != tt.foreign {
				t.Errorf("%s at %s, host %q: %d", route, tt.at, tt.host, got)
			}
		}
	}
}
