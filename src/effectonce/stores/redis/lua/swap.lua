-- Replace a record by what was decided about it, if it is still the revision that was seen (0: none). Nothing in place of it: forget it.
-- The race: between seeing and swapping anybody may have written, or another effect of its latch may have been sent.
local key, seen, record = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local old = redis.call('GET', base .. 'r:' .. key)
if (old and struct.unpack('<I8', old, 3) or 0) ~= seen then return 0 end
if record ~= '' and in_the_air(record) then
  local _, rival = rival_of(latch_of(record), key)
  if rival then return 0 end
end

if old then forget(old, key) end
if record ~= '' then put(record, key, (struct.unpack('<d', ARGV[4]))) end
return 1
