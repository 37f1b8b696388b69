-- T1: insert a record that is not there. It was born at time zero; this is where it gets the time.
-- The race: of many callers of one key, or of one latch, the first one's script runs first, and the others see what it wrote.
local now, key, latch = clock(ARGV[1]), ARGV[2], ARGV[3]
local lease_until, created_at, first_dispatch_at, sent_until, due = struct.unpack('<ddddd', ARGV[5])
local sent = struct.unpack('<I4', ARGV[6], 9) > 0
if sent then first_dispatch_at, sent_until = first_dispatch_at + now, sent_until + now end
created_at, due = created_at + now, due + now
local record = ARGV[4] .. struct.pack('<dddd', lease_until + now, created_at, first_dispatch_at, sent_until) .. ARGV[6]

-- The ordinary call: neither its record nor its latch is there, and both are set in one go.
if sent and latch ~= '' and redis.call('MSETNX', base .. 'r:' .. key, record, base .. 'l:' .. latch, key) == 1 then
  redis.call('ZADD', base .. 's', DISPATCHED * STATE + math.min(math.ceil(due * TICKS), NEVER), struct.pack('>d', created_at) .. key)
  return 1
end
