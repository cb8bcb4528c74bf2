-- The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without SASLprep.
local sha256 = require("src.sha256")

local scram = {}

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function base64(bytes)
    local out = {}
    for at = 1, #bytes, 3 do
        local a, b, c = bytes:byte(at, at + 2)
        local n = a << 16 | (b or 0) << 8 | (c or 0)
        for shift = 18, 0, -6 do
            local i = (n >> shift & 63) + 1
            out[#out + 1] = ALPHABET:sub(i, i)
        end
        if not c then out[#out] = "=" end
        if not b then out[#out - 1] = "=" end
    end
    return table.concat(out)
end

local function unbase64(text)
    local bits, n, out = 0, 0, {}
    for char in text:gmatch("[%w+/]") do
        bits = (bits << 6 | ALPHABET:find(char, 1, true) - 1) & 0xffffff
        n = n + 6
        if n >= 8 then
            n = n - 8
            out[#out + 1] = string.char(bits >> n & 0xff)
        end
    end
    return table.concat(out)
end

local function nonce()
    local source = io.open("/dev/urandom", "rb")
    local bytes = source and source:read(18)
    if source then source:close() end
    return base64(bytes or string.pack("i8i8I2", math.random(0), math.random(0), math.random(0, 65535)))
end

local function escape(user)
    return (user:gsub("=", "=3D"):gsub(",", "=2C"))
end

-- start returns the first message and a function that takes the challenge and
-- returns the final message and the server signature to expect. certificate is
-- the digest for tls-server-end-point, or nil for no channel binding.
function scram.start(user, password, certificate)
    local header = certificate and "p=tls-server-end-point,," or "n,,"
    local mine = nonce()
    local bare = "n=" .. escape(user) .. ",r=" .. mine
    return header .. bare, function(challenge)
        local combined, salt, iterations = challenge:match("^r=([^,]*),s=([^,]*),i=(%d+)")
        if not combined or #combined <= #mine or combined:sub(1, #mine) ~= mine then
            return nil, "bad server nonce"
        end
        local final = "c=" .. base64(header .. (certificate or "")) .. ",r=" .. combined
        local all = bare .. "," .. challenge .. "," .. final
        local salted = sha256.pbkdf2(password, unbase64(salt), tonumber(iterations))
        local client_key = sha256.hmac(salted, "Client Key")
        local signature = sha256.hmac(sha256.digest(client_key), all)
        local proof = sha256.xor(client_key, signature)
        local server = sha256.hmac(sha256.hmac(salted, "Server Key"), all)
        return final .. ",p=" .. base64(proof), "v=" .. base64(server)
    end
end

return scram
