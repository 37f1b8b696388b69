-- Records by state and sweep, the last first, with their scores: those that stand before a score and a member. '': before no member.
-- Those of one score may be many. They are in the order of their members, so that one look halves what is left of them.
local index, score, member, page = base .. 's', ARGV[1], ARGV[2], tonumber(ARGV[3])

local function stands_before(one, other)  -- by their bytes, whatever the language of the server is
  for n = 1, math.min(#one, #other) do
    local a, b = one:byte(n), other:byte(n)
    if a ~= b then return a < b end
  end
  return #one < #other
end

local first = redis.call('ZCOUNT', index, '(' .. score, '+inf')
if member ~= '' then
  local beyond = first + redis.call('ZCOUNT', index, score, score)
  while first < beyond do
    local middle = math.floor((first + beyond) / 2)
    if stands_before(redis.call('ZREVRANGE', index, middle, middle)[1], member) then beyond = middle else first = middle + 1 end
  end
end
return redis.call('ZREVRANGE', index, first, first + page - 1, 'WITHSCORES')
