package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lua runs a program with our client on its path; the ports of the broker are
// globals.
func lua(t *testing.T, b *Broker, program string) string {
	t.Helper()
	path, err := exec.LookPath("lua5.4")
	if err != nil {
		t.Skip("lua5.4 is not installed")
	}
	if exec.Command(path, "-e", `require("socket")`).Run() != nil {
		t.Skip("luasocket is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, port, _ := strings.Cut(b.MoonMQ, ":")
	c := exec.CommandContext(ctx, path, "-e", "PORT = "+port, "-")
	c.Stdin = strings.NewReader(program)
	c.Env = append(os.Environ(), "LUA_PATH="+filepath.Join("..", "compat", "lua", "?.lua")+";;")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("lua: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func wantLines(t *testing.T, got string, want ...string) {
	t.Helper()
	if got != strings.Join(want, "\n") {
		t.Errorf("the program printed\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// The owner's program about dead letters, as written but for the port and what
// process does.
func TestLuaDeadLetterExample(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	side := moon(t, b)
	createMoon(side, "orders", 3)
	side.produce("orders", "key-1", "poison")
	side.produce("orders", "key-2", "fine")
	wantLines(t, lua(t, b, `
local Client = require("src.client")
local c = Client.new({ port = PORT })
local function process(r) if r.value == "poison" then return false, "bad json" end return true end

for _ = 1, 4 do
local records = c:fetch("orders", "billing", 10)
for _, r in ipairs(records) do
    local ok, why = process(r)
    if not ok then
        local res = c:nack(r.topic, r.partition, r.offset, why)
        print(res.dead_lettered, res.attempts, res.dlq_topic)
    end
end
end
-- Consuming the DLQ, which is a new group and so a new connection:
local c = Client.new({ port = PORT })
for _, r in ipairs(c:fetch("orders.dlq", "dlq-inspector", 10)) do
    local env = Client.decode_dlq_value(r.value)
    print(env.topic, env.partition, env.offset, env.group, env.attempts, env.reason, env.value, env.timestamp > 0)
end`),
		"false\t1\t", "false\t2\t", "true\t3\torders.dlq",
		"orders\t2\t0\tbilling\t3\tbad json\tpoison\ttrue")
}

// The owner's programs about idempotent and transactional producers.
func TestLuaTransactionExamples(t *testing.T) {
	b := Start(t, "--moonmq-appsettings", appSettings(t, map[string]any{
		"Auth": map[string]any{"Users": []any{map[string]any{"Username": "admin", "PasswordHash": "@admin", "Superuser": true}}},
	}))
	b.NeedsOwnProcess()
	side := loginMoon(t, b, "admin", "admin")
	createMoon(side, "orders", 2)
	createMoon(side, "invoices", 1)
	wantLines(t, lua(t, b, `
local Client = require("src.client")
-- Open a connection AND ask the broker for a producer ID.
local c = Client.new{
    host       = "127.0.0.1",
    port       = PORT,
    username   = "admin",
    password   = "admin",
    idempotent = true,
}
-- produce() auto-uses the idempotent path when pid is set.
local ack = c:produce("orders", "key-1", "value-1")
-- For testing: send a specific seq (e.g. simulate a retry).
local replay = c:produce_at_seq("orders", "key-1", "value-1", 0)
print(ack.seq, replay.partition == ack.partition, replay.offset == ack.offset)

local p = assert(Client.new{ host = "127.0.0.1", port = PORT,
                             username = "admin", password = "admin",
                             producer_name = "billing-writer" })
assert(p:begin_transaction())
assert(p:produce("invoices", "order-42", "…"))
assert(p:send_offsets_to_transaction("billing", {
    { topic = "orders", partition = 2, offset = 43 },
}))
assert(p:commit_transaction())          -- or p:abort_transaction()

for _, o in ipairs(assert(p:describe_group("billing")).offsets) do print(o.topic, o.partition, o.offset) end
for _, x in ipairs(assert(p:list_offsets("invoices"))) do print(x.earliest, x.latest, x.lso) end

assert(p:begin_transaction())
assert(p:produce("invoices", "k", "aborted"))
assert(p:abort_transaction())
local r = assert(Client.new{ port = PORT, username = "admin", password = "admin", mechanism = "scram", isolation = "read_committed" })
for _, x in ipairs(assert(r:fetch("invoices", "reader"))) do print(x.key, x.value) end
print(Client.new{ port = PORT, username = "admin", password = "wrong" })`),
		"0\ttrue\ttrue", "orders\t2\t43", "0\t2\t2", "order-42\t…", "nil\tinvalid credentials\t4")
}

// The rest of the client's calls, over SCRAM.
func TestLuaClientCalls(t *testing.T) {
	b := Start(t)
	b.NeedsOwnProcess()
	wantLines(t, lua(t, b, `
local Client = require("src.client")
local c = assert(Client.new{ port = PORT, client_name = "test", client_version = "1" })
assert(c:create_topic("t", 2))
print(c:create_topic("t", 2))
assert(c:create_partitions("t", 3))
assert(c:alter_topic_config("t", { retention = 3600, cleanup_policy = "delete" }))
local d = assert(c:describe_topic("t"))
print(d.num_partitions, d.config.retention, d.config.cleanup_policy)
print(table.concat(assert(c:list_topics()), ","))
local batch = assert(c:produce_batch("t", { { key = "k1", value = "a" }, { key = "k1", value = "b" } }))
print(#batch.acks, batch.acks[2].offset - batch.acks[1].offset, batch.message)
assert(c:produce("t", "k1", "c", { { "trace", "7" } }))
local _, times = assert(c:list_offsets("t", 0))
print(#times, times[1].found, times[2].found or times[3].found)

local r = assert(Client.new{ port = PORT, headers = true, auto_commit = false })
local got = assert(r:fetch("t", "g1"))
print(#got, got[3].headers[1][1], got[3].headers[1][2], #got[1].headers)
print(r:describe_group("g1"))
assert(r:commit("t", got[1].partition, 2))
print(r:describe_group("g1").offsets[1].offset)

local s = assert(Client.new{ port = PORT })
assert(s:subscribe("t", "g2"))
for _ = 1, 3 do io.write(assert(s:next_record(10)).value, " ") end
assert(c:produce("t", "k1", "later"))
print(assert(s:next_record(10)).value)
print(s:next_record(0.2))

local m = assert(Client.new{ port = PORT })
local joined = assert(m:join_group("g3", { "t" }))
print(#joined.member_id, #joined.assignment.t)
assert(m:group_heartbeat())
for _, g in ipairs(assert(m:list_groups())) do if g.group_id == "g3" then print(g.state, g.member_count) end end
print(m:delete_group("g3"))
assert(m:leave_group())
assert(m:heartbeat())
assert(c:delete_topic("t"))
print(c:fetch("t", "g1"))`),
		"nil\ttopic 't' already exists\t7", "3\t3600\tdelete", "t", "2\t1\t", "3\ttrue\tfalse",
		"3\ttrace\t7\t0", "nil\tgroup 'g1' does not exist\t15", "2", "a b c later", "nil\ttimeout\tnil",
		"8\t3", "stable\t1", "nil\tgroup 'g3' still has 1 member(s)\t16", "nil\ttopic t does not exist\t5")
}

func TestLuaOverTLS(t *testing.T) {
	if exec.Command("lua5.4", "-e", `require("ssl")`).Run() != nil {
		t.Skip("luasec is not installed")
	}
	certificates := makeCertificates(t)
	b := Start(t, "--moonmq-appsettings", appSettings(t, map[string]any{
		"Server": map[string]any{"Tls": map[string]any{
			"CertFile": certificates.server.cert, "KeyFile": certificates.server.key, "CaFile": certificates.ca, "Verify": "peer",
		}},
		"Auth": map[string]any{"MaxFailures": 100, "Users": []any{
			map[string]any{"Username": "admin", "PasswordHash": "@admin", "Superuser": true},
			map[string]any{"Username": "ops", "CertificateNames": []any{"ops.example"}, "Superuser": true},
		}},
	}))
	b.NeedsOwnProcess()
	program := strings.NewReplacer("CA", certificates.ca, "CERT", certificates.client.cert, "KEY", certificates.client.key).Replace(`
local Client = require("src.client")
local function try(o) o.port, o.host = PORT, "localhost" local c, why = Client.new(o) print(c and c:heartbeat() or why) end
try{ username = "admin", password = "admin", mechanism = "scram", tls = { ca = "CA" } }
try{ mechanism = "external", tls = { ca = "CA", certificate = "CERT", key = "KEY" } }
try{ mechanism = "external", username = "admin", tls = { ca = "CA", certificate = "CERT", key = "KEY" } }
try{ mechanism = "external", tls = { ca = "CA" } }`)
	wantLines(t, lua(t, b, program), "true", "true", `the client certificate may not log in as "admin"`, "no client certificate was presented")
}
