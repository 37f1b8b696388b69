-- Records of one score, the oldest first: those that stand behind a member.
local score, member, page = ARGV[2], ARGV[3], tonumber(ARGV[4])
local first = redis.call('ZCOUNT', index, '-inf', '(' .. score)
local beyond = first + redis.call('ZCOUNT', index, score, score)
first = place(first, beyond, 'ZRANGE', function(one) return not stands_before(member, one) end)
if first == beyond then return {} end
return redis.call('ZRANGE', index, first, math.min(first + page, beyond) - 1)
