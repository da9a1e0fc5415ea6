--- @include "lib/comes_back"
-- When it is the turn of one that joins the line or waits there, by what stands before it, the rates, and how fast what is held
-- came back while somebody waited. What comes later in better bands is not foreseen.
local MAX_ROUNDS = 16 -- of reckoning what comes meanwhile

-- Us until that much of a limit may be taken, with what stands before it; nil where nobody knows.
ahead.us_until = function(limit, levels, amount, before)
  if limit.form == 'rate' then
    return math.max(0, owe(tat_of(limit, levels), before + amount, limit.rate) - limit.tolerance - now_us)
  elseif limit.form == 'quota' then
    local over, begins, ends = used_of(limit, levels) + before + amount - limit.most, window_of(limit), window_end(limit)
    return over > 0 and (ends + (math.ceil(over / limit.most) - 1) * (ends - begins)) * 1000 - clock_us or 0
  end
  local over = (levels.held[limit.name] or 0) + before + amount - most_at_once(limit, levels)
  return over <= 0 and 0 or ahead.us_to_come_back(limit.name, over, amount)
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
