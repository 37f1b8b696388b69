-- Replace a cell, if it is still the revision that was seen (0: none). Redis forgets it by itself when nobody has written it for long enough.
-- The race: of two that saw the same revision, the first one's script runs first, and the other is told what it wrote.
local now, name, seen, keep = clock(ARGV[1]), ARGV[2], tonumber(ARGV[3]), (struct.unpack('<d', ARGV[6]))
local cell = cell_of(name, now)
if (cell and struct.unpack('<I8', cell) or 0) ~= seen then return {struct.pack('<d', now), cell} end

local written = ARGV[4] .. struct.pack('<d', now + keep) .. ARGV[5]
if keep < FOR_EVER then
  redis.call('SET', base .. 'c:' .. name, written, 'PX', string.format('%.0f', math.max(1, math.ceil(keep * 1000))))
else
  redis.call('SET', base .. 'c:' .. name, written)
end

-- The index has no end of its own: every write takes out a few names whose time is over, so that it does not grow for ever.
if ARGV[7] ~= '' then
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', base .. 'x', '-inf', now, 'LIMIT', 0, 10)) do
    redis.call('ZREM', base .. 'i', gone)
    redis.call('ZREM', base .. 'x', gone)
  end
  redis.call('ZADD', base .. 'i', 0, name)
  redis.call('ZADD', base .. 'x', string.format('%.17g', math.min(now + keep, 9e15)), name)
end
return 1
