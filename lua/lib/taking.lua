--- @include "lib/limits"
-- Taking of limits: whether an amount of one may be taken now, and what changes when it is, or when it was less or more.
-- After a hold-off what may be held at once grows from one to the limit, as time goes on.
local function most_at_once(limit, levels)
  local off, ramp = levels.used.OFF, levels.from.OFF
  if not off or limiter.now_ms >= ramp then
    return limit.most
  end
  return math.max(1, math.floor(limit.most * math.max(0, limiter.now_ms - off) / (ramp - off)))
end

local function used_of(limit, levels)
  return levels.from[limit.name] == window_of(limit) and levels.used[limit.name] or 0
end

-- Where state may have been lost, a rate begins without its burst.
local function tat_of(limit, levels)
  return math.max(levels.tat[limit.name] or 0, limiter.lost_us > 0 and limiter.lost_us + limit.tolerance or 0)
end

-- Whether an amount of one limit may be taken now: us until it may, 0 for now, nil where nobody knows, and the most that
-- there ever is where that is less. Of it `kept` thousandths are for others.
local function judge(limit, levels, amount, kept)
  local most, tolerance, least = limit.most, limit.tolerance, limit.floor or limit.most
  if kept and kept > 0 then
    most, least = most - math.ceil(most * kept / 1000), least - math.ceil(least * kept / 1000)
    tolerance = limit.rate and math.ceil(most * 1000000 / limit.rate)
  end
  if amount > least then -- of one that adapts no more than there is always
    return nil, least
  elseif limit.form == 'rate' then
    return math.max(0, owe(tat_of(limit, levels), amount, limit.rate) - tolerance - now_us)
  elseif limit.form == 'quota' then
    return used_of(limit, levels) + amount <= most and 0 or window_end(limit) * 1000 - clock_us
  elseif (now_ms < d.learning_until and limit.most < MOST_COUNTED)
    or (levels.held[limit.name] or 0) + amount > math.min(most, most_at_once(limit, levels)) then
    limit.pressed = true
    return nil
  end
  return 0
end

-- How much an amount takes of a limit: us of a rate, else as much as it is.
local function part_taken(limit, amount)
  return limit.form == 'rate' and owe(0, amount, limit.rate) - now_us or amount
end

-- Takes an amount, that many times one after the other.
local function charge(limit, levels, amount, times)
  local part = part_taken(limit, amount) * (times or 1)
  if limit.form == 'rate' then
    levels.tat[limit.name] = math.min(math.max(tat_of(limit, levels), now_us) + part, MOST)
  elseif limit.form == 'quota' then
    levels.used[limit.name] = math.min(used_of(limit, levels) + part, MOST_COUNTED)
    levels.from[limit.name] = window_of(limit)
  else
    levels.held[limit.name] = (levels.held[limit.name] or 0) + part
  end
end

-- What a reservation of `since` really took: less comes back, but no later window or burst gets more; more is owed.
local function settle_at(limit, levels, reserved, amount, since)
  if amount > reserved then
    charge(limit, levels, amount - reserved)
  elseif limit.form == 'rate' then
    local back = math.floor((reserved - amount) * 1000000 / limit.rate)
    levels.tat[limit.name] = tat_of(limit, levels) - back -- never a burst more: what is before now is now
  elseif levels.from[limit.name] and since >= levels.from[limit.name] then
    levels.used[limit.name] = math.max(0, used_of(limit, levels) - (reserved - amount))
  end
end
