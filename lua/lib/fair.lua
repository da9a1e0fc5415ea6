--- @include "lib/serve"
-- The line of a pool, by weighted max-min: the lower the level of a member, which is what it holds for each unit of its
-- weight, the further in front. So whoever is served most has to wait, until all who wait are on one level.
local MAX_COMPARED = 512
local LEVELS = 1048576 -- steps from nothing to all that a member may hold
local TICKETS = 1073741824 -- after which the tickets of equals begin anew
local AHEAD = 4503599627370496 -- by which the reserved are before all others; half of it, sites that lack of their least

-- Whether what is free, and what others hold above this member's level, covers what it lacks. Otherwise it waits behind
-- those for whom it does, for it could only be served if others fell below it: a large message keeps nobody small waiting
-- that holds less, and none for which there is a share waits for ever.
local function has_a_claim(member, m)
  local own, lacks = m.granted - m.returned, m.need - m.granted
  if own <= 0 or lacks_least(m) or lacks <= pool_room(m) then
    return true
  end
  local count = redis.call('HLEN', K_MEMBERS)
  if count > MAX_COMPARED then -- too many to compare with: an equal share
    return (own + lacks) * count <= most_of(m) * m.weight
  end
  local left = most_of(m) - own - lacks
  local members = redis.call('HGETALL', K_MEMBERS)
  for i = 1, #members, 2 do
    local o = parse_member(members[i + 1])
    if members[i] ~= member and o.reserved >= m.reserved then -- the reserved may have all of those who are not
      local site = p.sites[members[i]] -- whose least is in none's reach
      local level = math.min(o.granted - o.returned, math.floor(own * o.weight / m.weight))
      left = left - math.max(0, level - (site and site.least or 0))
    end
  end
  return left >= 0
end

local function stand_in_line(member, m)
  local ticket = tonumber(redis.call('ZSCORE', K_LINE, member) or nil)
  if not ticket then
    p.tickets = p.tickets + 1
    ticket = p.tickets
  end
  local claims, held = true, 0 -- whoever needs all has its turn as one that has nothing: nobody else goes on meanwhile
  if not lacks_all(m) then
    claims = has_a_claim(member, m)
    held = m.granted - m.returned + (claims and 0 or m.need - m.granted)
  end
  local step = math.min(math.floor(held * LEVELS / (m.weight * most_of(m))), LEVELS - 1) + (claims and 0 or LEVELS)
  local ahead = lacks_least(m) and AHEAD / 2 or m.reserved * AHEAD
  redis.call('ZADD', K_LINE, int(step * TICKETS + ticket % TICKETS - ahead), member)
end

-- Put a member in line for what it lacks, and serve it when it is its turn; while nobody else waits it gets some more.
local function ask_for(member, m, chunk)
  if m.need <= m.granted or beyond_limit(m) then
    redis.call('ZREM', K_LINE, member)
    return
  end
  stand_in_line(member, m)
  local only = redis.call('ZCARD', K_LINE) == 1
  serve_line(member, m)
  if only and m.need <= m.granted then
    local share = math.floor((p.limit - p.reserve) / (2 * (redis.call('HLEN', K_MEMBERS) + 1)))
    draw(m, math.max(0, math.min(chunk, share, pool_room(m))))
  end
end
