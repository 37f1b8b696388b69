-- What every script begins with: where things lie, what time it is, and how the indexes are ordered.
--
--   KEYS[1]   the prefix of the bucket, such as eo:{3f}:      KEYS[2]   the same with a ?
--   r:<key>     a record          l:<latch>   the key of the effect of this latch that is in the air
--   s           the records by state and by when a sweep is due; a member is its time of birth and its key
--   d           those in doubt, which are never due, in the order of their birth
--   c:<name>    a small value that processes share
--   i           the names of those that are to be listed      x   the same by when they are forgotten
--
-- Neither of KEYS is ever stored. While a cluster moves the slot, half of a bucket lies here and half there: a script would see a record
-- and miss its latch. Redis refuses a command with two keys, one of them missing, for exactly as long (TRYAGAIN), and so nothing is decided then.
local VERSION, CLAIMED, DISPATCHED, COMPLETED, IN_DOUBT = 1, 1, 2, 3, 5
local STATE, TICKS, NEVER = 2 ^ 50, 1024, 2 ^ 50 - 1  -- a score is the state, then 1/1024 s: a whole number that a double holds
local base = KEYS[1]

local function clock(given)  -- the server's; only tests bring their own
  if given ~= '' then return (struct.unpack('<d', given)) end
  local time = redis.call('TIME')
  return time[1] + time[2] / 1000000
end
