--- @include "lib/keys"
--- @include "lib/clock"
-- What a destination holds of a pool, in totals; `owed` is what it gives back as soon as that is not in use.
local OWED_MS = 3000 -- a debt that nobody asks for any more is none: who waited has lost its place at the pool too
local SLICE = 'granted=%d returned=%d owed=%d asked=%d epoch=%d pool=%d drawn=%d'
local NO_SLICE = 'granted=0 returned=0 owed=0 asked=0 epoch=0 pool=0 drawn=0'
local SLICE_PATTERN = '^granted=(%d+) returned=(%d+) owed=(%d+) asked=(%d+) epoch=(%d+) pool=(%d+) drawn=(%d+)$'

-- Of slices that have a pool for themselves, `above` is the `returned` with which is paid back what one was lent above the limit, with a
-- ticket. It owes that, whoever asks, and for as long as it takes: a field of its own says so, while there is any.
local function read_slice(pool, read)
  local text = redis.call('HGET', K_SLICES, pool)
  local granted, returned, owed, asked, epoch, pool_epoch, drawn = string.match(text or NO_SLICE, SLICE_PATTERN)
  if math.abs(now_ms - asked) >= OWED_MS then
    owed = returned
  end
  local above = read and (pool == read.messages_pool and read.overdrawn_messages or pool == read.slices_pool and read.overdrawn_bytes) or 0
  return { granted = granted + 0, returned = returned + 0, owed = math.max(owed + 0, above), above = above, asked = asked + 0,
    epoch = epoch + 0, pool = pool_epoch + 0, drawn = drawn + 0 }
end

local function save_slice(pool, s)
  redis.call('HSET', K_SLICES, pool,
    string.format(SLICE, s.granted, s.returned, s.owed, s.asked, s.epoch, s.pool, s.drawn))
end

-- All of it that is noted as it changes.
local function totals_of(s)
  return string.format(SLICE, s.granted, s.returned, s.owed, 0, s.epoch, s.pool, 0)
end

-- What may be used of it. After a loss of state the pool knows better: until it was asked, holders get back what they
-- claim (that much they had), and nothing new is granted.
local function slice_left(read, s)
  if s.epoch ~= read.epoch then
    return now_ms < read.learning_until and math.huge or 0
  end
  return s.granted - math.max(s.returned, s.owed)
end

-- Whoever waits at another slice asks this one for what comes free here.
local function tell_what_is_free(now, before)
  if now.wanted and (now.blocked == 0 or now.owes) and (now.pending_bytes + now.leased_bytes < before[12] + before[14]
    or now.pending_messages + now.leased_messages < before[13] + before[15]) then
    for _, pool in ipairs(now.wanted) do
      redis.call('PUBLISH', string.match(K_DESTINATION, '^[^/]*/') .. pool .. '}:wake', 'free')
    end
  end
end
