-- An index in the order of its scores. Those of one score may be many. They are in the order of their members, so that one look halves what is
-- left of them.
local index = base .. ARGV[1]

local function stands_before(one, other)  -- by their bytes, whatever the language of the server is
  for n = 1, math.min(#one, #other) do
    local a, b = one:byte(n), other:byte(n)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- Between two places of the index, where the members end that `is_passed` holds for.
local function place(first, beyond, command, is_passed)
  while first < beyond do
    local middle = math.floor((first + beyond) / 2)
    if is_passed(redis.call(command, index, middle, middle)[1]) then first = middle + 1 else beyond = middle end
  end
  return first
end

-- Where those begin that stand before a score and a member, the last first. '': before no member.
local function place_before(score, member)
  local first = redis.call('ZCOUNT', index, '(' .. score, '+inf')
  if member == '' then return first end
  local beyond = first + redis.call('ZCOUNT', index, score, score)
  return place(first, beyond, 'ZREVRANGE', function(one) return not stands_before(one, member) end)
end
