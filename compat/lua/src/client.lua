-- A MoonMQ client. Every call returns a value, or nil, the broker's text and
-- the error code (nil when the connection itself failed).
local socket = require("socket")
local wire = require("src.wire")
local scram = require("src.scram")
local Connection = require("src.connection")

local op = wire.op

local Client = {}
Client.__index = Client

local CODECS = { none = 0, gzip = 1, snappy = 2 }

-- FETCH flags; the last two are Perigee's.
local BATCHED, NO_COMMIT, HEADERS = 1, 2, 4

-- new connects and logs in. Options, all optional:
--   host, port          127.0.0.1, 9092
--   username, password  none: no login is attempted
--   mechanism           "plain" (default), "scram", "external"
--   client_name, client_version
--   idempotent          ask for a producer id
--   producer_name       ask for a durable one, which may run transactions
--   isolation           "read_committed" or "read_uncommitted"
--   codec               "none", "gzip", "snappy": how values are to be stored
--   timeout             seconds to wait for a reply, 30
--   headers             fetch record headers (Perigee)
--   auto_commit         false: fetch does not commit (Perigee)
--   tls                 { ca =, certificate =, key =, server_name = }
--   on_record           called with every pushed record
function Client.new(options)
    local conn, err = Connection.open(options or {})
    if not conn then return nil, err end
    local self = setmetatable({ conn = conn, options = options or {}, next_seq = {} }, Client)
    self.isolation = self.options.isolation == "read_committed" and 1 or 0
    self.codec = CODECS[self.options.codec or "none"]
    local ok, why, code = self:handshake()
    if not ok then
        conn:close()
        return nil, why, code
    end
    return self
end

function Client:handshake()
    local o = self.options
    local ok, err, code = self.conn:call(op.HELLO, string.pack(">I4", wire.VERSION), op.WELCOME)
    if ok and o.client_name then
        self.conn:call(op.IDENTIFY_CLIENT, string.pack(">s4s4", o.client_name, o.client_version or ""), op.IDENTIFY_ACK)
    end
    if ok and (o.username or o.mechanism == "external") then
        ok, err, code = self:login()
    end
    if ok and (o.idempotent or o.producer_name) then
        ok, err, code = self:init_producer(o.producer_name)
    end
    return ok, err, code
end

function Client:login()
    local o = self.options
    if o.mechanism == "external" then
        return self.conn:call(op.AUTH_SCRAM, string.pack(">s4s4", "EXTERNAL", o.username or ""), op.AUTH_OK)
    end
    if o.mechanism ~= "scram" then
        return self.conn:call(op.AUTH, string.pack(">s4s4", o.username, o.password or ""), op.AUTH_OK)
    end
    local first, respond = scram.start(o.username, o.password or "", self.conn:certificate_digest())
    local challenge, err, code = self.conn:call(op.AUTH_SCRAM,
        string.pack(">s4s4", "SCRAM-SHA-256", first), op.AUTH_CHALLENGE, function(c) return c:str() end)
    if not challenge then return nil, err, code end
    local final, expected = respond(challenge)
    if not final then return nil, expected end
    local signature
    signature, err, code = self.conn:call(op.AUTH_SCRAM_FINAL, string.pack(">s4", final), op.AUTH_OK,
        function(c) return c:str() end)
    if not signature then return nil, err, code end
    if signature ~= expected then return nil, "server signature does not match" end
    return true
end

-- init_producer starts a producer session; numbers begin at 0 again.
function Client:init_producer(name)
    local id, err, code = self.conn:call(op.INIT_PRODUCER_ID, string.pack(">s4", name or ""), op.PRODUCER_ID,
        function(c) return { pid = c:u64(), epoch = c:u16() } end)
    if not id then return nil, err, code end
    self.pid, self.epoch, self.next_seq = id.pid, id.epoch, {}
    return id
end

function Client:close() self.conn:close() end

