-- T1: insert a record that is not there. It was born at time zero; this is where it gets the time.
-- The race: of many callers of one key, or of one latch, the first one's script runs first, and the others see what it wrote.
local now, key, record, latch = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local found = redis.call('MGET', base .. 'r:' .. key, base .. 'l:' .. latch)
local there, holder, rival = found[1], found[2], false
if there then
  holder = false
  if there:byte(2) == CLAIMED then holder, rival = rival_of(latch_of(there), key) end
  return {struct.pack('<d', now), there, holder, rival}
end
if holder and holder ~= key then rival = redis.call('GET', base .. 'r:' .. holder) end
if rival then return {struct.pack('<d', now), false, holder, rival} end

local created_at, lease_until, first_dispatch_at, sent_until = struct.unpack('<dddd', record, 23)
if struct.unpack('<I4', record, 19) > 0 then
  first_dispatch_at, sent_until = first_dispatch_at + now, sent_until + now
end
local times = struct.pack('<dddd', created_at + now, lease_until + now, first_dispatch_at, sent_until)
enter(record:sub(1, 22) .. times .. record:sub(55), key, struct.unpack('<d', ARGV[5]) + now)
return 1
