--- @include "lib/holding"
-- The order of keys that wait. They go by what they got, divided by their weight, and
-- where what is held at once is scarce by what they hold: whoever is served most has to wait until all are on one level.
local PARKED = 4503599627370496 -- behind all others: a key that a limit of its own keeps waiting, until the ms added to this
local LATER_MS = 2251799813685248 -- until something is released
local STEPS = 1048576 -- of what a key got, for all of a limit, or a second of a rate
local MOST_STEPS = 1073741824 -- for one of its holds
local MOST_AHEAD_STEPS = 68719476736
local MOST_TURNS = 1125899906842624

-- What the key holds at once, of the limit that it has most of.
local function share_of(key)
  local most, levels = 0, read_key(key).levels
  for _, limit in ipairs(limiter.limits) do
    if limit.form == 'at_once' then
      most = math.max(most, (levels.held[limit.name] or 0) / math.max(limit.most, 1))
    end
  end
  return string.format('%.9f', most / weight_of(key))
end

local function start_of(key)
  return math.max(d.turns, math.min(read_key(key).levels.tat.TAG or 0, d.turns + MOST_AHEAD_STEPS))
end

local function place_key(key)
  redis.call('ZADD', K_LINE, int(start_of(key)), key)
  redis.call('ZADD', K_SHARES, share_of(key), key)
end

local function park_key(key, wait_us)
  local until_ms = wait_us and limiter.now_ms + math.ceil(wait_us / 1000) or LATER_MS
  redis.call('ZADD', K_LINE, int(PARKED + math.min(until_ms, LATER_MS)), key)
  redis.call('ZREM', K_SHARES, key)
end

-- Something of the key came back: if it was parked it is looked at again.
local function stir_key(key)
  if d.blocked > 0 and redis.call('ZSCORE', K_LINE, key) then
    place_key(key)
  end
end

local function take_turn(key, amounts)
  local steps, k = 0, read_key(key)
  for _, amount in ipairs(amounts_of(amounts)) do
    local limit = limiter.forms[amount[1]]
    if limit then
      steps = math.max(steps, STEPS * amount[3] / math.max(limit.rate or limit.most, 1))
    end
  end
  local start = start_of(key)
  k.levels.tat.TAG = start + math.ceil(math.min(steps, MOST_STEPS) / weight_of(key))
  d.turns = start
  if d.turns > MOST_TURNS then -- the count begins anew; all who wait keep their order, and the parked are looked at
    d.turns = 0
    redis.call('ZUNIONSTORE', K_LINE, 1, K_LINE, 'WEIGHTS', 1 / PARKED)
  end
end
