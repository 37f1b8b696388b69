-- Somebody was here before, or it is not sent yet, or it has no latch.
local found = redis.call('MGET', base .. 'r:' .. key, base .. 'l:' .. latch)
local there, holder, rival = found[1], found[2], false
if there then
  holder = false
  if there:byte(2) == CLAIMED then holder, rival = rival_of(latch_of(there), key) end
  return {struct.pack('<d', now), there, holder, rival}
end
if holder and holder ~= key then rival = redis.call('GET', base .. 'r:' .. holder) end
if rival then return {struct.pack('<d', now), false, holder, rival} end
put(record, key, due)
return 1
