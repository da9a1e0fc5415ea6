--- @include "lib/rate"
-- What a slice has in hand of a rate that all slices share, in totals of one `home`, as the first slice numbers what it knows of all,
-- and of one epoch here: what was granted, spent and given back. `at` is when something was granted last.
local RATE_HAND = 'home=%d epoch=%d granted=%d spent=%d back=%d at=%d'
local RATE_HAND_PATTERN = '^home=(%d+) epoch=(%d+) granted=(%d+) spent=(%d+) back=(%d+) at=(%d+)$'

local function empty_hand(home)
  return { home = home, epoch = d.epoch, granted = 0, spent = 0, back = 0, at = 0 }
end

local function read_hand(kind)
  local text = redis.call('HGET', K_DESTINATION, kind .. '_hand')
  local home, epoch, granted, spent, back, at = string.match(text or '', RATE_HAND_PATTERN)
  if not home or epoch + 0 ~= d.epoch then -- what was spent of it may be forgotten here
    return empty_hand(tonumber(home or 0))
  end
  return { home = home + 0, epoch = epoch + 0, granted = granted + 0, spent = spent + 0, back = back + 0, at = at + 0 }
end

local function save_hand(kind, h)
  redis.call('HSET', K_DESTINATION, kind .. '_hand', string.format(RATE_HAND, h.home, h.epoch, h.granted, h.spent, h.back, h.at))
end
