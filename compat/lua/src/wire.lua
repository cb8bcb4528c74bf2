-- Ops, and the payloads of requests and replies. Big-endian; ">s4" is a string
-- with a 32-bit length in front. Partitions are numbered from 1.
local wire = {}

wire.VERSION = 1
wire.HEADER = 17              -- op and correlation id
wire.MAX_REPLY = 16 * 1024 * 1024
wire.ZERO = string.rep("\0", 16)

wire.op = {
    HELLO = 0x01, AUTH = 0x02, PRODUCE = 0x03, FETCH = 0x04, SUBSCRIBE = 0x05, COMMIT = 0x06,
    CREATE_TOPIC = 0x07, LIST_TOPICS = 0x08, GOODBYE = 0x0A, HEARTBEAT_REQ = 0x0B,
    HEARTBEAT_RESP = 0x0C, IDENTIFY_CLIENT = 0x0D, INIT_PRODUCER_ID = 0x0E,
    PRODUCE_IDEMPOTENT = 0x0F, JOIN_GROUP = 0x10, LEAVE_GROUP = 0x11, GROUP_HEARTBEAT = 0x12,
    BEGIN_TXN = 0x13, END_TXN = 0x14, TXN_OFFSET_COMMIT = 0x15, NACK = 0x16,
    PRODUCE_BATCH = 0x17, LIST_OFFSETS = 0x18, DELETE_TOPIC = 0x19, DESCRIBE_TOPIC = 0x1A,
    ALTER_TOPIC_CONFIG = 0x1B, LIST_GROUPS = 0x1C, DESCRIBE_GROUP = 0x1D, DELETE_GROUP = 0x1E,
    AUTH_SCRAM = 0x1F, AUTH_SCRAM_FINAL = 0x20, CREATE_PARTITIONS = 0x21,
    WELCOME = 0x80, AUTH_OK = 0x81, PRODUCE_ACK = 0x82, RECORD = 0x83, TOPIC_LIST = 0x84,
    OK = 0x86, IDENTIFY_ACK = 0x87, PRODUCER_ID = 0x88, GROUP_ASSIGNMENT = 0x89,
    NACK_ACK = 0x8A, PRODUCE_BATCH_ACK = 0x8B, RECORD_BATCH = 0x8C, OFFSETS = 0x8D,
    TOPIC_DESCRIPTION = 0x8E, GROUP_LIST = 0x8F, GROUP_DESCRIPTION = 0x90,
    AUTH_CHALLENGE = 0x91, ERROR = 0xFE,
}

