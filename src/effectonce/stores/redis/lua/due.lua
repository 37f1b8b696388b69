-- The time, and records whose sweep is due, as members of their states. What is in doubt is never due.
local now, due = clock(ARGV[1]), {}
for _, state in ipairs({1, 2, 3, 4, 6}) do
  local from = state * STATE
  due[#due + 1] = redis.call('ZRANGEBYSCORE', base .. 's', from, from + math.floor(now * TICKS), 'LIMIT', 0, ARGV[2])
end
return {struct.pack('<d', now), unpack(due)}
