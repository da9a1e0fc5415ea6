--- @include "lib/holding"
-- A limit that adapts: sessions say how holds ended and how long they took, and whoever calls first in a second decides for
-- all. Limits count in thousandths here. headgate/core/limits/adapting.py decides the same: the audit replays each step with it.
local FEW = 30 -- finished holds whose mean time says something
local LONGEST_S = 8 -- for which it waits for these, and for holds from before the limit was lowered
local TOLERATED = 50 -- one overload in that many finished holds does not count
local FAR = 600 -- the same of the limit: with less of it held it is lowered at once
local NEAR = 800 -- thousandths: with less of what was held served, or of the limit held, it is far off what is served
local PROBE_AFTER_S = 15 -- then a gradient lowers the limit for a moment, to see the time without a queue

-- One decision, of whole numbers only: where the limit goes from here, and why.
adapting.decide = function(c)
  -- Thousandths above the last good limit, by the seconds since then, and of each second after. An overload tells at once
  -- that it is too high, a mean time later.
  local is_aimd = limiter.adapts.adapt == 'aimd'
  local GROWTH, STEP = is_aimd and { 8, 40, 100 } or { 4, 16, 48, 80, 160, 320 }, is_aimd and 100 or 250

  local function lower(c, target)
    c.limit = math.max(limiter.adapts.floor * 1000, math.min(target, c.limit))
    c.rest = 1 + math.min(LONGEST_S, math.floor(math.floor((c.us + c.late) / (c.ok + c.over)) / 500000))
    c.goal, c.calm, c.stale = c.limit, 0, 0
  end

  local function grow(c)
    local calm, limit = c.calm + 1, nil
    if c.goal == 0 then
      limit = c.limit + math.max(math.floor(c.limit / 2), 1000)
    elseif GROWTH[calm] then
      local least = math.floor(1000 * math.min(GROWTH[calm], 48) / 48) -- of a small limit a thousandth is nothing
      limit = math.max(c.limit + least, math.floor(c.goal * (1000 + GROWTH[calm]) / 1000))
    else
      limit = c.limit + math.max(math.floor(c.limit * STEP / 1000), 1000)
    end
    c.limit, c.calm = math.min(limit, limiter.adapts.ceiling * 1000), math.min(calm, 60)
    return c.goal == 0 and 'start' or 'grow'
  end

  -- By the mean time of holds against what it is without a queue, as far as their number and spread let it be known.
  local function go_by_time(c)
    local mean = math.floor(c.us / c.ok)
    local base, ticks = c.base > 0 and c.base or mean, math.floor(math.floor(c.us / 64) / c.ok)
    local spread = math.max(0, math.floor(c.squares / c.ok) - ticks * ticks)
    local doubt = 64 * math.floor(math.sqrt(math.floor(spread / c.ok))) * (c.goal > 0 and 25 or 50)
    if mean * 100 > base * 106 + doubt * 10 then
      local worst, high = math.max(c.worst, mean), math.max(c.high, c.limit)
      local is_low = c.limit * 2 <= high or c.limit <= limiter.adapts.floor * 1000
      if is_low and c.worst > 0 and mean * 10 > worst * 8 then -- less did not make it faster: the service itself is slower
        c.base, c.worst, c.high, c.stale = mean, 0, 0, 0
        return 'slower'
      end
      local part = math.min(math.floor(math.floor(base * 1000 / mean) * 95 / 100), 920)
      lower(c, math.max(math.floor(c.limit / 2), math.floor(c.limit * part / 1000)))
      c.base, c.worst, c.high = base, worst, high
      return 'slow'
    end
    if c.calm == 0 or c.goal == 0 or c.pressed == 0 then
      base = base + math.floor((mean - base) / (mean < base and 4 or 12)) -- a queue that is left over is not to become usual
    end
    c.base, c.worst, c.high, c.stale = math.max(1, base), 0, 0, c.stale + 1
    if c.pressed == 0 then
      c.stale, c.calm = 0, math.min(c.calm, 1)
      return 'unused'
    elseif c.goal > 0 and c.stale >= PROBE_AFTER_S and c.calm < 4 then -- not while it finds more and more
      local before = c.limit
      lower(c, math.floor(before * 92 / 100))
      c.goal = before
      return 'probe'
    elseif c.goal > 0 and mean * 100 > base * 103 + doubt * 5 then
      c.calm = math.min(math.max(c.calm, 1), 2)
      return 'keep'
    end
    c.rest = c.goal == 0 and math.min(LONGEST_S, math.floor(mean / 500000)) or 0 -- it grows fast: a queue is to be seen first
    return grow(c)
  end

  local finished = c.ok + c.over
  local congested = c.over * TOLERATED > finished
  local enough = congested or finished >= (limiter.adapts.adapt == 'gradient' and FEW or 1)
  if not enough and c.waited < LONGEST_S then
    c.waited, c.rest = c.waited + 1, math.max(0, c.rest - 1)
    return 'few'
  end
  c.waited = 0
  if c.rest > 0 then
    c.rest = c.rest - 1
    return 'rest'
  elseif congested then
    -- The part of what was held that was served scatters less than how much was served in a second.
    local part = math.floor(math.floor(c.us / 1024) * 1000 / math.max(1, math.floor((c.us + c.late) / 1024)))
    local target = math.floor(c.limit * math.min(part, 980) / 1000)
    local held = math.floor((c.busy + math.floor(c.late / 1000)) * 1000 / c.limit)
    if part < NEAR or held < NEAR then
      local least = (part < NEAR or held < FAR) and 500 or NEAR
      target = math.max(math.floor(c.limit * least / 1000), math.min(target, c.busy))
    end
    lower(c, target)
    return 'overload'
  elseif limiter.adapts.adapt == 'aimd' or c.ok == 0 then
    return c.pressed == 1 and grow(c) or 'unused'
  end
  return go_by_time(c)
end
