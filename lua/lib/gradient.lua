--- @include "lib/holding"
-- How a limit follows the mean time of holds: by as much as that is longer than without a queue, the limit is above what is
-- served. Of whole numbers only, in thousandths; headgate/core/limits/adapting.py says what each is for.

-- Below what is served: to see the time without a queue.
adapting.dip = function(c, mean, goal)
  c.goal, c.limit = goal, math.max(limiter.adapts.floor * 1000, math.floor(goal * 920 / 1000))
  c.rest, c.calm, c.stale, c.evidence = 1 + math.min(8, math.floor(mean / 500000)), 0, 0, 0
end

-- A little above it: so short a queue is seen to vanish.
adapting.stand = function(c, aim)
  local least, most = limiter.adapts.floor * 1000, limiter.adapts.ceiling * 1000
  local to = math.floor((math.floor(c.goal * (1000 + aim) / 1000) + 500) / 1000) * 1000
  c.limit, c.calm = math.max(least, math.min(to, most)), 1
end

-- Further above what was seen to be free of a queue: near the capacity that it knew as little as a second tells.
adapting.further = function(c, goal, whole, blur, rest)
  local to = math.floor(goal * (1000 + math.min(300, math.max(80, math.floor(math.sqrt(12 * blur))))) / 1000)
  if c.calm > 1 then
    local far = math.floor(whole * 1300 / 1000)
    local is_beyond = whole > math.floor(c.known * 110 / 100)
    to = is_beyond and far or math.max(to, math.min(far, math.floor(c.known * 95 / 100)))
  end
  c.limit = math.min(limiter.adapts.ceiling * 1000, math.max(math.floor(to / 1000) * 1000, whole + 1000))
  c.goal, c.calm, c.rest, c.evidence = goal, math.min(c.calm + 1, 60), rest, 2000
end

adapting.go_by_time = function(c)
  local mean = math.max(1, math.floor(c.us / c.ok))
  local base, ticks = c.base > 0 and c.base or mean, math.floor(math.floor(c.us / 64) / c.ok)
  local spread = math.max(0, math.floor(c.squares / c.ok) - ticks * ticks)
  local off = math.min(1000, math.floor(64 * math.floor(math.sqrt(math.floor(spread / c.ok))) * 1000 / base))
  local longer = math.min(3000, math.floor(mean * 1000 / base)) - 1000
  local whole = math.floor(c.limit / 1000) * 1000
  local above = c.goal > 0 and math.min(1000, math.max(0, math.floor(whole * 1000 / c.goal) - 1000)) or 0
  local seen = math.floor(math.min(2000, math.floor(base * 1000 / mean)) * whole / 1000) -- that many did not wait
  if longer > above + 60 + math.floor(off * (c.goal > 0 and 5 or 10) / 2) then
    local worst, high = math.max(c.worst, mean), math.max(c.high, c.limit)
    local is_low = c.limit * 2 <= high or c.limit <= limiter.adapts.floor * 1000
    if is_low and c.worst > 0 and mean * 10 > worst * 8 then -- less did not make it faster: the service itself is slower
      c.base, c.worst, c.high, c.stale = mean, 0, 0, 0
      return 'slower'
    end
    adapting.dip(c, mean, math.max(math.floor(whole / 2), math.min(seen, math.floor(whole * 97 / 100))))
    c.base, c.worst, c.high, c.doubt = base, worst, high, 10000
    return 'slow'
  end
  if c.goal == 0 or c.calm == 0 or c.pressed == 0 or longer < -20 - 3 * off then
    base = base + math.floor((mean - base) / 4)
  end
  c.base, c.worst, c.high, c.stale = math.max(1, base), 0, 0, c.stale + 1
  local rest = math.min(8, math.floor(mean / 400000)) -- it grows fast: a queue is to be seen first
  if c.pressed == 0 then
    c.stale, c.calm, c.evidence = 0, math.min(c.calm, 1), 0
    return 'unused'
  elseif c.goal == 0 then
    c.rest = rest
    return adapting.grow(c)
  end
  local aim = math.max(math.floor(1000000 / c.goal), math.min(50, math.max(35, math.floor(off * 13 / 10))))
  if c.calm == 0 then
    adapting.stand(c, aim)
    c.stale, c.evidence, c.rest = 0, 0, rest
    return 'grow'
  end
  local blur, queue = off * off + 225, c.calm == 1 and aim or above -- machines are slower and faster for a second
  local ratio = math.floor(queue * (math.floor(queue / 2) - longer) * 1000 / blur)
  c.evidence = math.max(0, math.min(6000, c.evidence + math.min(6000, math.max(-6000, ratio))))
  if c.calm == 1 then
    local weight = math.floor(c.doubt * 1000 / (c.doubt + blur))
    c.goal = math.max(1000, c.goal + math.floor((seen - c.goal) * weight / 1000))
    c.doubt = math.floor(c.doubt * (1000 - weight) / 1000) + 100
    c.known = math.max(c.goal, c.known - math.floor(c.known / 1000)) -- half is forgotten in a quarter of an hour
    if c.evidence >= 3000 and whole < limiter.adapts.ceiling * 1000 then
      adapting.further(c, c.goal, whole, blur, rest)
      return 'grow'
    elseif c.stale >= 20 and c.evidence < 1000 then
      adapting.dip(c, mean, c.goal)
      return 'probe'
    end
    adapting.stand(c, aim)
    return 'keep'
  elseif c.evidence == 0 then
    adapting.dip(c, mean, math.max(math.floor(c.goal * 9 / 10), math.min(seen, whole)))
    c.doubt = 10000
    return 'slow'
  elseif c.evidence < 6000 then
    return 'keep'
  elseif whole == limiter.adapts.ceiling * 1000 then
    c.goal, c.calm, c.evidence = whole, 1, 0
    return 'keep'
  end
  adapting.further(c, whole, whole, blur, rest)
  return 'grow'
end
