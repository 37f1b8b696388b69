-- What every script shares: where things lie, and how a record reads. `_redis_records.py` writes and reads the same layout.
--
--   KEYS[1]   the prefix of the bucket, such as eo:{3f}:      KEYS[2]   the same with a ?
--   r:<key>     a record          l:<latch>   the key of the effect of this latch that is in the air
--   s:<state>   the records of one state by when a sweep is due; a member is its time of birth and its key
--
--   c:<name>    a small value that processes share: byte 1 revision, 9 when it is forgotten, 17 the value
--
-- Neither of KEYS is ever stored. While a cluster moves the slot, half of a bucket lies here and half there: a script would see a record
-- and miss its latch. Redis refuses a command with two keys, one of them missing, for exactly as long (TRYAGAIN), and so nothing is decided then.
--
--   byte 1 version, 2 state, 3 revision, 11 epoch, 19 sends, 23 created_at, 31 lease_until, 39 first_dispatch_at, 47 sent_until,
--   55 decided_at, 63 dedup_until, 71 window_s, 79 lengths of token, fingerprint, latch, settled_by, outcome; 99 these five; the rest
local VERSION, CLAIMED, DISPATCHED, COMPLETED, IN_DOUBT = 1, 1, 2, 3, 5
local FOR_EVER = 1e12  -- seconds; Redis cannot count so far, and need not
local base = KEYS[1]

local function clock(given)  -- the server's; only tests bring their own
  if given ~= '' then return (struct.unpack('<d', given)) end
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function cell_of(name, now)  -- not what is past its time, by the same clock that everybody is judged by
  local cell = redis.call('GET', base .. 'c:' .. name)
  return cell and struct.unpack('<d', cell, 9) > now and cell
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

local function member_of(record, key)  -- among those of one state and score, oldest first: a big-endian time sorts as the number it is
  return struct.pack('>d', (struct.unpack('<d', record, 23))) .. key
end

-- An effect that is in the air holds its latch, so nobody else's is taken away here.
local function leave(record, key)
  redis.call('ZREM', base .. 's:' .. record:byte(2), member_of(record, key))
  local latch = in_the_air(record) and latch_of(record) or ''
  if latch ~= '' then redis.call('DEL', base .. 'l:' .. latch) end
end

local function enter(record, key, due)
  local latch = in_the_air(record) and latch_of(record) or ''
  if latch == '' then
    redis.call('SET', base .. 'r:' .. key, record)
  else
    redis.call('MSET', base .. 'r:' .. key, record, base .. 'l:' .. latch, key)
  end
  redis.call('ZADD', base .. 's:' .. record:byte(2), due, member_of(record, key))
end
