-- T1: insert a record that is not there. It was born at time zero; this is where it gets the time.
-- The race: of many callers of one key, or of one latch, the first one's script runs first, and the others see what it wrote.
local now, key, record = clock(ARGV[1]), ARGV[2], ARGV[3]
local there = redis.call('GET', base .. 'r:' .. key)
if there then
  local holder, rival = false, false
  if there:byte(2) == CLAIMED then holder, rival = rival_of(latch_of(there), key) end
  return {struct.pack('<d', now), there, holder, rival}
end
local holder, rival = rival_of(latch_of(record), key)
if rival then return {struct.pack('<d', now), false, holder, rival} end

local created_at, lease_until, first_dispatch_at, sent_until = struct.unpack('<dddd', record, 23)
if struct.unpack('<I4', record, 19) > 0 then
  first_dispatch_at, sent_until = first_dispatch_at + now, sent_until + now
end
local times = struct.pack('<dddd', created_at + now, lease_until + now, first_dispatch_at, sent_until)
enter(record:sub(1, 22) .. times .. record:sub(55), key, struct.unpack('<d', ARGV[4]) + now)
return 1