-- Producing. With a producer id every produce is idempotent.

function Client:produce(topic, key, value, headers)
    if self.pid then
        return self:produce_at_seq(topic, key, value, self.next_seq[topic] or 0, headers)
    end
    local payload = wire.produce(self.codec, topic, key or "", value)
    if headers then payload = payload .. wire.headers(headers) end
    return self.conn:call(op.PRODUCE, payload, op.PRODUCE_ACK, wire.ack)
end

-- produce_at_seq sends a given sequence number, as a retry would. A number is
-- used up only by an ack.
function Client:produce_at_seq(topic, key, value, seq, headers)
    if not self.pid then return nil, "no producer id" end
    local payload = wire.produce_idempotent(self.pid, seq, self.epoch, self.codec, topic, key or "", value)
    if headers then payload = payload .. wire.headers(headers) end
    local ack, err, code = self.conn:call(op.PRODUCE_IDEMPOTENT, payload, op.PRODUCE_ACK, wire.ack)
    if not ack then return nil, err, code end
    ack.seq = seq
    self.next_seq[topic] = math.max(self.next_seq[topic] or 0, seq + 1)
    return ack
end

-- produce_batch sends a list of {key=, value=}. The result has as many acks as
-- records were written, and message when that is not all.
function Client:produce_batch(topic, records)
    local base = self.next_seq[topic] or 0
    local producer = self.pid and { pid = self.pid, base_seq = base, epoch = self.epoch } or nil
    local result, err, code = self.conn:call(op.PRODUCE_BATCH,
        wire.produce_batch(self.codec, topic, records, producer), op.PRODUCE_BATCH_ACK, wire.batch_ack)
    if not result then return nil, err, code end
    if producer then self.next_seq[topic] = base + #result.acks end
    return result
end

-- Transactions, for a client with a producer_name.

function Client:begin_transaction()
    return self.conn:call(op.BEGIN_TXN, "", op.OK)
end

function Client:commit_transaction()
    return self.conn:call(op.END_TXN, "\1", op.OK)
end

function Client:abort_transaction()
    return self.conn:call(op.END_TXN, "\0", op.OK)
end

-- send_offsets_to_transaction takes {{topic=, partition=, offset=}, ...}, each
-- offset the next to read.
function Client:send_offsets_to_transaction(group, offsets)
    return self.conn:call(op.TXN_OFFSET_COMMIT, wire.txn_offsets(group, offsets), op.OK)
end

-- Consuming. A connection reads with one group, either by fetch or by subscribe.

function Client:fetch_flags()
    local flags = BATCHED
    if self.options.auto_commit == false then flags = flags | NO_COMMIT end
    if self.options.headers then flags = flags | HEADERS end
    return flags
end

-- fetch returns what there is now, from every topic this client has named.
function Client:fetch(topic, group, max_records)
    local got, payload, id = self.conn:request(op.FETCH,
        wire.fetch(topic, group, max_records or 100, self.isolation, self:fetch_flags()))
    if not got then return nil, payload, id end
    local read = self.options.headers and wire.record_with_headers or wire.record
    local records = {}
    while got ~= op.OK do
        local ok, why = pcall(self.collect, got, payload, read, records)
        if not ok then return nil, "decode record: " .. tostring(why) end
        local code
        got, payload, code = self.conn:next_reply(id, socket.gettime() + self.conn.timeout)
        if not got then return nil, payload, code end
    end
    return records
end

