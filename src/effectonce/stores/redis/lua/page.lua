-- Records in the order of an index, the last first, with their scores: those that stand before a score and a member.
local first = place_before(ARGV[2], ARGV[3])
return redis.call('ZREVRANGE', index, first, first + tonumber(ARGV[4]) - 1, 'WITHSCORES')
