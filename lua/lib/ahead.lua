--- @include "lib/queueing"
-- What goes before one that joins a line or waits in it, as keys take turns.
local MAX_COUNTED = 32 -- units of a band of a line; beyond, as many as these are alike
local MAX_WEIGHED = 8 -- waiters of a unit, of which the others are taken to be like
local SHORTEST_MS = 1000 -- in which a rate of arrivals differs from a burst
local ahead = {} -- one table: a function of Lua has room for 200 local names

-- Those of a unit, up to a ticket: how many they are, and what they ask for of a limit.
ahead.queue_of = function(unit, name, ticket)
  local from, to = '[' .. unit .. ' ', '(' .. unit .. (ticket and string.format(' %016d', ticket) or '!')
  local found = limiter.queues[to .. ' ' .. name]
  if not found then
    local some, sum, seen = redis.call('ZRANGEBYLEX', K_WAITERS, from, to, 'LIMIT', 0, MAX_WEIGHED), 0, 0
    for _, member in ipairs(some) do
      local h = read_hold(string.match(member, '%S+$'))
      local number = h and string.match(',' .. h.amounts, ',' .. name .. '[=:](%d+)')
      sum, seen = sum + (number or 0), seen + (number and 1 or 0)
    end
    local count = #some < MAX_WEIGHED and #some or redis.call('ZLEXCOUNT', K_WAITERS, from, to)
    found = { count = count, amount = seen > 0 and sum / seen * count or 0 }
    limiter.queues[to .. ' ' .. name] = found
  end
  return found
end

-- How many of other keys came in a us, since the first of a unit did that waits still: that many tickets were given, less its own.
-- By deadlines tickets are no count.
ahead.others_came = function(unit)
  local id, ticket = first_waiter(unit)
  local h = not d.order and id and read_hold(id)
  local came = h and d.tickets - ticket + 1 - ahead.queue_of(unit, '').count or 0
  return h and math.max(0, came) / math.max(SHORTEST_MS, now_ms - h.since) / 1000 or 0
end

-- What goes before one: all of better bands; those of its own key up to its ticket; and of each other key as much as of its own, by
-- their weights: with its own where that key has the next turn.
ahead.before = function(limit, key, band, ticket)
  local before, turn = { count = 0, amount = 0, own = 0, own_count = 0, others = {}, came = 0 }, math.huge
  local order = goes_by_share(limit.index) and K_SHARES or K_LINE
  for each = 0, band do
    local from = limit.index * SPAN + (each - USUAL) % BANDS * BETWEEN
    local to = '(' .. int(from + BETWEEN)
    local units = redis.call('ZRANGEBYSCORE', K_LINE, int(from), to, 'LIMIT', 0, MAX_COUNTED)
    local times = #units < MAX_COUNTED and 1 or redis.call('ZCOUNT', K_LINE, int(from), to) / MAX_COUNTED
    for _, unit in ipairs(units) do
      local is_own = each == band and key_of(unit) == key
      local queue = ahead.queue_of(unit, limit.name, is_own and ticket)
      if each < band then
        before.count, before.amount = before.count + queue.count * times, before.amount + queue.amount * times
      elseif is_own then
        before.own, before.own_count = before.own + queue.amount, before.own_count + queue.count
        before.came = math.max(before.came, ahead.others_came(unit))
        turn = math.min(turn, redis.call('ZSCORE', order, unit) or math.huge)
      else
        before.others[#before.others + 1] = { queue = queue, times = times, weight = weight_of(key_of(unit)) / weight_of(key),
          turn = tonumber(redis.call('ZSCORE', order, unit) or 0) }
      end
    end
  end
  for _, other in ipairs(before.others) do
    other.is_next = other.turn < turn
  end
  return before
end

-- Its place in a line, the first having 1, as keys take turns.
ahead.place = function(before)
  local place = 1 + before.count + before.own_count
  for _, other in ipairs(before.others) do
    place = place + math.min(other.queue.count, math.floor((before.own_count + (other.is_next and 1 or 0)) * other.weight)) * other.times
  end
  return math.floor(place)
end
