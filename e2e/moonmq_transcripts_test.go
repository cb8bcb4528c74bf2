package e2e

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	wire "github.com/perigeemq/perigee/protocol/moonmq"
	"github.com/perigeemq/perigee/server/access"
)

// The transcripts are conversations with the original broker, byte for byte.
type transcripts struct {
	Configs map[string]map[string]any `json:"configs"`
	Cases   []transcript              `json:"cases"`
}

type transcript struct {
	Name   string `json:"name"`
	Config string `json:"config"`
	Steps  []step `json:"steps"`
}

type step struct {
	Conn   string         `json:"conn"`
	Event  string         `json:"event"`
	Send   string         `json:"send"`
	Recv   string         `json:"recv"`
	Correl string         `json:"correl"`
	Fields map[string]any `json:"fields"`
	Hex    string         `json:"hex"`
}

// preparation is what stood before a recording began, or happened beside it.
type preparation struct {
	topics  map[string]uint32
	records [][3]string // topic, key, value
	before  map[int]func(r *replay)
}

var preparations = map[string]preparation{
	"describe_and_alter_topic":                          {topics: map[string]uint32{"t-cfg": 2}},
	"create_partitions_edges":                           {topics: map[string]uint32{"t-grow": 2}},
	"produce_errors":                                    {topics: map[string]uint32{"t-prod": 1}},
	"produce_value_cap":                                 {topics: map[string]uint32{"t-cap": 1}},
	"produce_gzip_roundtrip":                            {topics: map[string]uint32{"t-gz": 1}},
	"produce_keyed_partitions":                          {topics: map[string]uint32{"t-part": 4}},
	"offsets_are_byte_positions_on_the_default_backend": {topics: map[string]uint32{"t-bytes": 1}},
	"idempotent_unnamed":                                {topics: map[string]uint32{"t-idem": 2, "t-idem2": 1}},
	"named_producer_fencing":                            {topics: map[string]uint32{"t-fence": 1}},
	"fetch_shapes":                                      {topics: map[string]uint32{"t-f": 1}, records: numbered("t-f", 3)},
	"fetch_commits_by_itself":                           {topics: map[string]uint32{"t-auto": 1}, records: numbered("t-auto", 3)},
	"fetch_reads_every_topic_of_the_connection": {topics: map[string]uint32{"t-m1": 1, "t-m2": 1},
		before: map[int]func(*replay){5: func(r *replay) { r.side().produce("t-m1", "k", "v1") }}},
	"fetch_errors": {topics: map[string]uint32{"t-fe": 1}},
	"subscribe_push": {topics: map[string]uint32{"t-push": 1}, records: numbered("t-push", 2),
		before: map[int]func(*replay){10: func(r *replay) { r.side().produce("t-push", "k", "v1") }}},
	"subscribe_commits_after_delivery": {topics: map[string]uint32{"t-pc": 1}, records: numbered("t-pc", 2),
		before: map[int]func(*replay){5: func(r *replay) { r.awaitCommit("g-pc", 2) }}},
	"commit_means_next_offset":      {topics: map[string]uint32{"t-next": 1}, records: numbered("t-next", 3)},
	"nack_until_dead_letter":        {topics: map[string]uint32{"t-nk": 2}, records: [][3]string{{"t-nk", "k1", "v1"}}},
	"nack_edges":                    {topics: map[string]uint32{"t-ne": 1}, records: numbered("t-ne", 3)},
	"dead_letter_default_backend":   {topics: map[string]uint32{"t-dl": 1}, records: numbered("t-dl", 2)},
	"nack_not_on_a_record_boundary": {topics: map[string]uint32{"t-nb": 1}, records: numbered("t-nb", 1)},
	"group_join_assign_leave":       {topics: map[string]uint32{"t-g": 3}},
	"group_delete_and_describe":     {topics: map[string]uint32{"t-gd": 1}, records: numbered("t-gd", 1)},
	"list_offsets":                  {topics: map[string]uint32{"t-lo": 2}, records: [][3]string{{"t-lo", "k1", "v"}, {"t-lo", "k1", "v"}}},
	"txn_state_errors": {before: map[int]func(*replay){
		9: func(r *replay) { r.conn("b").producer("state-errors") },
	}},
	"txn_abort_visibility": {topics: map[string]uint32{"t-ta": 1}},
	"txn_aborted_by_disconnect": {topics: map[string]uint32{"t-td": 1},
		before: map[int]func(*replay){6: func(r *replay) { r.awaitLatest("t-td", 2) }}},
	"acl_denials": {topics: map[string]uint32{"t-acl1": 1}},
	"group_member_reaped_after_30s": {topics: map[string]uint32{"t-reap": 1}, records: numbered("t-reap", 1),
		before: map[int]func(*replay){17: func(r *replay) { r.side().produce("t-reap", "k", "v1") }}},
}

