--- @include "lib/keys"
--- @include "lib/number"
-- References have a limit of their own, not the destination's nor that of its pools: memory that is full is why there are
-- any. They count from when they are stored until their segment is deleted. Of slices each has the same part of it.
local MOST_REFERENCES = 67108864 -- bytes, where the settings do not say: about a million of messages

-- Bytes of references that there are, and how many there may be.
local function read_references()
  local read = redis.call('HMGET', K_DESTINATION, 'reference_bytes', 'limit_reference_bytes', 'of_slices')
  local limit = read[2] and limit_of(read[2]) or MOST_REFERENCES
  return tonumber(read[1] or 0), math.floor(limit / (read[3] or 1))
end

-- For how many references there is room, about, at a destination that is not loaded.
local MOST_OF_ONE = 64 -- bytes, more than a reference takes
local function reference_room()
  local taken, limit = read_references()
  local read = redis.call('HMGET', K_DESTINATION, 'limit_messages', 'pending_messages', 'leased_messages')
  local messages = limit_of(read[1]) - tonumber(read[2] or 0) - tonumber(read[3] or 0)
  return math.floor(math.min(MOST_COUNTED, math.max(0, (limit - taken) / MOST_OF_ONE), math.max(0, messages)))
end
