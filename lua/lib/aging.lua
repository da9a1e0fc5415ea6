--- @include "lib/bands"
-- Which band has its turn in a line: the best, and another one once as much went before it as it may be passed by, its `place` on
-- the clock of what was let in of that limit. Nothing here is read, nor kept, while nobody waits in another band than 3.
local DEARER = 16 -- times what a band takes, and for each band before it, until its turn comes again
local clocks -- by line: what was let in, and the places of its bands

local function read_clocks()
  if clocks then
    return clocks
  end
  clocks = {}
  for line, work, places in string.gmatch(limiter.banded or '', '(%d+) ([%d.]+) ([^;]*)') do
    local clock = { work = work + 0, places = {} }
    for band, place in string.gmatch(places, '(%d)@([%d.]+)') do
      clock.places[band + 0] = place + 0
    end
    clocks[line + 0] = clock
  end
  return clocks
end

-- Whose turn it is in a line: of those that were passed as far as may be the one that was so first, else the best; whether it was;
-- and the best where that may still have what is kept from this one: until as much passed it again.
local function band_in_turn(line)
  -- The clock of a line in which these bands wait: one that comes anew may be passed from now on.
  local function clock_of(line, bands)
    local clock = read_clocks()[line] or { work = 0, places = {} }
    local places = {}
    for _, band in ipairs(bands) do
      places[band] = math.min(clock.places[band] or math.huge, clock.work + ahead_of(band))
    end
    clock.places, clocks[line] = places, clock
    return clock
  end

  -- The bands that wait in a line.
  local function bands_in(line)
    local from, to, found = line * SPAN, '(' .. int((line + 1) * SPAN), {}
    for _ = 1, BANDS do
      local first = redis.call('ZRANGEBYSCORE', K_LINE, int(from), to, 'WITHSCORES', 'LIMIT', 0, 1)
      if not first[1] then
        break
      end
      local part = math.floor((first[2] - line * SPAN) / BETWEEN)
      found[#found + 1] = (part + USUAL) % BANDS
      from = line * SPAN + (part + 1) * BETWEEN
    end
    table.sort(found)
    return found
  end

  local bands = bands_in(line)
  if line == NEW or not bands[1] then
    return bands[1], false
  end
  local clock, found = clock_of(line, bands), nil
  for _, band in ipairs(bands) do
    if band > 0 and clock.places[band] <= math.min(clock.work, found and clock.places[found] - 1e-9 or clock.work) then
      found = band
    end
  end
  local yields = found and d.reserve and clock.work < clock.places[found] + ahead_of(found)
  return found or bands[1], found ~= nil, yields and bands[1]
end

-- What was let in, past those who wait in lines of its limits or from one of them.
local function pass_bands(amounts, line)
  local function steps_of(limit, number)
    return number / math.max(limit.rate or limit.most, 1)
  end

  local band = band_of(amounts)
  for _, amount in ipairs(limiter.banded and amounts_of(amounts) or {}) do
    local limit = limiter.forms[amount[1]]
    local clock = limit and read_clocks()[limit.index]
    if clock then
      local steps = steps_of(limit, amount[3])
      clock.work = clock.work + steps
      if limit.index == line then
        clock.places[band] = clock.work + DEARER * band * steps
      end
    end
  end
end

-- All who wait are looked at anew.
local function forget_clocks()
  clocks = {}
end

local function save_clocks()
  local texts = {}
  for line, clock in pairs(read_clocks()) do
    local places = {}
    for band, place in pairs(clock.places) do
      places[#places + 1] = band .. '@' .. string.format('%.9f', place)
    end
    texts[#texts + 1] = string.format('%d %.9f ', line, clock.work) .. table.concat(places, ',')
  end
  if d.blocked == 0 then
    redis.call('HDEL', K_DESTINATION, 'banded')
  else
    redis.call('HSET', K_DESTINATION, 'banded', texts[1] and table.concat(texts, ';') or '-')
  end
end
