-- What every script shares: where things lie, and how a record reads. `_redis_records.py` writes and reads the same layout.
--
--   KEYS[1]   the prefix of the bucket, such as eo:{3f}:      KEYS[2]   the same with a ?
--   r:<key>   a record          l:<latch>   the key of the effect of this latch that is in the air
--   d         keys by when a sweep is due          s:<state>   records of one state, oldest first
--
-- Neither of KEYS is ever stored. While a cluster moves the slot, half of a bucket lies here and half there: a script would see a record
-- and miss its latch. Redis refuses a command with two keys, one of them missing, for exactly as long (TRYAGAIN), and so nothing is decided then.
--
--   byte 1 version, 2 state, 3 revision, 11 epoch, 19 sends, 23 created_at, 31 lease_until, 39 first_dispatch_at, 47 sent_until,
--   55 decided_at, 63 dedup_until, 71 window_s, 79 lengths of token, fingerprint, latch, settled_by, outcome; 99 these five; the rest
local CLAIMED, DISPATCHED, COMPLETED, IN_DOUBT = 1, 2, 3, 5
local base = KEYS[1]

local function clock(given)  -- the server's; only tests bring their own
  if given ~= '' then return (struct.unpack('<d', given)) end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function latch_of(record)
  local token, fingerprint, latch = struct.unpack('<I4I4I4', record, 79)
  local from = 99 + token + fingerprint
  return record:sub(from, from + latch - 1)
end

local function in_the_air(record)
  local state = record:byte(2)
  return state == DISPATCHED or state == IN_DOUBT or (state == CLAIMED and struct.unpack('<I4', record, 19) > 0)
end

-- Another effect of this latch that was sent and has no outcome: its key and its record.
local function rival_of(latch, key)
  if latch == '' then return false, false end
  local holder = redis.call('GET', base .. 'l:' .. latch)
  if not holder or holder == key then return false, false end
  return holder, redis.call('GET', base .. 'r:' .. holder)
end

local function place_of(record, key)  -- within its state, by age: a big-endian time sorts as the number it is
  local created_at = struct.unpack('<d', record, 23)
  return base .. 's:' .. record:byte(2), struct.pack('>d', created_at) .. key
end

local function leave(record, key)
  redis.call('ZREM', place_of(record, key))
  if in_the_air(record) then
    local latch = latch_of(record)
    if latch ~= '' and redis.call('GET', base .. 'l:' .. latch) == key then redis.call('DEL', base .. 'l:' .. latch) end
  end
end

local function enter(record, key, due)
  local state, member = place_of(record, key)
  redis.call('SET', base .. 'r:' .. key, record)
  redis.call('ZADD', state, 0, member)
  if due < math.huge then redis.call('ZADD', base .. 'd', string.format('%.17g', due), key) end
  if in_the_air(record) then
    local latch = latch_of(record)
    if latch ~= '' then redis.call('SET', base .. 'l:' .. latch, key) end
  end
end