function wire.frame(op, id, payload)
    return string.pack(">I4B", wire.HEADER + #payload, op) .. id .. payload
end

-- A cursor reads fields one after the other. A payload that ends early raises
-- an error, which the connection turns into a result.
local Cursor = {}
Cursor.__index = Cursor

function wire.cursor(payload)
    return setmetatable({ bytes = payload, at = 1 }, Cursor)
end

function Cursor:read(format)
    local value
    value, self.at = string.unpack(">" .. format, self.bytes, self.at)
    return value
end

function Cursor:u8() return self:read("I1") end
function Cursor:u16() return self:read("I2") end
function Cursor:u32() return self:read("I4") end
function Cursor:u64() return self:read("i8") end -- Lua's integers are signed; no real value reaches the sign
function Cursor:str() return self:read("s4") end
function Cursor:left() return #self.bytes - self.at + 1 end

-- list calls read as often as a leading count says.
function Cursor:list(read)
    local out = {}
    for i = 1, self:u32() do out[i] = read(self) end
    return out
end

local function strings(list)
    local out = { string.pack(">I4", #list) }
    for _, s in ipairs(list) do out[#out + 1] = string.pack(">s4", s) end
    return table.concat(out)
end

-- Requests.

function wire.produce(codec, topic, key, value)
    return string.pack(">Bs4s4s4", codec, topic, key, value)
end

function wire.produce_idempotent(pid, seq, epoch, codec, topic, key, value)
    return string.pack(">i8I4I2B", pid, seq, epoch, codec) .. string.pack(">s4s4s4", topic, key, value)
end

-- headers is the optional block after a produced value: a list of {name, value}.
function wire.headers(list)
    local out = { string.pack(">I2", #list) }
    for _, h in ipairs(list) do out[#out + 1] = string.pack(">s4s4", h[1], h[2]) end
    return table.concat(out)
end

-- producer is nil or {pid, base_seq, epoch}.
function wire.produce_batch(codec, topic, records, producer)
    local out = { string.pack(">BBs4", producer and 1 or 0, codec, topic) }
    if producer then
        out[#out + 1] = string.pack(">i8I4I2", producer.pid, producer.base_seq, producer.epoch)
    end
    out[#out + 1] = string.pack(">I4", #records)
    for _, r in ipairs(records) do
        out[#out + 1] = string.pack(">s4s4", r.key or "", r.value or "")
    end
    return table.concat(out)
end

function wire.fetch(topic, group, max_records, isolation, flags)
    return string.pack(">s4s4I4BB", topic, group, max_records, isolation, flags)
end

function wire.txn_offsets(group, offsets)
    local out = { string.pack(">s4I4", group, #offsets) }
    for _, o in ipairs(offsets) do
        out[#out + 1] = string.pack(">s4I4i8", o.topic, o.partition, o.offset)
    end
    return table.concat(out)
end

function wire.join(group, member, topics)
    return string.pack(">s4s4", group, member) .. strings(topics)
end

function wire.config(topic, config)
    local out, n = {}, 0
    for key, value in pairs(config) do
        n = n + 1
        out[n] = string.pack(">s4s4", key, tostring(value))
    end
    return string.pack(">s4I4", topic, n) .. table.concat(out)
end

-- Replies.

function wire.ack(c)
    return { partition = c:u32(), offset = c:u64() }
end

function wire.record(c)
    return {
        topic = c:str(), partition = c:u32(), offset = c:u64(), timestamp = c:u64(),
        key = c:str(), value = c:str(),
    }
end

local function read_header(c) return { c:str(), c:str() } end

-- record_with_headers is a record of a client that asked for headers.
function wire.record_with_headers(c)
    local r = wire.record(c)
    r.headers = {}
    for i = 1, c:u16() do r.headers[i] = read_header(c) end
    return r
end

function wire.batch_ack(c)
    return { acks = c:list(wire.ack), code = c:u16(), message = c:str() }
end

local function topic_partitions(c)
    return { c:str(), c:list(c.u32) }
end

function wire.assignment(c)
    local member, assignment = c:str(), {}
    for _, pair in ipairs(c:list(topic_partitions)) do assignment[pair[1]] = pair[2] end
    return { member_id = member, assignment = assignment }
end

local function bounds(c)
    local b = {
        partition = c:u32(), earliest = c:u64(), latest = c:u64(),
        high_watermark = c:u64(), lso = c:u64(),
    }
    local flags = c:u8()
    b.hwm_exact, b.lso_known, b.leader = flags & 1 ~= 0, flags & 2 ~= 0, flags & 4 ~= 0
    return b
end

local function for_time(c)
    return { partition = c:u32(), offset = c:u64(), found = c:u8() ~= 0 }
end

function wire.offsets(c)
    local entries = c:list(bounds)
    return { entries = entries, for_times = c:left() >= 4 and c:list(for_time) or nil }
end

function wire.topic(c)
    local t = { name = c:str(), num_partitions = c:u32(), config = {} }
    for _, pair in ipairs(c:list(read_header)) do t.config[pair[1]] = pair[2] end
    return t
end

local function listed_group(c)
    return { group_id = c:str(), state = c:str(), member_count = c:u32() }
end

function wire.groups(c) return c:list(listed_group) end

local function committed(c)
    return { topic = c:str(), partition = c:u32(), offset = c:u64() }
end

function wire.group(c)
    return {
        group_id = c:str(), state = c:str(),
        members = c:list(wire.assignment), offsets = c:list(committed),
    }
end

function wire.nack_ack(c)
    return { dead_lettered = c:u8() ~= 0, attempts = c:u16(), dlq_topic = c:str() }
end

-- envelope is the value of a dead-lettered record.
function wire.envelope(value)
    local c = wire.cursor(value)
    local version = c:u8()
    if version ~= 1 then
        error(string.format("unknown dead-letter envelope version %d", version), 0)
    end
    return {
        topic = c:str(), partition = c:u32(), offset = c:u64(), timestamp = c:u64(),
        group = c:str(), attempts = c:u16(), reason = c:str(), value = c:str(),
    }
end

return wire
