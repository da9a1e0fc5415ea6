--- @include "lib/waiters"
-- The first of each line, whose turn it is.
local MAX_EMPTY = 4

-- The first line from `from` on in which somebody is.
local function next_line(from)
  local first = redis.call('ZRANGEBYSCORE', K_LINE, int(from * SPAN), '(' .. int(PARKED), 'WITHSCORES', 'LIMIT', 0, 1)
  return first[1] and math.floor(first[2] / SPAN)
end

-- The first of a line; nil where nobody is in it.
local function first_of(line)
  -- Of the units of a key that has limits the one to be looked at first.
  local function earliest_of(unit)
    local key, first = key_of(unit), nil
    local units = next(read_key(key).forms) and units_of(key) or {}
    for _, other in ipairs(#units > 1 and units or {}) do
      local score = tonumber(redis.call('ZSCORE', K_LINE, other) or 0)
      local id = score >= NEW * SPAN and score < PARKED and first_waiter(other)
      local h = id and read_hold(id)
      if h and (not first or is_earlier(h, first)) then
        unit, first = other, h
      end
    end
    return unit
  end

  -- Whoever is in line keeps its start where lines begin anew; who was parked had none.
  local function start_in(unit, score)
    if line > 0 then
      return score % BETWEEN
    end
    return score < 1 and score * PARKED % BETWEEN or start_of(key_of(unit), unit)
  end

  -- Of all bands, where none is named.
  local function first_of_band(band, is_aged, yields)
    local begins, ends = line * SPAN, (line + 1) * SPAN
    if band then
      begins = begins + (band - USUAL) % BANDS * BETWEEN
      ends = begins + BETWEEN
    end
    local first = redis.call('ZRANGEBYSCORE', K_LINE, int(begins), '(' .. int(ends), 'WITHSCORES', 'LIMIT', 0, 1)
    local unit, score = first[1], first[2]
    if not unit then
      return nil, true
    elseif goes_by_share(line) then
      local from = (line + LINES * part_of_line(unit)) * SHARES
      unit = redis.call('ZRANGEBYSCORE', K_SHARES, int(from * TICKETS), '(' .. int((from + SHARES) * TICKETS), 'LIMIT', 0, 1)[1] or unit
      score = unit == first[1] and score or redis.call('ZSCORE', K_LINE, unit)
    end
    if line == NEW then
      unit = earliest_of(unit)
      score = unit == first[1] and score or redis.call('ZSCORE', K_LINE, unit)
    end
    local id, ticket = first_waiter(unit)
    local h = id and read_hold(id)
    if h then
      local start = d.order and ticket or start_in(unit, score + 0) -- lines that begin anew know no deadlines
      return { line = line, unit = unit, key = key_of(unit), start = start, id = id, ticket = ticket, h = h, is_aged = is_aged,
        yields = yields }
    end
    forget_unit(unit)
  end

  for _ = 1, MAX_EMPTY do
    local band, is_aged, best
    if limiter.banded then
      band, is_aged, best = band_in_turn(line)
    end
    local first, is_empty = first_of_band(band, is_aged, best)
    if first and best and best ~= band and what_binds(first.key, first.h.amounts) ~= 0 then
      local other = first_of_band(best, false)
      first = other and kept_from(other.h.amounts) < kept_from(first.h.amounts) and other or first
    end
    if first or is_empty then
      return first
    end
  end
end
