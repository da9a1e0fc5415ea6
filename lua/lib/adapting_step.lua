--- @include "lib/gradient"
-- A limit that adapts: sessions say how holds ended and how long they took, and whoever calls first in a second decides for
-- all. Limits count in thousandths here. headgate/core/limits/adapting.py decides the same: the audit replays each step with it.
local LONGEST_S = 8 -- for which it waits for finished holds, and for those from before the limit was lowered
local TOLERATED = 50 -- one overload in that many finished holds does not count
local FAR = 600 -- the same of the limit: with less of it held it is lowered at once
local NEAR = 800 -- thousandths: with less of what was held served, or of the limit held, it is far off what is served

adapting.lower = function(c, target)
  c.limit = math.max(limiter.adapts.floor * 1000, math.min(target, c.limit))
  c.rest = 1 + math.min(LONGEST_S, math.floor(math.floor((c.us + c.late) / (c.ok + c.over)) / 500000))
  c.goal, c.calm, c.stale, c.doubt, c.evidence = c.limit, 0, 0, 10000, 0
end

adapting.grow = function(c)
  local calm, limit = c.calm + 1, nil
  if c.goal == 0 then
    limit = c.limit + math.max(math.floor(c.limit / 2), 1000)
  elseif adapting.growth[calm] then
    local more = adapting.growth[calm]
    local least = math.floor(1000 * math.min(more, 48) / 48) -- of a small limit a thousandth is nothing
    limit = math.max(c.limit + least, math.floor(c.goal * (1000 + more) / 1000))
  else -- an overload tells within that second
    limit = c.limit + math.max(math.floor(c.limit / 10), 1000)
  end
  c.limit, c.calm = math.min(limit, limiter.adapts.ceiling * 1000), math.min(calm, 60)
  return c.goal == 0 and 'start' or 'grow'
end

-- One decision, of whole numbers only: where the limit goes from here, and why.
adapting.decide = function(c)
  local finished, is_gradient = c.ok + c.over, limiter.adapts.adapt == 'gradient'
  local congested = c.over * TOLERATED > finished
  local few = 1
  if is_gradient then
    few = adapting.few[c.goal == 0 and 'start' or (c.calm + c.rest > 0 and 'usual' or 'dip')]
  end
  if not congested and finished < few and c.waited < LONGEST_S then
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
    adapting.lower(c, target)
    return 'overload'
  elseif not is_gradient or c.ok == 0 then
    return c.pressed == 1 and adapting.grow(c) or 'unused'
  end
  return adapting.go_by_time(c)
end
