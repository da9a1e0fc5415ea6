--- @include "lib/ahead"
-- How fast what is held at once comes back while somebody waits: how much of it did, in how many us, and in which portions. Holds
-- that were admitted in one moment and last alike come back in one moment, again and again.
local MEMORY = 0.9375 -- of what came back: each portion counts the sixteenth part of all

-- Of what came back of a limit: how much, in how many us, when the last of it did, the sum of the squares of its portions, and the
-- portion that may still grow.
local function read_pace(name)
  local amount, us, last, squares, portion = string.match(';' .. (limiter.pace or ''),
    ';' .. name .. '=([%d.]+)/([%d.]+)@(%d+)%*?([%d.]*)%+?([%d.]*)')
  return tonumber(amount or 0), tonumber(us or 0), tonumber(last), tonumber(squares or 0) or 0, tonumber(portion or 0) or 0
end

-- Us within which that much more belongs to the portion before it: a quarter of its usual time, and where large portions are usual, as
-- long as one of what is held takes. Were it longer, what comes at random would be taken for one portion that never ends.
ahead.one_portion_us = function(now_back, amount, us, squares)
  return us / amount * math.max(now_back / 4, math.min(1, squares / amount / 8))
end

-- The same with what this call brought back: what comes back much sooner than is usual belongs to what came before it.
local function pace_now(name)
  local amount, us, last, squares, portion = read_pace(name)
  local now_back = limiter.stood and last and came_back[name]
  if not now_back then
    return amount, us, last, squares, portion
  end
  local passed_us = math.max(0, now_us - last)
  if amount > 0 and passed_us <= ahead.one_portion_us(now_back, amount, us, squares) then
    return amount + now_back, us + passed_us, now_us, squares + (portion + now_back) ^ 2 - portion ^ 2, portion + now_back
  end
  return amount * MEMORY + now_back, us * MEMORY + passed_us, now_us, squares * MEMORY + now_back ^ 2, now_back
end

-- Us until that much more is back, for one who asks for an amount; nil where nobody knows.
ahead.us_to_come_back = function(name, over, amount)
  local back, us, last, squares, growing = pace_now(name)
  if back == 0 then
    return nil
  end
  local each, portion = math.max(us, us * MEMORY + now_us - last) / back, squares / back
  if portion <= amount then
    return over * each
  end
  local rest, rest_us = portion - growing, ahead.one_portion_us(1, back, us, squares) - (now_us - last)
  if rest > 0.5 and rest_us > 0 then -- a portion comes back just now, and its rest would be counted as part of it
    if over <= rest then return rest_us end
    over = over - rest
  end
  local portions = math.max(1, math.ceil(over / portion - 0.1)) -- the last may be a little larger
  local passed_us = math.min(now_us - last, portion * each) * (1 - amount / portion) -- of the time to the next portion
  return math.max(0, portions * portion * each - math.max(0, passed_us))
end

local function save_pace()
  local texts = {}
  if not limiter.stood and d.blocked == 0 then
    return
  end
  for _, limit in ipairs(limiter.limits) do
    if limit.form == 'at_once' then
      local amount, us, last, squares, portion = pace_now(limit.name)
      texts[#texts + 1] = string.format('%s=%.3f/%.0f@%.0f*%.3f+%.0f', limit.name, amount, us, limiter.stood and last or now_us, squares, portion)
    end
  end
  redis.call('HSET', K_DESTINATION, 'pace', texts[1] and table.concat(texts, ';') or '-')
end
