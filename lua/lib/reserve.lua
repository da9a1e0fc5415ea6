--- @include "lib/keyed"
-- What is kept of limits for better bands: '<band>=<thousandths>;...', each for the bands up to that one.
local USUAL = 3
local came_back = {} -- in this call, by limit, where its pace is kept

-- The band of what a hold asks for, as that keeps it.
local function band_of(amounts)
  return tonumber(string.match(amounts, '~([0-7])') or USUAL)
end

-- Thousandths of each limit of all keys that are not for this band.
local function kept_from(amounts)
  local most, band = 0, band_of(amounts)
  for upto, share in string.gmatch(d.reserve, '([0-7])=(%d+)') do
    most = upto + 0 < band and math.max(most, share + 0) or most
  end
  return most
end
