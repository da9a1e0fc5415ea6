--- @include "lib/ledger"
--- @include "lib/reference"
--- @include "lib/references"
-- Messages whose payload is in a store: what is stored here is a reference to a part of a segment. Which segments there are
-- is kept in `spooled`, with the number of the last message of each, and in `refs`, with its first, the bytes of references
-- to it, and its own. A segment is spent when none of its messages is left, whoever took them out: nobody counts them.
local function all_are(references, at, count)
  local byte = string.byte -- these loops run for each message
  for i = 1, count do
    if (byte(ARGV[at + i]) == REFERENCE) ~= references then
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

local function payload_sizes(at, count)
  local sizes = {}
  for i = 1, count do
    sizes[i] = payload_size(ARGV[at + i])
  end
  return sizes
end

local function payload_bytes(at, count)
  local bytes = 0
  for i = 1, count do
    bytes = bytes + payload_size(ARGV[at + i])
  end
  return bytes
end

-- How many references of these ARGV there is room for, beside those that there are: by their bytes, and by messages; and the
-- bytes of these. They are all after `at`, or where `puts` says.
local function references_that_fit(at, count, held_m, puts)
  local taken, limit = read_references()
  local fits, bytes = math.min(count, messages_left(d, held_m)), 0
  if count > held_m and now_ms < d.learning_until then
    return 0, 0 -- what others hold of messages may be forgotten
  end
  for i = 1, fits do
    local more = bytes + #ARGV[puts and puts[i] + 3 or at + i]
    if taken + more > limit then
      return i - 1, bytes
    end
    bytes = more
  end
  return fits, bytes
end

-- A segment costs no credit, so no change of how messages go to slices waits for it. Its sender says what it saw of this slice
-- before it looked whether a change is to come; nothing where no values say the slice.
local function is_of_earlier_spread(seen)
  return seen ~= '' and seen ~= int(d.epoch) .. '-' .. (redis.call('HGET', K_DESTINATION, 'spreads') or '0')
end

local function keep_segment(segment, first, last, references)
  local name, bytes = string.match(segment, '^(%S+) (%d+)')
  redis.call('ZADD', K_SPOOLED, int(last), name)
  redis.call('HSET', K_REFS, name, int(first) .. ' ' .. int(references) .. ' ' .. bytes)
  redis.call('HINCRBY', K_DESTINATION, 'spooled_bytes', bytes)
  redis.call('HINCRBY', K_DESTINATION, 'reference_bytes', int(references))
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
  local row = redis.call('HGET', K_REFS, name) or ''
  local bytes = string.match(row, ' (%d+)$')
  if bytes then
    redis.call('HDEL', K_REFS, name)
    redis.call('ZREM', K_SPOOLED, name)
    redis.call('HINCRBY', K_DESTINATION, 'spooled_bytes', '-' .. bytes)
    redis.call('HINCRBY', K_DESTINATION, 'reference_bytes', '-' .. (string.match(row, ' (%d+) ') or 0)) -- older rows have none
    if redis.call('EXISTS', K_SPOOLED) == 0 then
      redis.call('HDEL', K_DESTINATION, 'reference_bytes') -- and older scripts let theirs stand
    end
  end
  return tonumber(bytes or 0)
end
