-- SHA-256 (FIPS 180-4), HMAC (RFC 2104) and PBKDF2 with one block (RFC 8018),
-- on Lua 5.4's 64-bit integers.
local sha256 = {}

local MASK = 0xffffffff

-- The constants are the first 32 bits of the fractional parts of the square
-- roots (initial state) and cube roots (rounds) of the first primes. They are
-- found here instead of typed in: a number n's root is floor(root * 2^32),
-- corrected to the exact integer by comparing powers of it.
local function primes(count)
    local list, candidate = {}, 2
    while #list < count do
        local composite = false
        for _, p in ipairs(list) do
            if p * p > candidate then break end
            if candidate % p == 0 then composite = true break end
        end
        if not composite then list[#list + 1] = candidate end
        candidate = candidate + 1
    end
    return list
end

-- fraction returns the first 32 bits after the point of x. A double has 53 bits,
-- of which at most 5 stand before the point for the roots used here.
local function fraction(x)
    return math.floor((x - math.floor(x)) * 2.0 ^ 32) & MASK
end

-- cube_root is exact to the last bit of a double after one Newton step.
local function cube_root(n)
    local x = n ^ (1 / 3)
    return x - (x * x * x - n) / (3 * x * x)
end

local INITIAL, ROUND = {}, {}
for i, p in ipairs(primes(64)) do
    if i <= 8 then INITIAL[i] = fraction(math.sqrt(p)) end
    ROUND[i] = fraction(cube_root(p))
end

local function rotate(x, n)
    return ((x >> n) | (x << (32 - n))) & MASK
end

local function compress(state, block, at, w)
    for i = 1, 16 do
        w[i] = string.unpack(">I4", block, at + (i - 1) * 4)
    end
    for i = 17, 64 do
        local a, b = w[i - 15], w[i - 2]
        local s0 = rotate(a, 7) ~ rotate(a, 18) ~ (a >> 3)
        local s1 = rotate(b, 17) ~ rotate(b, 19) ~ (b >> 10)
        w[i] = (w[i - 16] + s0 + w[i - 7] + s1) & MASK
    end
    local a, b, c, d, e, f, g, h = table.unpack(state, 1, 8)
    for i = 1, 64 do
        local s1 = rotate(e, 6) ~ rotate(e, 11) ~ rotate(e, 25)
        local choose = (e & f) ~ (~e & g)
        local t1 = (h + s1 + choose + ROUND[i] + w[i]) & MASK
        local s0 = rotate(a, 2) ~ rotate(a, 13) ~ rotate(a, 22)
        local majority = (a & b) ~ (a & c) ~ (b & c)
        h, g, f, e = g, f, e, (d + t1) & MASK
        d, c, b, a = c, b, a, (t1 + s0 + majority) & MASK
    end
    local out = { a, b, c, d, e, f, g, h }
    for i = 1, 8 do out[i] = (out[i] + state[i]) & MASK end
    return out
end

-- absorb runs whole blocks of text through the state.
local function absorb(state, text)
    local w = {}
    for at = 1, #text, 64 do
        state = compress(state, text, at, w)
    end
    return state
end

-- finish pads text, of which `before` bytes were absorbed already, and returns
-- the digest.
local function finish(state, text, before)
    local length = before + #text
    local zeros = (55 - length) % 64
    state = absorb(state, text .. "\x80" .. string.rep("\0", zeros) .. string.pack(">I8", length * 8))
    return string.pack(">I4I4I4I4I4I4I4I4", table.unpack(state, 1, 8))
end

function sha256.digest(text)
    return finish(INITIAL, text, 0)
end

-- keyed returns a function that computes HMACs under key. The two states after
-- the padded key are computed once, which halves the work of PBKDF2.
function sha256.keyed(key)
    if #key > 64 then key = sha256.digest(key) end
    key = key .. string.rep("\0", 64 - #key)
    local function pad(with)
        return absorb(INITIAL, (key:gsub(".", function(c) return string.char(c:byte() ~ with) end)))
    end
    local inner, outer = pad(0x36), pad(0x5c)
    return function(text)
        return finish(outer, finish(inner, text, 64), 64)
    end
end

function sha256.hmac(key, text)
    return sha256.keyed(key)(text)
end

function sha256.xor(a, b)
    local out = {}
    for i = 1, #a do out[i] = string.char(a:byte(i) ~ b:byte(i)) end
    return table.concat(out)
end

-- pbkdf2 derives 32 bytes.
function sha256.pbkdf2(password, salt, iterations)
    local mac = sha256.keyed(password)
    local u = mac(salt .. "\0\0\0\1")
    local acc = { string.unpack(">I8I8I8I8", u) }
    for _ = 2, iterations do
        u = mac(u)
        local a, b, c, d = string.unpack(">I8I8I8I8", u)
        acc[1], acc[2], acc[3], acc[4] = acc[1] ~ a, acc[2] ~ b, acc[3] ~ c, acc[4] ~ d
    end
    return string.pack(">i8i8i8i8", acc[1], acc[2], acc[3], acc[4])
end

return sha256
