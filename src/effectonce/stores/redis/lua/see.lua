-- The record, who else holds its latch, and its predecessor, as they are at one moment.
local key, latch, after = ARGV[2], ARGV[3], ARGV[4]
local record = redis.call('GET', base .. 'r:' .. key)
if record then latch = latch_of(record) end
local holder, rival = rival_of(latch, key)
local predecessor = after ~= '' and redis.call('GET', base .. 'r:' .. after)
return {struct.pack('<d', clock(ARGV[1])), record, holder, rival, predecessor}
