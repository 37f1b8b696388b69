-- How a record reads, and how one takes the place of another. `_redis_records.py` writes and reads the same layout.
--
--   what an outcome changes:   byte 1 version, 2 state, 3 revision, 11 decided_at, 19 dedup_until, 27 lengths of settled_by and outcome,
--                              35 lease_until
--   what it does not:          43 created_at, 51 first_dispatch_at, 59 sent_until, 67 epoch, 75 sends, 79 window_s,
--                              87 lengths of token, fingerprint, latch, rest; 103 these four; settled_by; outcome
local function latch_of(record)
  local token, fingerprint, latch = struct.unpack('<I4I4I4', record, 87)
  local from = 103 + token + fingerprint
  return record:sub(from, from + latch - 1)
end

local function in_the_air(record)
  local state = record:byte(2)
  return state == DISPATCHED or state == IN_DOUBT or (state == CLAIMED and struct.unpack('<I4', record, 75) > 0)
end

-- Another effect of this latch that was sent and has no outcome: its key and its record.
local function rival_of(latch, key)
  if latch == '' then return false, false end
  local holder = redis.call('GET', base .. 'l:' .. latch)
  if not holder or holder == key then return false, false end
  return holder, redis.call('GET', base .. 'r:' .. holder)
end

-- Its index, its place there, and the latch that it holds. Among those of one score, oldest first: a big-endian time sorts as the number it is.
local function place_of(record, key)
  local index = record:byte(2) == IN_DOUBT and base .. 'd' or base .. 's'
  local member = struct.pack('>d', (struct.unpack('<d', record, 43))) .. key
  return index, member, in_the_air(record) and latch_of(record) or ''
end

-- An effect that is in the air holds its latch, so nobody else's is taken away here.
local function forget(record, key)
  local index, member, latch = place_of(record, key)
  redis.call('ZREM', index, member)
  if latch ~= '' then redis.call('DEL', base .. 'l:' .. latch) end
  redis.call('DEL', base .. 'r:' .. key)
end

local function put(record, key, due)
  local index, member, latch = place_of(record, key)
  local state = record:byte(2)
  redis.call('SET', base .. 'r:' .. key, record)
  if latch ~= '' then redis.call('SET', base .. 'l:' .. latch, key) end
  redis.call('ZADD', index, state == IN_DOUBT and 0 or state * STATE + math.min(math.ceil(due * TICKS), NEVER), member)
end
