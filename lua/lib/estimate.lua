--- @include "lib/queueing"
-- When it would be the turn of one that joins the line, from what stands before it, the rates, and how fast what is held came back
-- while somebody waited. What comes later in better bands is not foreseen.
local MAX_COUNTED = 32 -- units of a band of a line; beyond, as many as these are alike
local MAX_WEIGHED = 8 -- waiters of a unit, of which the others are taken to be like
local MEMORY = 0.9375 -- of what came back: each time counts the sixteenth part of all

-- What came back of a limit while somebody waited, in how many us, and when that was last.
local function read_pace(name)
  local amount, us, last = string.match(';' .. (limiter.pace or ''), ';' .. name .. '=([%d.]+)/([%d.]+)@(%d+)')
  return tonumber(amount or 0), tonumber(us or 0), tonumber(last)
end

-- The answer to one that would not be let in by then; nil for one that may be.
local function is_late(key, amounts, wait_ms)
  -- What those of a unit ask for of a limit, altogether.
  local function queue_of(unit, name)
    local from, to = '[' .. unit .. ' ', '(' .. unit .. '!'
    local some = redis.call('ZRANGEBYLEX', K_WAITERS, from, to, 'LIMIT', 0, MAX_WEIGHED)
    local sum, seen = 0, 0
    for _, member in ipairs(some) do
      local h = read_hold(string.match(member, '%S+$'))
      local number = h and string.match(',' .. h.amounts, ',' .. name .. '[=:](%d+)')
      sum, seen = sum + (number or 0), seen + (number and 1 or 0)
    end
    local count = #some < MAX_WEIGHED and #some or redis.call('ZLEXCOUNT', K_WAITERS, from, to)
    return seen > 0 and sum / seen * count or 0
  end

  -- What goes before it: all of better bands, those of its key, and of each other key as much as that.
  local function queue_before(limit, key, band, amount)
    local sum, own, others = 0, amount, {}
    for each = 0, band do
      local from = limit.index * SPAN + (each - USUAL) % BANDS * BETWEEN
      local to = '(' .. int(from + BETWEEN)
      local units = redis.call('ZRANGEBYSCORE', K_LINE, int(from), to, 'LIMIT', 0, MAX_COUNTED)
      local times = #units < MAX_COUNTED and 1 or redis.call('ZCOUNT', K_LINE, int(from), to) / MAX_COUNTED
      for _, unit in ipairs(units) do
        local queue = queue_of(unit, limit.name)
        if each < band then
          sum = sum + queue * times
        elseif key_of(unit) == key then
          own = own + queue
        else
          others[#others + 1] = { queue, times }
        end
      end
    end
    for _, other in ipairs(others) do
      sum = sum + math.min(other[1], own) * other[2]
    end
    return sum + own - amount
  end

  -- Us until so much of a limit may be taken, with what stands before it; nil where nobody knows.
  local function us_until(limit, levels, amount, before)
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

  -- Us, the limit for which it waits longest, and whose; 0 where nobody knows.
  local function estimate(key, amounts)
    local longest, name, whose = what_binds(key, amounts)
    local k, band = read_key(key), band_of(amounts)
    longest = longest or 0
    for _, amount in ipairs(amounts_of(amounts)) do
      for i = 1, 2 do
        local limit, levels = limit_and_levels(k, i, amount[1])
        local before = limit and i == 1 and queue_before(limit, key, band, amount[3]) or 0
        local us = limit and us_until(limit, levels, amount[3], before) or 0
        if us > longest then
          longest, name, whose = us, limit.name, i == 1 and 'all' or 'key'
        end
      end
    end
    return longest, name or 'line', whose or 'all'
  end

  limiter.pace = limiter.pace or '-'
  local us, limit, whose = estimate(key, amounts)
  if us > wait_ms * 1000 then
    count_refusal(limit, whose)
    return table.concat({ 'hopeless', int(us), limit, whose }, ' ')
  end
end

-- What came back while somebody waited says how fast the line goes. `stood`: whether anybody did before this call.
local function save_pace(stood)
  local texts = {}
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
