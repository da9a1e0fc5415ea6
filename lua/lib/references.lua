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

-- For how many more messages there is room: each reference counts as one, and a slice has what it was lent. What is held in hand is for
-- the one who asks, also where it was granted before a limit bound, or was lowered, up to that.
local function messages_left(read, held_m)
  local all = read.pending_messages + read.leased_messages - held_m
  local covered = math.min(read.limit_messages, read.pool_messages) - read.pending_messages
  return math.max(0, math.min(read.limit_messages, read.slice_messages) - all, math.min(held_m, covered))
end

-- For how many references there is room, about.
local MOST_OF_ONE = 64 -- bytes, more than a reference takes
local function reference_room(read, held_m)
  local taken, limit = read_references()
  return math.floor(math.min(MOST_COUNTED, math.max(0, (limit - taken) / MOST_OF_ONE), messages_left(read, held_m)))
end