-- collect adds the records of one reply frame to records.
function Client.collect(opcode, payload, read, records)
    local c = wire.cursor(payload)
    if opcode == op.RECORD then
        records[#records + 1] = read(c)
    elseif opcode == op.RECORD_BATCH then
        for _, r in ipairs(c:list(read)) do records[#records + 1] = r end
    else
        error(string.format("unexpected reply 0x%02X", opcode), 0)
    end
end

function Client:subscribe(topic, group)
    return self.conn:call(op.SUBSCRIBE, string.pack(">s4s4B", topic, group, self.isolation), op.OK)
end

-- next_record waits for a pushed record, timeout seconds at most.
function Client:next_record(timeout)
    return self.conn:next_push(timeout or self.conn.timeout)
end

-- commit stores the next offset to read.
function Client:commit(topic, partition, offset)
    return self.conn:call(op.COMMIT, string.pack(">s4I4i8", topic, partition, offset), op.OK)
end

-- nack gives the record's own offset back: it is delivered again, or ends in the
-- dead-letter topic.
function Client:nack(topic, partition, offset, reason)
    return self.conn:call(op.NACK, string.pack(">s4I4i8s4", topic, partition, offset, tostring(reason or "")),
        op.NACK_ACK, wire.nack_ack)
end

-- decode_dlq_value opens the envelope of a dead record's value.
function Client.decode_dlq_value(value)
    local ok, result = pcall(wire.envelope, value)
    if not ok then return nil, result end
    return result
end

-- list_offsets returns the bounds per partition, and with a timestamp (ms) also
-- the first offset at or after it.
function Client:list_offsets(topic, timestamp)
    local payload = string.pack(">s4", topic)
    if timestamp then payload = payload .. string.pack(">Bi8", 1, timestamp) end
    local result, err, code = self.conn:call(op.LIST_OFFSETS, payload, op.OFFSETS, wire.offsets)
    if not result then return nil, err, code end
    return result.entries, result.for_times
end

-- Groups. join_group returns member_id and assignment[topic] = {partitions}.

function Client:join_group(group, topics, member)
    local result, err, code = self.conn:call(op.JOIN_GROUP, wire.join(group, member or "", topics),
        op.GROUP_ASSIGNMENT, wire.assignment)
    if not result then return nil, err, code end
    self.group, self.member = group, result.member_id
    return result
end

function Client:leave_group()
    return self.conn:call(op.LEAVE_GROUP, string.pack(">s4s4", self.group or "", self.member or ""), op.OK)
end

function Client:group_heartbeat()
    return self.conn:call(op.GROUP_HEARTBEAT, string.pack(">s4s4", self.group or "", self.member or ""), op.OK)
end

function Client:list_groups()
    return self.conn:call(op.LIST_GROUPS, "", op.GROUP_LIST, wire.groups)
end

function Client:describe_group(group)
    return self.conn:call(op.DESCRIBE_GROUP, string.pack(">s4", group), op.GROUP_DESCRIPTION, wire.group)
end

function Client:delete_group(group)
    return self.conn:call(op.DELETE_GROUP, string.pack(">s4", group), op.OK)
end

-- Topics.

function Client:create_topic(name, partitions)
    return self.conn:call(op.CREATE_TOPIC, string.pack(">s4I4", name, partitions or 1), op.OK)
end

function Client:create_partitions(name, total)
    return self.conn:call(op.CREATE_PARTITIONS, string.pack(">s4I4", name, total), op.OK)
end

function Client:delete_topic(name)
    return self.conn:call(op.DELETE_TOPIC, string.pack(">s4", name), op.OK)
end

function Client:list_topics()
    return self.conn:call(op.LIST_TOPICS, "", op.TOPIC_LIST, function(c) return c:list(c.str) end)
end

function Client:describe_topic(name)
    return self.conn:call(op.DESCRIBE_TOPIC, string.pack(">s4", name), op.TOPIC_DESCRIPTION, wire.topic)
end

-- alter_topic_config takes { retention = 3600, ... }.
function Client:alter_topic_config(name, config)
    return self.conn:call(op.ALTER_TOPIC_CONFIG, wire.config(name, config), op.OK)
end

-- heartbeat shows that the connection is alive, both ways.
function Client:heartbeat()
    return self.conn:call(op.HEARTBEAT_REQ, "", op.HEARTBEAT_RESP)
end

return Client
