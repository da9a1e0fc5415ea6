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

-- Us until so much more is back, for one who asks for an amount; nil where nobody knows.
ahead.us_to_come_back = function(name, over, amount)
  local back, us, last, squares = read_pace(name)
  if back == 0 then
    return nil
  end
  local each, portion = math.max(us, us * MEMORY + now_us - last) / back, squares / back
  if portion <= amount then
    return over * each
  end
  local portions = math.max(1, math.ceil(over / portion - 0.1)) -- the last may be a little larger
  local passed_us = math.min(now_us - last, portion * each) * (1 - amount / portion) -- of the time to the next portion
  return math.max(0, portions * portion * each - math.max(0, passed_us))
end

-- `stood`: whether anybody waited before this call.
local function save_pace(stood)
  -- What comes back much sooner than is usual belongs to what came before it.
  local function count_back(now_back, amount, us, last, squares, portion)
    local passed_us = math.max(0, now_us - last)
    if amount > 0 and passed_us * 4 * amount <= us * now_back then
      return amount + now_back, us + passed_us, squares + (portion + now_back) ^ 2 - portion ^ 2, portion + now_back
    end
    return amount * MEMORY + now_back, us * MEMORY + passed_us, squares * MEMORY + now_back ^ 2, now_back
  end

  local texts = {}
  if not stood and d.blocked == 0 then
    return
  end
  for _, limit in ipairs(limiter.limits) do
    if limit.form == 'at_once' then
      local amount, us, last, squares, portion = read_pace(limit.name)
      if stood and last and came_back[limit.name] then
        amount, us, squares, portion = count_back(came_back[limit.name], amount, us, last, squares, portion)
        last = now_us
      end
      texts[#texts + 1] = string.format('%s=%.3f/%.0f@%.0f*%.3f+%.0f', limit.name, amount, us, stood and last or now_us, squares, portion)
    end
  end
  redis.call('HSET', K_DESTINATION, 'pace', texts[1] and table.concat(texts, ';') or '-')
end
