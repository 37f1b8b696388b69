-- Insert a record that has its outcome already, if there is none of its key. It was born and has ended at time zero; this is where it gets the time.
-- The race: of many callers of one key the first one's script runs first, and the others see what it wrote.
local now, key = clock(ARGV[1]), ARGV[2]
if redis.call('GET', base .. 'r:' .. key) then return 0 end
local decided_at, dedup_until = struct.unpack('<dd', ARGV[3], 11)
local lease_until, created_at, first_dispatch_at, sent_until, due = struct.unpack('<ddddd', ARGV[4])
local ends = struct.pack('<dd', decided_at + now, dedup_until + now) .. ARGV[3]:sub(27)
local times = struct.pack('<dddd', lease_until + now, created_at + now, first_dispatch_at + now, sent_until + now)
put(ARGV[3]:sub(1, 10) .. ends .. times .. ARGV[5], key, due + now)
return 1
