--- @include "lib/aging"
-- The order of those that wait. What one key asks for of the same limits is a unit, '<key> <limit>,...', in turn within itself.
-- Units go by what their key got, divided by its weight, and where what is held at once keeps them waiting by what it holds:
-- whoever is served most has to wait until all are on one level. Each limit of all together has a line of its own.
local LINES = 18
local PARKED = 4503599627370496 -- behind all lines: what a limit of its key keeps waiting, until the ms added to this
local LATER_MS = 2251799813685248 -- until something is released
local SHARES = 1048576 -- steps of a share, of which none is a whole line
local TICKETS = 16777216
local STEPS = 1048576 -- of what a key got, for all of a limit, or a second of a rate
local MOST_STEPS = 1073741824 -- for one of its holds
local MOST_AHEAD_STEPS = 68719476736
local MOST_TURNS = 8796093022208
local MOST_PATIENCE_MS = 300000 -- of a deadline: whoever waits for longer stands in line as if for that long

local function key_of(unit)
  return string.match(unit, '^%S+')
end

-- Its hold and its ticket.
local function first_waiter(unit)
  local member = redis.call('ZRANGEBYLEX', K_WAITERS, '[' .. unit .. ' ', '(' .. unit .. '!', 'LIMIT', 0, 1)[1]
  local ticket, id = string.match(member or '', '(%d+) (%S+)$')
  return id, tonumber(ticket or 0)
end

-- What the key holds at once, of the limit that it has most of, in steps.
local function share_of(key)
  local most, levels = 0, read_key(key).levels
  for _, limit in ipairs(limiter.limits) do
    if limit.form == 'at_once' then
      most = math.max(most, (levels.held[limit.name] or 0) / math.max(limit.most, 1))
    end
  end
  most = most / weight_of(key)
  return math.floor(most / (1 + most) * SHARES)
end

local function start_of(key, unit)
  if d.order then -- by the deadline of its first
    return select(2, first_waiter(unit))
  end
  return math.max(d.turns, math.min(read_key(key).levels.tat.TAG or 0, d.turns + MOST_AHEAD_STEPS))
end

local function goes_by_share(line)
  return not d.order and limiter.limits[line] and limiter.limits[line].form == 'at_once'
end

-- Those who hold alike go in turn.
local function place_share(unit, line)
  local _, ticket = first_waiter(unit)
  local place = ((line + LINES * part_of_line(unit)) * SHARES + share_of(key_of(unit))) * TICKETS
  redis.call('ZADD', K_SHARES, int(place + (ticket or 0) % TICKETS), unit)
end

-- Whoever changes lines keeps its start.
local function place_unit(unit, line, start)
  redis.call('ZADD', K_LINE, int(line * SPAN + part_of_line(unit) * BETWEEN + (start or start_of(key_of(unit), unit))), unit)
  if goes_by_share(line) then
    place_share(unit, line)
  else
    redis.call('ZREM', K_SHARES, unit)
  end
end

local function park_unit(unit, wait_us)
  local until_ms = wait_us and limiter.now_ms + math.ceil(wait_us / 1000) or LATER_MS
  redis.call('ZADD', K_LINE, int(PARKED + math.min(until_ms, LATER_MS)), unit)
  redis.call('ZREM', K_SHARES, unit)
end

-- All are in one line then, as they were; those of another count have no start that says anything now.
local function begin_line_anew(is_other_count)
  redis.call('ZUNIONSTORE', K_LINE, 1, K_LINE, 'WEIGHTS', 1 / PARKED / (is_other_count and PARKED or 1))
  redis.call('DEL', K_SHARES)
end

-- Lines are numbered as the limits are.
local function number_lines()
  if d.turns > MOST_TURNS then -- the count begins anew, and all who wait are looked at
    d.turns = 0
    begin_line_anew(true)
  end
  local lines = (limiter.text or '') .. (d.order and ' ' .. d.order or '')
  if limiter.lines ~= lines then
    local was_by_deadline = not d.order and string.find(limiter.lines or '', ' deadline$')
    begin_line_anew(was_by_deadline)
    forget_clocks()
    if was_by_deadline then -- those who come now stand behind all deadlines
      d.tickets = math.max(d.tickets, limiter.now_ms + MOST_PATIENCE_MS)
    end
    limiter.lines = lines
    redis.call('HSET', K_DESTINATION, 'lines', lines)
  end
end

local function take_turn(key, amounts)
  local steps, k = 0, read_key(key)
  for _, amount in ipairs(amounts_of(amounts)) do
    local limit = limiter.forms[amount[1]]
    if limit then
      steps = math.max(steps, STEPS * amount[3] / math.max(limit.rate or limit.most, 1))
    end
  end
  local start = math.max(d.turns, math.min(k.levels.tat.TAG or 0, d.turns + MOST_AHEAD_STEPS))
  k.levels.tat.TAG = start + math.ceil(math.min(steps, MOST_STEPS) / weight_of(key))
  d.turns = start
end
