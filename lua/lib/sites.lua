-- Sites with a part in a pool: each is a member that no destination can be, and has no more than the pool says. Its weight is
-- its share beside other members, as a destination's. Nobody else gets its least, whether it uses that or not; that stands in
-- a field of its own, which older nodes pass over.
-- What one holds may be forgotten here with a loss of state. So until it was heard of in this epoch, all that it may have is
-- kept for it, whatever is known of it.
local SITE = '@'

local function read_sites(text, leasts)
  local sites, members = {}, {}
  for site, most, weight in string.gmatch(text or '', '([a-z0-9-]+)=(%d+)%*?(%d*)') do
    sites[SITE .. site] = { most = most + 0, weight = tonumber(weight) or 1, least = 0 }
    members[#members + 1] = SITE .. site
  end
  for site, least in string.gmatch(leasts or '', '([a-z0-9-]+)=(%d+)') do
    local named = sites[SITE .. site]
    if named then
      named.least = math.min(named.most, least + 0, MOST_COUNTED)
    end
  end
  return sites, members
end

local function is_site(member)
  return string.sub(member, 1, 1) == SITE
end
