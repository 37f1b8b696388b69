-- T5: complete a record that is dispatched, if this token and epoch own it.
-- The race: whoever took the record over meanwhile has another token, and a late owner changes nothing.
local now, key = clock(ARGV[1]), ARGV[2]
local record = redis.call('GET', base .. 'r:' .. key)
if not record or record:byte(1) ~= VERSION or record:byte(2) ~= DISPATCHED then return 0 end
local revision, epoch = struct.unpack('<I8I8', record, 3)
local token, fingerprint, latch, by, outcome = struct.unpack('<I4I4I4I4I4', record, 79)
if record:sub(99, 98 + token) ~= ARGV[3] or epoch ~= tonumber(ARGV[4]) then return 0 end

local due = now + struct.unpack('<d', record, 71)
local kept = 98 + token + fingerprint + latch
leave(record, key)
enter(
  record:sub(1, 1) .. string.char(COMPLETED) .. struct.pack('<I8', revision + 1) .. record:sub(11, 30)
    .. struct.pack('<d', now) .. record:sub(39, 54) .. struct.pack('<dd', now, due) .. record:sub(71, 90)
    .. struct.pack('<I4I4', #ARGV[6], #ARGV[5]) .. record:sub(99, kept) .. ARGV[6] .. ARGV[5] .. record:sub(kept + by + outcome + 1),
  key, due)
return 1
