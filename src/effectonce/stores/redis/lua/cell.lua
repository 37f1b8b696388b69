-- A small value that processes share: byte 1 revision, 9 when it is forgotten, 17 the value.
local FOR_EVER = 1e12  -- seconds; Redis cannot count so far, and need not

local function cell_of(name, now)  -- not what is past its time, by the same clock that everybody is judged by
  local cell = redis.call('GET', base .. 'c:' .. name)
  return cell and struct.unpack('<d', cell, 9) > now and cell
end
