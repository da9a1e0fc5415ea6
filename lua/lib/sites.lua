-- Sites with a part in a pool: each is a member that no destination can be, and has no more than the pool says. Its weight is
-- its share beside other members, as a destination's.
-- What one holds may be forgotten here with a loss of state. So until it was heard of in this epoch, all that it may have is
-- kept for it, whatever is known of it.
local SITE = '@'

local function read_sites(text)
  local sites, members = {}, {}
  for site, most, weight in string.gmatch(text or '', '([a-z0-9-]+)=(%d+)%*?(%d*)') do
    sites[SITE .. site] = { most = most + 0, weight = tonumber(weight) or 1 }
    members[#members + 1] = SITE .. site
  end
  return sites, members
end

local function is_site(member)
  return string.sub(member, 1, 1) == SITE
end
