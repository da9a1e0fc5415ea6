--- @include "lib/ledger"
--- @include "lib/reference"
-- Messages whose payload is in a store: what is stored here is a reference to a part of a segment. Which segments there are
-- is kept in `spooled`, with the number of the last message of each, and in `refs`, with its first and its bytes. A segment
-- is spent when none of its messages is left, whoever took them out: nobody counts them.
local function all_are(references, at, count)
  for i = 1, count do
    if is_reference(ARGV[at + i]) ~= references then
      return false
    end
  end
  return true
end

local function stored_bytes(at, count)
  local bytes = 0
  for i = 1, count do
    bytes = bytes + #ARGV[at + i]
  end
  return bytes
end

local function payload_bytes(at, count)
  local bytes = 0
  for i = 1, count do
    bytes = bytes + payload_size(ARGV[at + i])
  end
  return bytes
end

local function keep_segment(segment, first, last)
  local name, bytes = string.match(segment, '^(%S+) (%d+)')
  redis.call('ZADD', K_SPOOLED, int(last), name)
  redis.call('HSET', K_REFS, name, int(first) .. ' ' .. bytes)
  redis.call('HINCRBY', K_DESTINATION, 'spooled_bytes', bytes)
  note('spooled', name, bytes)
end

-- A reference that gets a later number keeps its segment until then.
local function keep_longer(body, seq)
  local name = is_reference(body) and string.match(body, '^.(%S+)')
  if name then
    redis.call('ZADD', K_SPOOLED, 'XX', 'GT', int(seq), name)
  end
end

local function forget_segment(name)
  local bytes = string.match(redis.call('HGET', K_REFS, name) or '', ' (%d+)$')
  if bytes then
    redis.call('HDEL', K_REFS, name)
    redis.call('ZREM', K_SPOOLED, name)
    redis.call('HINCRBY', K_DESTINATION, 'spooled_bytes', '-' .. bytes)
  end
  return tonumber(bytes or 0)
end
