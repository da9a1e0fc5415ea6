--- @include "lib/pool"
-- What a member may have of a pool, ever and now: less what is for sites alone.
local function most_of(m)
  local others = p.least - (m.least or 0)
  return math.min(p.most - (m.reserved == 1 and 0 or p.reserve) - others, m.most or math.huge)
end

-- Of a site: it has a right to more, whoever waits.
local function lacks_least(m)
  return m.granted - m.returned < (m.least or 0)
end

-- Bytes that nobody but this member gets, for other sites may hold them, or are to find them here.
local function kept_from(m)
  local bytes = 0
  for _, site in pairs(p.sites) do
    local may_hold = site.heard == p.epoch and (site == m and 0 or site.least) or site.most
    bytes = bytes + math.max(0, may_hold - (site.granted - site.returned))
  end
  return bytes
end

local function pool_room(m)
  local room = p.limit - (m.reserved == 1 and 0 or p.reserve) - p.granted - kept_from(m)
  return math.min(room, (m.most or math.huge) - (m.granted - m.returned))
end
