--- @include "lib/rate"
-- What a slice has in hand of a rate that all slices share, in totals of one `home`, as the first slice numbers what it knows of all,
-- and of one epoch here: what was granted, spent and given back. `at` is when something was granted last.
local RATE_HAND = 'home=%d epoch=%d granted=%d spent=%d back=%d at=%d'
local KEPT_MS = 100 -- for which what was lent is for whoever asked for it
local MOST_KEPT = 128
local KEPT = ' @%s %d %d'
local KEPT_PATTERN = ' @(%S+) (%d+) (%d+)'
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

-- What is in hand for other senders, what of it is for the caller, and what is written of the others.
local function read_kept(kind, sid)
  local theirs, own, rest = 0, 0, {}
  for id, amount, at in string.gmatch(redis.call('HGET', K_DESTINATION, kind .. '_kept') or '', KEPT_PATTERN) do
    if math.abs(now_ms - at) < KEPT_MS and id == sid then
      own = own + amount
    elseif math.abs(now_ms - at) < KEPT_MS then
      theirs, rest[#rest + 1] = theirs + amount, string.format(KEPT, id, amount, at)
    end
  end
  return theirs, own, rest
end

-- Keeps so much in hand for the caller.
local function save_kept(kind, rest, sid, own)
  if own > 0 then
    rest[#rest + 1] = string.format(KEPT, sid, own, now_ms)
  end
  if #rest > 0 then
    redis.call('HSET', K_DESTINATION, kind .. '_kept', table.concat(rest, '', math.max(1, #rest - MOST_KEPT + 1)))
  else
    redis.call('HDEL', K_DESTINATION, kind .. '_kept')
  end
end

-- What the caller may send of what a slice has in hand.
local function in_hand_of(kind, h, sid)
  local has = h.granted - h.spent - h.back
  return has > 0 and math.max(0, has - (read_kept(kind, sid))) or 0
end

local function spend_in_hand(kind, sid, amount)
  local h = read_hand(kind)
  local _, own, rest = read_kept(kind, sid)
  h.spent = h.spent + amount
  save_hand(kind, h)
  if own > 0 then
    save_kept(kind, rest, sid, own - amount)
  end
end