func numbered(topic string, n int) [][3]string {
	var records [][3]string
	for i := range n {
		records = append(records, [3]string{topic, "k", fmt.Sprintf("v%d", i+1)})
	}
	return records
}

// logins are who a case's connections are, where that is not shown; password and
// name are the same.
var logins = map[string]string{"acl_denials": "tenant"}

// Every conversation the original broker had, this one has too, texts included.
func TestMoonMQTranscripts(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "compat", "corpus", "moonmq-transcripts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all transcripts
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(all.Configs)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := Start(t, "--moonmq-appsettings", appSettings(t, all.Configs[name]))
			b.NeedsOwnProcess()
			for _, c := range all.Cases {
				if c.Config == name {
					t.Run(c.Name, func(t *testing.T) {
						if c.Name == "group_member_reaped_after_30s" {
							if testing.Short() {
								t.Skip("waits 31 s for a member's session to end; -short")
							}
							t.Parallel()
						}
						broker := b
						if by := unhurried[c.Name]; by != nil {
							t.Parallel()
							broker = Start(t, "--moonmq-appsettings", appSettings(t, changed(all.Configs[name], by)))
						}
						replayTranscript(t, broker, c)
					})
				}
			}
		})
	}
}

// appSettings writes a configuration of the transcripts as a file; "@name" stands
// for a stored credential of the password name.
func appSettings(t *testing.T, config map[string]any) string {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`"@[a-z]+"`).ReplaceAllFunc(text, func(name []byte) []byte {
		c, err := access.NewCredential(access.ScramSHA256, string(name[2:len(name)-1]), 1000)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Appendf(nil, "%q", c)
	})
	path := filepath.Join(t.TempDir(), "appsettings.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// replay is one case being replayed.
type replay struct {
	t     *testing.T
	b     *Broker
	c     transcript
	conns map[string]*moonConn
	last  map[string]wire.CorrelationID // of the newest request of a connection
	pids  map[string]uint64             // producer ids of this run
	scram map[string]*scramClient
}

func replayTranscript(t *testing.T, b *Broker, c transcript) {
	r := &replay{t: t, b: b, c: c, conns: map[string]*moonConn{}, last: map[string]wire.CorrelationID{}, pids: map[string]uint64{}, scram: map[string]*scramClient{}}
	prep := preparations[c.Name]
	if prep.topics != nil {
		side := r.side()
		for topic, n := range prep.topics {
			side.must(&wire.CreateTopic{Name: topic, Partitions: n}, wire.OpOK)
		}
		for _, record := range prep.records {
			side.produce(record[0], record[1], record[2])
		}
	}
	for i, s := range c.Steps {
		if before := prep.before[i]; before != nil {
			before(r)
		}
		if t.Failed() {
			return
		}
		r.step(i, s)
	}
}

// side is a connection that the recording does not show.
func (r *replay) side() *moonConn {
	name := "admin"
	return loginMoon(r.t, r.b, name, name)
}

func (r *replay) awaitCommit(group string, offset uint64) {
	c := r.side()
	for until := time.Now().Add(answerLimit); time.Now().Before(until); {
		d, ok := c.call(&wire.DescribeGroup{Group: group}).(*wire.GroupDescription)
		if ok && len(d.Offsets) > 0 && d.Offsets[0].Offset == offset {
			return
		}
	}
	r.t.Fatalf("group %s has not committed %d", group, offset)
}

func (r *replay) awaitLatest(topic string, latest uint64) {
	c := r.side()
	for until := time.Now().Add(answerLimit); time.Now().Before(until); {
		if c.must(&wire.ListOffsets{Topic: topic}, wire.OpOffsets).(*wire.Offsets).Bounds[0].Latest == latest {
			return
		}
	}
	r.t.Fatalf("%s does not reach %d", topic, latest)
}

// conn returns a connection of the case; unless the case shows its HELLO, it is
// logged in already.
func (r *replay) conn(name string) *moonConn {
	if c := r.conns[name]; c != nil {
		return c
	}
	for _, s := range r.c.Steps {
		if s.Conn == name && (s.Send == "HELLO" || strings.Contains(r.c.Name, "before_hello") || strings.HasPrefix(r.c.Name, "frame_") || r.c.Name == "oversized_frame" || r.c.Name == "server_at_capacity") || r.c.Name == "ban_after_failures" {
			r.conns[name] = dialMoon(r.t, r.b)
			return r.conns[name]
		}
	}
	user := logins[r.c.Name]
	if user == "" {
		user = "admin"
	}
	r.conns[name] = loginMoon(r.t, r.b, user, user)
	return r.conns[name]
}

func (r *replay) step(i int, s step) {
	r.t.Helper()
	fail := func(format string, args ...any) {
		r.t.Helper()
		r.t.Errorf("step %d (%s %s%s%s): %s", i, s.Conn, s.Event, s.Send, s.Recv, fmt.Sprintf(format, args...))
	}
	c := r.conn(s.Conn)
	switch {
	case s.Event == "connect":
	case s.Event == "client closes":
		c.Close()
		delete(r.conns, s.Conn)
	case s.Event == "closed by server":
		if !c.ended() {
			fail("still open")
		}
	case strings.HasPrefix(s.Event, "nothing received"):
		if raw, err := c.tryReceive(300 * time.Millisecond); raw != nil || !os.IsTimeout(err) {
			fail("received %x, %v", raw, err)
		}
	case s.Event != "":
		r.special(s)
	case s.Send != "":
		r.send(c, s)
	default:
		raw, err := c.tryReceive(answerLimit)
		if err != nil {
			fail("%v", err)
			return
		}
		f, m := c.decode(raw, false)
		if id, ok := m.(*wire.ProducerID); ok {
			r.pids[s.Conn] = id.PID
		}
		if d, ok := differences[r.c.Name][i]; ok {
			if err := d.expect(f, m); err != nil {
				fail("%v (differs on purpose: %s)", err, d.why)
			}
			return
		}
		if err := r.check(s, f, m, raw); err != nil {
			fail("%v", err)
		}
	}
}

// special does what a recording describes in words.
func (r *replay) special(s step) {
	r.t.Helper()
	c := r.conn(s.Conn)
	switch {
	case strings.HasPrefix(s.Event, "in the transaction"):
		p := c.producer("abort-visibility")
		p.must(&wire.BeginTxn{}, wire.OpOK)
		p.put("t-ta", "k", "aborted")
		p.produce("t-ta", "k", "outside")
		p.must(&wire.TxnOffsetCommit{Group: "g-ta-in", Offsets: []wire.TxnOffset{{Topic: "t-ta", Partition: 1, Offset: 5}}}, wire.OpOK)
	case strings.HasPrefix(s.Event, "BEGIN_TXN and one record"):
		p := c.producer("aborted-by-disconnect")
		p.must(&wire.BeginTxn{}, wire.OpOK)
		p.put("t-td", "k", "v")
	case strings.HasPrefix(s.Event, "33 s pass"):
		for until := time.Now().Add(31 * time.Second); time.Now().Before(until); {
			c.must(&wire.HeartbeatReq{}, wire.OpHeartbeatResp)
			time.Sleep(3 * time.Second) // the session's 30 s are the wall clock's
		}
	default:
		r.t.Fatalf("unknown event %q", s.Event)
	}
}

// send replays a request, with this run's producer id in place of the recorded
// one.
func (r *replay) send(c *moonConn, s step) {
	r.t.Helper()
	raw := r.request(s)
	if len(raw) > wire.LengthSize+wire.HeaderSize {
		if wire.Op(raw[4]) == wire.OpProduceIdempotent && r.pids[s.Conn] != 0 {
			pid := r.pids[s.Conn]
			if strings.Contains(s.Send, "wrong pid") {
				pid += 1000
			}
			binary.BigEndian.PutUint64(raw[21:], pid)
		}
	}
	if len(raw) >= wire.LengthSize+wire.HeaderSize {
		id := r.last[s.Conn]
		copy(id[:], raw[5:])
		r.last[s.Conn] = id
	}
	if r.c.Name == "dead_letter_default_backend" && s.Send == "NACK" {
		binary.BigEndian.PutUint64(raw[len(raw)-5-8:], 1) // the second record, at byte 32 there
	}
	if _, err := c.Write(raw); err != nil {
		r.t.Fatal(err)
	}
}

// request is the recorded bytes; long ones are written short, and SCRAM's final
// message depends on the challenge.
func (r *replay) request(s step) []byte {
	r.t.Helper()
	if strings.HasPrefix(s.Send, "AUTH_SCRAM_FINAL c=biws") {
		id := r.last[s.Conn]
		id[15]++
		return wire.Append(nil, id, &wire.AuthScramFinal{Message: r.scram[s.Conn].final()})
	}
	text, long, shortened := strings.Cut(s.Hex, "...(")
	if !shortened {
		raw, err := hex.DecodeString(text)
		if err != nil {
			r.t.Fatal(err)
		}
		if wire.Op(raw[min(4, len(raw)-1)]) == wire.OpAuthScram && strings.HasPrefix(r.c.Name, "scram_") {
			r.scram[s.Conn] = newScramClient(raw)
		}
		return raw
	}
	var total int
	fmt.Sscanf(long, "%d", &total)
	raw, err := hex.DecodeString(text[:len(text)&^1])
	if err != nil {
		r.t.Fatal(err)
	}
	for len(raw) < total { // the rest repeats the last byte
		raw = append(raw, raw[len(raw)-1])
	}
	return r.endLong(raw, s)
}

// endLong mends the end of a shortened frame: a long key is followed by a value.
func (r *replay) endLong(raw []byte, _ step) []byte {
	const keyed = 0x6b
	if raw[len(raw)-1] == keyed {
		copy(raw[len(raw)-5:], []byte{0, 0, 0, 1, 'v'})
	}
	return raw
}

// check compares a frame with the recorded one.
func (r *replay) check(s step, f wire.Frame, m wire.Message, raw []byte) error {
	switch zero := f.ID == (wire.CorrelationID{}); {
	case s.Correl == "echo" && f.ID != r.last[s.Conn]:
		return fmt.Errorf("%s %+v with id %x, want the request's", f.Op, m, f.ID)
	case s.Correl == "zero" && !zero, s.Correl == "other" && zero:
		return fmt.Errorf("%s %+v with id %x, want %s", f.Op, m, f.ID, s.Correl)
	}
	if f.Op.String() != s.Recv {
		return fmt.Errorf("%s %+v, want %s %v", f.Op, m, s.Recv, s.Fields)
	}
	switch m := m.(type) {
	case *wire.Error:
		return checkText(m, s.Fields)
	case *wire.AuthChallenge:
		r.scram[s.Conn].challenge = m.Message
		return checkPattern(m.Message, `r=clientnonce0123456789abc.{24},s=[A-Za-z0-9+/]{22}==,i=1000`)
	case *wire.AuthOK:
		if want := r.scram[s.Conn]; want != nil {
			return checkPattern(m.Message, regexp.QuoteMeta(want.server()))
		}
	case *wire.GroupAssignment:
		if strings.HasPrefix(fmt.Sprint(s.Fields["member_id"]), "<") {
			return checkPattern(m.Member, `[0-9a-f]{8}`)
		}
	}
	if s.Hex == "" {
		return nil
	}
	return checkWild(raw, s.Hex)
}

// placeholders of error texts stand for numbers of a run.
var placeholders = regexp.MustCompile(`<pid>|<other>|NN`)

func checkText(e *wire.Error, fields map[string]any) error {
	pattern := regexp.QuoteMeta(fields["message"].(string))
	pattern = placeholders.ReplaceAllString(pattern, `\d+`)
	if err := checkPattern(e.Message, pattern); err != nil {
		return err
	}
	if float64(e.Code) != fields["code"] {
		return fmt.Errorf("code %d, want %v", e.Code, fields["code"])
	}
	return nil
}

func checkPattern(got, pattern string) error {
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(got) {
		return fmt.Errorf("%q does not match %s", got, pattern)
	}
	return nil
}

// checkWild compares bytes; "xx" stands for one that changes from run to run.
func checkWild(raw []byte, want string) error {
	got := hex.EncodeToString(raw)
	if len(got) != len(want) {
		return fmt.Errorf("%s, want %s", got, want)
	}
	for i := 0; i < len(want); i += 2 {
		if want[i] != 'x' && got[i:i+2] != want[i:i+2] {
			return fmt.Errorf("%s, want %s: byte %d", got, want, i/2)
		}
	}
	return nil
}
