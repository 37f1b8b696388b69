-- The time, and keys whose sweep is due.
local now = clock(ARGV[1])
return {struct.pack('<d', now), redis.call('ZRANGEBYSCORE', base .. 'd', '-inf', string.format('%.17g', now), 'LIMIT', 0, ARGV[2])}
