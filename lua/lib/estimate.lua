--- @include "lib/queueing"
-- When it is the turn of one that joins the line or waits there, by what stands before it, the rates, and how fast what is held
-- came back while somebody waited. What comes later in better bands is not foreseen.
local MAX_COUNTED = 32 -- units of a band of a line; beyond, as many as these are alike
local MAX_WEIGHED = 8 -- waiters of a unit, of which the others are taken to be like
local MAX_ROUNDS = 16 -- of reckoning what comes meanwhile
local MEMORY = 0.9375 -- of what came back: each time counts the sixteenth part of all
local ahead = {} -- one table: a function of Lua has room for 200 local names
local SHORTEST_MS = 1000 -- in which a rate of arrivals is told from a burst

-- What came back of a limit while somebody waited, in how many us, and when that was last.
local function read_pace(name)
  local amount, us, last = string.match(';' .. (limiter.pace or ''), ';' .. name .. '=([%d.]+)/([%d.]+)@(%d+)')
  return tonumber(amount or 0), tonumber(us or 0), tonumber(last)
end

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

-- Us until so much of a limit may be taken, with what stands before it; nil where nobody knows.
ahead.us_until = function(limit, levels, amount, before)
  if limit.form == 'rate' then
    return math.max(0, owe(tat_of(limit, levels), before + amount, limit.rate) - limit.tolerance - now_us)
  elseif limit.form == 'quota' then
    local over, begins, ends = used_of(limit, levels) + before + amount - limit.most, window_of(limit), window_end(limit)
    return over > 0 and (ends + (math.ceil(over / limit.most) - 1) * (ends - begins)) * 1000 - clock_us or 0
  end
  local over = (levels.held[limit.name] or 0) + before + amount - most_at_once(limit, levels)
  local amount_back, us, last = read_pace(limit.name)
  if over <= 0 or amount_back == 0 then
    return over <= 0 and 0 or nil
  end
  return over * math.max(us, us * MEMORY + now_us - last) / amount_back
end

-- Us until its turn at a limit of all keys; nil where nobody knows. Other keys that keep coming go on taking turns with its own:
-- the longer it waits, the more of them go before it.
ahead.us_in_turn = function(limit, before, amount)
  local others, us = before.others, nil
  for _ = 1, MAX_ROUNDS do
    local sum, last = before.amount + before.own, us
    for _, other in ipairs(others) do
      local more = before.came / #others * (us or 0) / math.max(1, other.queue.count)
      local most = (before.own + (other.is_next and amount or 0)) * other.weight
      sum = sum + math.min(other.queue.amount * (1 + more), most) * other.times
    end
    us = ahead.us_until(limit, limiter.levels, amount, sum)
    if not us or (last and us - last < us / 64) then
      break
    end
  end
  return us
end

-- Its place in a line, the first having 1, as keys take turns.
ahead.place = function(before)
  local place = 1 + before.count + before.own_count
  for _, other in ipairs(before.others) do
    place = place + math.min(other.queue.count, math.floor((before.own_count + (other.is_next and 1 or 0)) * other.weight)) * other.times
  end
  return math.floor(place)
end

-- Of its own key's limit: those of better bands, and of its own up to its ticket.
ahead.us_of_key = function(limit, levels, key, band, ticket, amount)
  local before = 0
  for _, unit in ipairs(units_of(key)) do
    local of = tonumber(string.match(unit, '~(%d)$') or USUAL)
    before = before + (of <= band and ahead.queue_of(unit, limit.name, of == band and ticket).amount or 0)
  end
  return ahead.us_until(limit, levels, amount, before)
end

-- Us, the limit for which it waits longest, and whose, us being 0 where nobody knows; then whether somebody knows, and its place in
-- the longest line. `ticket` is that of one that waits.
local function estimate(key, amounts, ticket)
  local longest, name, whose = what_binds(key, amounts)
  local k, band, is_known, is_bound, place = read_key(key), band_of(amounts), name ~= 'stopped', longest ~= 0, 1
  limiter.queues = limiter.queues or {}
  longest = longest or 0
  for _, amount in ipairs(amounts_of(amounts)) do
    for i = 1, 2 do
      local limit, levels = limit_and_levels(k, i, amount[1])
      local us = 0
      if limit and i == 1 then
        local before = ahead.before(limit, key, band, ticket)
        us, place = ahead.us_in_turn(limit, before, amount[3]), math.max(place, ahead.place(before))
      elseif limit then
        us = ahead.us_of_key(limit, levels, key, band, ticket, amount[3])
      end
      is_known = is_known and us ~= nil
      if us and us > longest then
        longest, name, whose = us, limit.name, i == 1 and 'all' or 'key'
      end
    end
  end
  return longest, name or 'line', whose or 'all', is_known and (longest > 0 or not is_bound), place
end

-- What came back while somebody waited says how fast the line goes. `stood`: whether anybody did before this call.
local function save_pace(stood)
  local texts = {}
  if not stood and d.blocked == 0 then
    return
  end
  for _, limit in ipairs(limiter.limits) do
    if limit.form == 'at_once' then
      local amount, us, last = read_pace(limit.name)
      if stood and last and came_back[limit.name] then
        amount, us, last = amount * MEMORY + came_back[limit.name], us * MEMORY + math.max(0, now_us - last), now_us
      end
      texts[#texts + 1] = string.format('%s=%.3f/%.0f@%.0f', limit.name, amount, us, stood and last or now_us)
    end
  end
  redis.call('HSET', K_DESTINATION, 'pace', texts[1] and table.concat(texts, ';') or '-')
end
