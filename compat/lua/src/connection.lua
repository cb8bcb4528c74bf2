-- One socket: whole frames out, whole frames in, and waiting for the reply to a
-- request while heartbeats are answered and pushed records are put aside.
local socket = require("socket")
local wire = require("src.wire")

local op = wire.op

local Connection = {}
Connection.__index = Connection

-- A partial frame stays in `buffer` when a read times out, so that the next
-- read continues where this one stopped.
function Connection.open(options)
    local sock, err = socket.connect(options.host or "127.0.0.1", options.port or 9092)
    if not sock then return nil, err end
    sock:setoption("tcp-nodelay", true)
    local self = setmetatable({
        sock = sock, buffer = "", timeout = options.timeout or 30,
        pushed = {}, on_record = options.on_record,
    }, Connection)
    if options.tls then
        local ok, why = self:start_tls(options.tls, options.host or "127.0.0.1")
        if not ok then
            sock:close()
            return nil, why
        end
    end
    return self
end

function Connection:start_tls(tls, host)
    local ssl = require("ssl")
    local wrapped, err = ssl.wrap(self.sock, {
        mode = "client", protocol = "any", options = { "all", "no_sslv3", "no_tlsv1", "no_tlsv1_1" },
        cafile = tls.ca, certificate = tls.certificate, key = tls.key,
        verify = tls.ca and "peer" or "none",
    })
    if not wrapped then return nil, err end
    wrapped:sni(tls.server_name or host)
    local ok, why = wrapped:dohandshake()
    if not ok then return nil, why end
    self.sock, self.secure = wrapped, true
    return true
end

-- certificate_digest is the SHA-256 of the server's certificate, for SCRAM's
-- channel binding; nil without TLS.
function Connection:certificate_digest()
    if not self.secure then return nil end
    local hex = self.sock:getpeercertificate():digest("sha256")
    return (hex:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end))
end

function Connection:close()
    if self.closed then return end
    self.closed = true
    self.sock:close()
end

function Connection:fail(why)
    self:close()
    return nil, why
end

function Connection:send(opcode, id, payload)
    if self.closed then return nil, "closed" end
    local bytes, sent = wire.frame(opcode, id, payload), 0
    self.sock:settimeout(self.timeout)
    while sent < #bytes do
        local last, err, partial = self.sock:send(bytes, sent + 1)
        sent = last or partial or sent
        if not last and err ~= "timeout" then return self:fail(err) end
        if not last then return self:fail("send timed out") end
    end
    return true
end

-- fill reads until the buffer holds n bytes, or the deadline has passed.
function Connection:fill(n, deadline)
    while #self.buffer < n do
        local left = deadline - socket.gettime()
        self.sock:settimeout(math.max(left, 0))
        local bytes, err, partial = self.sock:receive(n - #self.buffer)
        self.buffer = self.buffer .. (bytes or partial or "")
        if err == "closed" then return self:fail("closed") end
        if #self.buffer < n and socket.gettime() >= deadline then return nil, "timeout" end
    end
    return true
end

-- receive returns op, id and payload of the next frame.
function Connection:receive(deadline)
    if self.closed then return nil, "closed" end
    local ok, err = self:fill(4, deadline)
    if not ok then return nil, err end
    local length = string.unpack(">I4", self.buffer)
    if length < wire.HEADER or length > wire.MAX_REPLY then
        return self:fail(string.format("frame of %d bytes", length))
    end
    ok, err = self:fill(4 + length, deadline)
    if not ok then return nil, err end
    local opcode, id = self.buffer:byte(5), self.buffer:sub(6, 21)
    local payload = self.buffer:sub(22, 4 + length)
    self.buffer = self.buffer:sub(5 + length)
    return opcode, id, payload
end

local function error_of(payload)
    local c = wire.cursor(payload)
    local code = c:u16()
    return c:str(), code
end

-- next_frame returns the next frame that is meant for a caller: op, id, payload.
-- Heartbeats are answered and pushed records put aside; then op is false. A closing
-- error, which carries the zero id, becomes nil, text, code.
function Connection:next_frame(deadline)
    local opcode, id, payload = self:receive(deadline)
    if not opcode then return nil, id end
    if opcode == op.HEARTBEAT_REQ then
        self:send(op.HEARTBEAT_RESP, id, "")
        return false
    elseif opcode == op.RECORD and id == wire.ZERO then
        self:push(wire.record(wire.cursor(payload)))
        return false
    elseif opcode == op.ERROR and id == wire.ZERO then
        self:close()
        return nil, error_of(payload)
    end
    return opcode, id, payload
end

-- next_reply returns op and payload of the next frame with the given id; an ERROR
-- frame becomes nil, text, code.
function Connection:next_reply(id, deadline)
    while true do
        local opcode, got, payload = self:next_frame(deadline)
        if opcode == nil then return nil, got, payload end
        if opcode and got == id then
            if opcode == op.ERROR then return nil, error_of(payload) end
            return opcode, payload
        end
    end
end

function Connection:push(record)
    if self.on_record then
        self.on_record(record)
    else
        self.pushed[#self.pushed + 1] = record
    end
end

-- next_push waits for one pushed record.
function Connection:next_push(timeout)
    local deadline = socket.gettime() + timeout
    while #self.pushed == 0 do
        local opcode, err, code = self:next_frame(deadline)
        if opcode == nil then return nil, err, code end
    end
    return table.remove(self.pushed, 1)
end

-- random_id is a version 4 UUID.
local function random_id()
    local hi = math.random(0) & ~0xf000 | 0x4000
    local lo = math.random(0) & ~(0xc0 << 56) | (0x80 << 56)
    return string.pack(">i8i8", hi, lo)
end

-- request sends one frame and returns the op and payload of its first reply,
-- and the id for those that want more.
function Connection:request(opcode, payload)
    local id = random_id()
    local ok, err = self:send(opcode, id, payload)
    if not ok then return nil, err end
    local got, answer, code = self:next_reply(id, socket.gettime() + self.timeout)
    if not got then return nil, answer, code end
    return got, answer, id
end

-- call is request for an answer of one frame of a known op, decoded by read.
function Connection:call(opcode, payload, want, read)
    local got, answer, code = self:request(opcode, payload)
    if not got then return nil, answer, code end
    if got ~= want then
        return nil, string.format("unexpected reply 0x%02X", got)
    end
    if not read then return true end
    local ok, value = pcall(read, wire.cursor(answer))
    if not ok then return nil, "decode reply: " .. tostring(value) end
    return value
end

return Connection
