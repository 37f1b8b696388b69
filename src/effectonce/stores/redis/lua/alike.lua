-- Of the next records, as in page.lua, those whose keys begin and end like this; and where the next part begins, or nothing.
local page, beginning, ending = tonumber(ARGV[4]), ARGV[5], ARGV[6]
local first, found = place_before(ARGV[2], ARGV[3]), {}
local members = redis.call('ZREVRANGE', index, first, first + page - 1)
for _, member in ipairs(members) do  -- the first eight bytes are a time
  if member:find(ending, -#ending, true) and member:sub(9, 8 + #beginning) == beginning then found[#found + 1] = member end
end
if #members < page then return {found} end
return {found, redis.call('ZSCORE', index, members[page]), members[page]}
