--- @include "lib/turns"
-- Those who wait in one unit, in turn, and the units of a key.
local STALE_WAITER_MS = 3000
local MAX_UNITS = 16
local joined = {} -- in this call, by id

-- Until when a waiter keeps its place after it asked; one that died meanwhile gets nothing that it would keep past its TTL + 1 s.
local function stale_after(h)
  return math.min(STALE_WAITER_MS, 700 + math.floor(h.ttl * 6 / 10))
end

local function unit_of(key, amounts)
  return key .. ' ' .. string.gsub(amounts, '[=:]%d+', '')
end

local function units_of(key)
  local units, from = {}, '[' .. key .. ' '
  for _ = 1, MAX_UNITS do
    local member = redis.call('ZRANGEBYLEX', K_WAITERS, from, '(' .. key .. '!', 'LIMIT', 0, 1)[1]
    if not member then
      break
    end
    units[#units + 1] = string.match(member, '^%S+ %S+')
    from = '(' .. units[#units] .. '!'
  end
  return units
end

-- What the key holds became more or less. Where something came back, what was parked is looked at again, before anybody is let in.
local function shift_key(key, came_back)
  for _, unit in ipairs(d.blocked > 0 and units_of(key) or {}) do
    local score = tonumber(redis.call('ZSCORE', K_LINE, unit) or PARKED)
    if score < PARKED and goes_by_share(math.floor(score / SPAN)) then
      place_share(unit, math.floor(score / SPAN))
    elseif score >= PARKED and came_back then
      place_unit(unit, NEW)
      limiter.stirred = true
    end
  end
end

local function stir_key(key)
  shift_key(key, true)
end

local function waiter_member(id, h)
  return string.format('%s %016d %s', unit_of(h.key, h.amounts), h.ticket, id)
end

-- With its first the deadline of a unit is another.
local function place_anew(unit)
  local score = tonumber(redis.call('ZSCORE', K_LINE, unit) or PARKED)
  if score < PARKED then
    place_unit(unit, math.floor(score / SPAN))
  end
end

local function join_line(id, h, wait_ms)
  local unit = unit_of(h.key, h.amounts)
  d.tickets = d.tickets + 1
  h.state, h.ticket = 'W', d.order and limiter.now_ms + math.min(wait_ms, MOST_PATIENCE_MS) or d.tickets
  limiter.banded = limiter.banded or (part_of_line(unit) > 0 and '-')
  local more = redis.call('ZADD', K_WAITERS, 0, waiter_member(id, h))
  d.blocked = d.blocked + more
  by_band.count(band_of(h.amounts), 1, more)
  joined[id] = true
  save_hold(id, h)
  if not redis.call('ZSCORE', K_LINE, unit) then
    place_unit(unit, NEW)
    d.turns = d.turns + 1 -- whoever comes later is behind it
  elseif d.order then
    place_anew(unit)
  end
end

local function forget_unit(unit)
  redis.call('ZREM', K_LINE, unit)
  redis.call('ZREM', K_SHARES, unit)
end

-- Returns whether others of its unit wait still. The next may need less than it did.
local function leave_line(id, h)
  local unit = unit_of(h.key, h.amounts)
  local less = redis.call('ZREM', K_WAITERS, waiter_member(id, h))
  d.blocked = d.blocked - less
  by_band.count(band_of(h.amounts), 1, -less)
  if not first_waiter(unit) then
    forget_unit(unit)
    return false
  elseif tonumber(redis.call('ZSCORE', K_LINE, unit) or PARKED) >= PARKED then
    place_unit(unit, NEW)
    limiter.stirred = true
  elseif d.order then
    place_anew(unit)
  end
  return true
end
