--- @include "lib/by_band"
-- Bands: 0 goes first, 7 last; whoever names none has 3, or what the policy says of its key. In each line every band has a part of
-- its own.
local SPAN = 140737488355328 -- between two lines: of the first limit, of the next ones, and of units that are to be looked at
local NEW = 17
local BANDS = 8
local BETWEEN = 17592186044416 -- two bands of a line: the usual one comes first there, then those after it, around
local AGING = 1 -- of a limit at once, or seconds of a rate, by which a band may be passed for each band before it

-- The band that a caller names, but none before that of its key, which is also that of who names none.
local function asked_band(key, text)
  local band, best = tonumber(string.match(text, '~([0-7])')), nil
  if d.bands then
    local of_key, is_named = weight_among(d.bands, pinned.name_of(key))
    best = is_named and of_key or nil
  end
  return math.max(band or best or USUAL, best or 0)
end

-- What is asked for as a hold keeps it: '~<band>' after its amounts, where that is not the usual one.
local function with_band(amounts, band)
  return band == USUAL and amounts or amounts .. '~' .. band
end

local function without_band(amounts)
  return (string.gsub(amounts, '~.*', ''))
end

-- The part of a line in which a unit is.
local function part_of_line(unit)
  local band = string.match(unit, '~(%d)$')
  return band and (band - USUAL) % BANDS or 0
end

-- What may go before a band of which somebody waits.
local function ahead_of(band)
  return band * (tonumber(d.aging) or AGING)
end

-- Which of two that wait for a limit of one key comes first: there a band may be passed for that many seconds.
local function is_earlier(h, mine)
  local own, band = band_of(h.amounts), band_of(mine.amounts)
  if own == band then
    return h.ticket < mine.ticket
  end
  return h.since + ahead_of(own) * 1000 < mine.since + ahead_of(band) * 1000
end
