-- T5: complete a record that is dispatched, if this token and epoch own it.
-- The race: whoever took the record over meanwhile has another token, and a late owner changes nothing.
local now, key = clock(ARGV[1]), ARGV[2]
local record = redis.call('GET', base .. 'r:' .. key)
if not record or record:byte(1) ~= VERSION or record:byte(2) ~= DISPATCHED then return 0 end
local created_at, _, _, epoch, _, window_s, token, fingerprint, latch, rest = struct.unpack('<dddI8I4dI4I4I4I4', record, 43)
if record:sub(103, 102 + token) ~= ARGV[3] or epoch ~= tonumber(ARGV[4]) then return 0 end

local by, outcome, due, named = ARGV[6], ARGV[5], now + window_s, 102 + token + fingerprint
local changed = struct.pack('<BBI8ddI4I4d', VERSION, COMPLETED, struct.unpack('<I8', record, 3) + 1, now, due, #by, #outcome, now)
-- A server that is full lets nothing in, but lets a script go on that has taken something out: what was sent can always be written down.
redis.call('DEL', latch > 0 and base .. 'l:' .. record:sub(named + 1, named + latch) or base .. 'r:' .. key)
redis.call('SET', base .. 'r:' .. key, changed .. record:sub(43, named + latch + rest) .. by .. outcome)
redis.call('ZADD', base .. 's', COMPLETED * STATE + math.min(math.ceil(due * TICKS), NEVER), struct.pack('>d', created_at) .. key)
return 1
